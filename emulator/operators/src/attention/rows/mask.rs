//! Visible keys: the mask parameter and the sparse modes.

use crate::attention::rows::keys::KeyRows;
use crate::attention::rows::order::Extents;
use crate::attention::rows::request::{AttentionRequest, QueryRows};
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::{Refusal, ViewIndex};
use crate::view::StridedView;

/// Extent of compressed masks.
pub(crate) const COMPRESSED: usize = 2048;

#[derive(Clone, Copy, Debug)]
pub(super) enum Mask {
    None,
    /// The view is reshaped to batch, query, key.
    Full(ViewIndex),
    /// The tensor holds the documented triangle.
    Compressed(ViewIndex),
}

/// Returns whether a mask covers `len`, exactly or with the documented rounding.
pub(super) fn covers(extent: usize, len: usize) -> bool {
    [len, len.next_multiple_of(16), len.next_multiple_of(32)].contains(&extent)
}

pub(super) fn mask(
    call: &OperatorCall,
    request: &AttentionRequest<'_>,
    rows: &QueryRows,
    keys: &KeyRows,
) -> Result<Mask, Refusal> {
    let (name, query, key_len) = (request.mask_name, rows.extents, keys.room);
    // With a block table, the mask may be larger.
    let covers_keys = |extent| covers(extent, key_len) || (request.table.is_some() && extent >= key_len);
    if !(0..=4).contains(&request.sparse_mode) {
        return Err(call.refuse(SPARSE_MODE, format!("expected 0 to 4, found {}", request.sparse_mode)));
    }
    if rows.order.is_packed() && !matches!((request.sparse_mode, request.mask), (0, None) | (3 | 4, Some(_)))
    {
        let text = format!(
            "expected 0 without a mask, or 3 or 4 with one, in this inputLayout, found {}",
            request.sparse_mode
        );
        return Err(call.refuse(SPARSE_MODE, text));
    }
    let sparse_mode = if request.decoding { 0 } else { request.sparse_mode };
    let Some(mask) = request.mask else {
        if sparse_mode != 0 {
            return Err(call.refuse(name, format!("sparseMode {sparse_mode} needs a mask, found NULL")));
        }
        return Ok(Mask::None);
    };
    if mask.is_empty() {
        return Err(
            call.refuse(name, format!("expected a mask with elements or NULL, found {:?}", mask.dims))
        );
    }
    if sparse_mode >= 2 {
        let legal = matches!(mask.dims[..], [COMPRESSED, COMPRESSED] | [1, COMPRESSED, COMPRESSED])
            || mask.dims == [1, 1, COMPRESSED, COMPRESSED];
        if !legal {
            let text = format!(
                "expected {COMPRESSED} x {COMPRESSED} for sparseMode {sparse_mode}, found {:?}",
                mask.dims
            );
            return Err(call.refuse(name, text));
        }
        return Ok(Mask::Compressed(mask.slot));
    }
    let one_or_batch = |extent| extent == 1 || extent == query.batch;
    let legal = match (request.decoding, &mask.dims[..]) {
        (true, &[batch, keys] | &[batch, 1, keys] | &[batch, 1, 1, keys]) => {
            batch == query.batch && covers_keys(keys)
        }
        (false, &[rows, keys]) => covers(rows, query.len) && covers_keys(keys),
        (false, &[batch, rows, keys] | &[batch, 1, rows, keys]) => {
            one_or_batch(batch) && covers(rows, query.len) && covers_keys(keys)
        }
        _ => false,
    };
    if !legal {
        let (batch, rows) = (query.batch, query.len);
        let expected = if request.decoding {
            format!("[{batch}, {key_len}], [{batch}, 1, {key_len}] or [{batch}, 1, 1, {key_len}]")
        } else {
            format!(
                "[{rows}, {key_len}], [{batch} or 1, {rows}, {key_len}] or [{batch} or 1, 1, {rows}, {key_len}]"
            )
        };
        return Err(call.refuse(name, format!("expected {expected}, found {:?}", mask.dims)));
    }
    Ok(Mask::Full(mask.slot))
}

/// Returns the addends of the scores, `[B or 1, N, Q, KV]` or larger in the last two dims.
pub(super) fn bias(
    call: &OperatorCall,
    request: &AttentionRequest<'_>,
    rows: &QueryRows,
    keys: &KeyRows,
) -> Result<Option<ViewIndex>, Refusal> {
    let Some(bias) = request.bias else { return Ok(None) };
    let (name, query) = (request.bias_name, rows.extents);
    let longest = keys.lengths.iter().copied().max().unwrap_or(0);
    call.expect_dtype(name, call.tensor(QUERY)?.dtype, "the type of query")?;
    let [batch, heads, positions, lines] = bias.dims[..] else {
        return Err(call.refuse(name, format!("expected 4 dims, found {:?}", bias.dims)));
    };
    let legal = !rows.order.is_packed()
        && (batch == 1 || batch == query.batch)
        && heads == query.heads
        && positions >= query.len
        && lines >= longest;
    if legal {
        return Ok(Some(bias.slot));
    }
    let text = format!(
        "expected [{} or 1, {}, {} or more, {longest} or more] and no packed layout, found {:?}",
        query.batch, query.heads, query.len, bias.dims
    );
    Err(call.refuse(name, text))
}

pub(super) fn of_batches(mask: &StridedView, query: Extents) -> StridedView {
    let three = match mask.rank() {
        // One query position: [B, KV]; else [Q, KV] for all batches.
        2 if query.len == 1 && mask.dims()[0] == query.batch => mask.unsqueeze(1),
        2 => mask.unsqueeze(0),
        4 => mask.at(1, 0),
        _ => mask.clone(),
    };
    let (rows, keys) = (three.dims()[1], three.dims()[2]);
    three.broadcast_to(&[query.batch, rows, keys])
}

/// Checks only the first and last rows of the triangle.
pub(crate) fn check_triangle(mask: &StridedView) -> Result<(), String> {
    let square = (0..mask.rank() - 2).fold(mask.clone(), |view, _| view.at(0, 0));
    let mut row = [0u8; COMPRESSED];
    for (line, masked_from) in [(0, 1), (COMPRESSED - 1, COMPRESSED)] {
        square.at(0, line).read(0, &mut row);
        if let Some(key) = (0..COMPRESSED).find(|&key| (row[key] != 0) != (key >= masked_from)) {
            return Err(format!(
                "the compressed mask must be 1 above the diagonal and 0 elsewhere; row {line}, key {key} is not"
            ));
        }
    }
    Ok(())
}

/// Returns the visible keys before and after a row's own position, per batch.
pub(super) fn bands(
    request: &AttentionRequest<'_>,
    mask: Mask,
    rows: &QueryRows,
    keys: &KeyRows,
) -> Vec<(i64, i64)> {
    keys.lengths
        .iter()
        .zip(&rows.lengths)
        .map(|(&keys, &rows)| {
            let shift = keys as i64 - rows as i64;
            match (mask, request.sparse_mode) {
                (Mask::Compressed(_), 2) => (i64::MAX, 0),
                (Mask::Compressed(_), 3) => (i64::MAX, shift),
                (Mask::Compressed(_), _) => {
                    (request.before.saturating_sub(shift), request.after.saturating_add(shift))
                }
                (Mask::Full(_), 0) if !request.decoding => (request.before, request.after),
                _ => (i64::MAX, i64::MAX),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_extents_may_be_rounded_up_to_the_documented_alignments() {
        assert!(covers(17, 17) && covers(32, 17) && !covers(18, 17) && !covers(16, 17));
        assert!(covers(48, 40) && covers(64, 40));
    }
}
