//! Inputs of a decoder program that change from run to run.

use crate::base::DType;
use crate::config::{LengthDependence, ModelConfig};
use crate::exec::NamedTensors;
use crate::program::HostTensor;
use crate::program::models::{Head, RunShape, input, masks, rotary_tables};

/// The new tokens of one sequence.
#[derive(Clone, Debug)]
pub(super) struct SequenceInput<'a> {
    /// New tokens: at least one, at most the run's sequence length.
    pub(super) ids: &'a [u32],
    pub(super) start: usize,
    pub(super) prompt_length: usize,
}

/// Returns the inputs of one run.
///
/// Short rows are padded on the right. Padding takes the positions that follow, so later tokens
/// overwrite its cache entries before attention reads them.
pub(super) fn inputs(
    config: &ModelConfig,
    run: RunShape,
    dtype: DType,
    head: Head,
    rows: &[SequenceInput<'_>],
) -> NamedTensors {
    let RunShape { batch: b, sequence: s, cache_length: t } = run;
    let (mut ids, mut starts, mut last, mut logn) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut masks: Vec<_> = masks(config).into_iter().map(|mask| (mask, Vec::new())).collect();
    let mut tables: Vec<_> =
        rotary_tables(config).into_iter().map(|table| (table, Vec::new(), Vec::new())).collect();
    for row in rows {
        let start = row.start.min(t - s);
        let positions: Vec<usize> = (start..start + s).collect();
        ids.extend((0..s).map(|i| i64::from(row.ids.get(i).copied().unwrap_or(0))));
        starts.push(start as i64);
        for (mask, hidden) in &mut masks {
            let cells = positions.iter().flat_map(|token| (0..t).map(move |key| (*token, key)));
            hidden.extend(cells.map(|(token, key)| i64::from(mask.hides(token, key))));
        }
        for (table, cos, sin) in &mut tables {
            let rope = config.rope_of(table.rotary);
            let length = match rope.length_dependence() {
                LengthDependence::Prompt => row.prompt_length,
                LengthDependence::Fixed | LengthDependence::Current => row.start + row.ids.len(),
            };
            let (row_cos, row_sin) = rope.cos_sin(config.head_dim, &positions, length);
            cos.extend(row_cos);
            sin.extend(row_sin);
        }
        logn.extend(config.logn.iter().flat_map(|logn| logn.scale(&positions)));
        last.push(row.ids.len() as i64 - 1);
    }
    let mut tensors = vec![
        (input::IDS, HostTensor::int([b, s], DType::I64, ids)),
        (input::START, HostTensor::int([b], DType::I64, starts)),
    ];
    tensors.extend(
        masks.into_iter().map(|(mask, hidden)| (mask.name, HostTensor::int([b, s, t], DType::Bool, hidden))),
    );
    for (table, cos, sin) in tables {
        let shape = [b, s, config.rope_of(table.rotary).rotated_dims(config.head_dim)];
        tensors.push((table.cos, HostTensor::float(shape, dtype, cos)));
        tensors.push((table.sin, HostTensor::float(shape, dtype, sin)));
    }
    if config.logn.is_some() {
        tensors.push((input::LOGN, HostTensor::float([b, s, 1, 1, 1], dtype, logn)));
    }
    if head != Head::AllLogits {
        tensors.push((input::LAST, HostTensor::int([b], DType::I64, last)));
    }
    tensors.into_iter().collect()
}
