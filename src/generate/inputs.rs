//! Inputs of a decoder program that change from run to run.

use crate::base::DType;
use crate::config::{LengthDependence, ModelConfig};
use crate::exec::NamedTensors;
use crate::program::HostTensor;
use crate::program::models::{Head, RunShape, cache_inputs, input, rotary_tables};

#[derive(Clone, Debug)]
pub(super) struct SequenceInput<'a> {
    /// New tokens: at least one, at most the run's sequence length.
    pub(super) ids: &'a [u32],
    pub(super) start: usize,
    pub(super) prompt_length: usize,
}

/// Returns the inputs of one run of a static batch: sequence `i` has the same blocks in each run.
///
/// Short rows are padded on the right. Padding is written to the null block.
pub(super) fn inputs(
    config: &ModelConfig,
    run: RunShape,
    dtype: DType,
    head: Head,
    rows: &[SequenceInput<'_>],
) -> NamedTensors {
    let RunShape { batch: b, sequence: s, .. } = run;
    let (mut ids, mut tokens, mut last, mut logn) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut tables: Vec<_> =
        rotary_tables(config).into_iter().map(|table| (table, Vec::new(), Vec::new())).collect();
    for row in rows {
        // A sequence that ended may stand behind its last row.
        let start = row.start.min(run.length() - row.ids.len());
        let positions: Vec<usize> = (start..start + s).collect();
        ids.extend((0..s).map(|i| i64::from(row.ids.get(i).copied().unwrap_or(0))));
        tokens.push(start..start + row.ids.len());
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
    let mut tensors = vec![(input::IDS, HostTensor::int([b, s], DType::I64, ids))];
    tensors.extend(cache_inputs(run, &tokens));
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
