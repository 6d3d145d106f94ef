//! Inputs of a decoder program that change from run to run.

use crate::base::DType;
use crate::config::{LengthDependence, ModelConfig};
use crate::exec::NamedTensors;
use crate::program::HostTensor;
use crate::program::models::{Head, RunShape, input};

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
    let d = config.head_dim;
    let (mut ids, mut starts, mut mask, mut last) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut cos, mut sin, mut logn) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let start = row.start.min(t - s);
        let at: Vec<usize> = (start..start + s).collect();
        ids.extend((0..s).map(|i| i64::from(row.ids.get(i).copied().unwrap_or(0))));
        starts.push(start as i64);
        mask.extend(at.iter().flat_map(|position| (0..t).map(move |cached| i64::from(cached > *position))));
        let length = match config.rope.length_dependence() {
            LengthDependence::Prompt => row.prompt_length,
            LengthDependence::Fixed | LengthDependence::Current => row.start + row.ids.len(),
        };
        let (row_cos, row_sin) = config.rope.cos_sin(d, &at, length);
        cos.extend(row_cos);
        sin.extend(row_sin);
        logn.extend(config.logn.iter().flat_map(|logn| logn.scale(&at)));
        last.push(row.ids.len() as i64 - 1);
    }
    let mut tensors = vec![
        (input::IDS, HostTensor::int([b, s], DType::I64, ids)),
        (input::START, HostTensor::int([b], DType::I64, starts)),
        (input::MASK, HostTensor::int([b, s, t], DType::Bool, mask)),
        (input::COS, HostTensor::float([b, s, d], dtype, cos)),
        (input::SIN, HostTensor::float([b, s, d], dtype, sin)),
    ];
    if config.logn.is_some() {
        tensors.push((input::LOGN, HostTensor::float([b, s, 1, 1, 1], dtype, logn)));
    }
    if head != Head::AllLogits {
        tensors.push((input::LAST, HostTensor::int([b], DType::I64, last)));
    }
    tensors.into_iter().collect()
}
