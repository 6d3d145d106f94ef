//! Valid sequence lengths of each batch.

use std::ops::Range;

use crate::operator::Refusal;
use crate::operator::call::OperatorCall;
use crate::operator::names::Name;

const MOST_SEQUENCES: usize = 65_536;

/// Returns one length per batch; `limits` are the extents of the tensors.
pub(super) fn padded(
    call: &OperatorCall,
    name: Name<[i64]>,
    given: Option<&[i64]>,
    limits: &[usize],
) -> Result<Vec<usize>, Refusal> {
    let Some(given) = given else {
        return Ok(limits.to_vec());
    };
    if given.len() != 1 && given.len() < limits.len() {
        let text =
            format!("expected 1 length or one for each of {} batches, found {}", limits.len(), given.len());
        return Err(call.refuse(name, text));
    }
    let pairs = limits
        .iter()
        .enumerate()
        .map(|(i, &limit)| (i, limit, if given.len() == 1 { given[0] } else { given[i] }));
    pairs
        .map(|(i, limit, value)| match usize::try_from(value) {
            Ok(value) if value <= limit => Ok(value),
            _ => Err(call.refuse(name, format!("expected 0 to {limit} for batch {i}, found {value}"))),
        })
        .collect()
}

/// Returns packed sequences with these ends; `total` is the number of positions.
pub(super) fn packed(
    call: &OperatorCall,
    name: Name<[i64]>,
    given: Option<&[i64]>,
    total: usize,
) -> Result<Vec<Range<usize>>, Refusal> {
    let ends = given.unwrap_or_default();
    if ends.is_empty() || ends.len() > MOST_SEQUENCES {
        let text = format!(
            "expected the end of each of 1 to {MOST_SEQUENCES} sequences in this inputLayout, found {} numbers",
            ends.len()
        );
        return Err(call.refuse(name, text));
    }
    let mut start = 0;
    let mut ranges = Vec::with_capacity(ends.len());
    for (i, &end) in ends.iter().enumerate() {
        let Some(end) = usize::try_from(end).ok().filter(|end| (start..=total).contains(end)) else {
            return Err(call.refuse(
                name,
                format!("expected an end of {start} to {total} for sequence {i}, found {end}"),
            ));
        };
        ranges.push(start..end);
        start = end;
    }
    if start != total {
        return Err(call.refuse(
            name,
            format!("expected the last end to equal the length of the tensor, {total}, found {start}"),
        ));
    }
    Ok(ranges)
}
