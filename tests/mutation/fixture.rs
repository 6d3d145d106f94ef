//! A fixture: a published-format checkpoint with random weights, and the logits that the reference implementation gives.

use std::path::PathBuf;

use ascend_tp::base::DType;
use ascend_tp::config::ModelConfig;
use ascend_tp::program::models::{Head, RunShape, decoder, input};
use ascend_tp::program::{HostTensor, Program, Role};
use ascend_tp::weights::Checkpoint;

use super::common::Tensors;

/// The folders under `tests/fixtures`.
pub(crate) const NAMES: [&str; 5] =
    ["llama3-ropescaling", "qwen-v1-mha", "qwen2-gqa", "qwen2-tied-uneven", "qwen3-qknorm"];

/// Tokens of each sequence that are used: attention looks back only, so the reference's first logits do not change.
const SEQUENCE: usize = 33;
/// Rows of the KV caches; those beyond the sequence must not matter.
const CACHE: usize = 36;

/// A model with its weights, one input and what comes out.
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) config: ModelConfig,
    pub(crate) program: Program,
    pub(crate) params: Tensors,
    pub(crate) inputs: Tensors,
    /// `[batch, sequence, vocabulary]`
    pub(crate) logits: Vec<f32>,
}

impl Fixture {
    /// Reads a fixture.
    pub(crate) fn read(name: &'static str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config = ModelConfig::from_json(&config).unwrap();
        let expected = Checkpoint::open_file(&folder.join("expected.safetensors")).unwrap();
        let (shape, ids) = expected.read_i64("input_ids").unwrap();
        let (batch, whole) = (shape[0], shape[1]);
        let (_, logits) = expected.read_f32("logits").unwrap();
        let run = RunShape { batch, sequence: SEQUENCE, cache_length: CACHE };
        let program = decoder(&config, run, DType::F32, Head::AllLogits).unwrap();

        let checkpoint = Checkpoint::open(&folder).unwrap();
        let mut params = Tensors::new();
        for id in program.with_role(Role::Param) {
            let value = &program.values[id];
            let source = value.source.as_ref().unwrap();
            let mut bytes = vec![0; value.shape.elems() * 4];
            let ranges: Vec<_> = value.shape.iter().map(|size| 0..*size).collect();
            let (tensor, offset) = (&source.tensor, source.element_offset);
            checkpoint.read_slice(tensor, offset, &value.shape, &ranges, DType::F32, &mut bytes).unwrap();
            params.insert(value.name.clone(), HostTensor::from_bytes(value.shape.clone(), DType::F32, &bytes));
        }

        let positions: Vec<usize> = (0..batch * SEQUENCE).map(|at| at % SEQUENCE).collect();
        let ids = ids.chunks(whole).flat_map(|row| row[..SEQUENCE].to_vec()).collect();
        let (cos, sin) = config.rope.cos_sin(config.head_dim, &positions, whole);
        let hidden = positions.iter().flat_map(|position| (0..CACHE).map(move |row| i64::from(row > *position)));
        let rotary = [batch, SEQUENCE, config.head_dim];
        let mut inputs = Tensors::from([
            (input::IDS.to_owned(), HostTensor::int([batch, SEQUENCE], DType::I64, ids)),
            (input::MASK.to_owned(), HostTensor::int([batch, SEQUENCE, CACHE], DType::Bool, hidden.collect())),
            (input::COS.to_owned(), HostTensor::float(rotary, DType::F32, cos)),
            (input::SIN.to_owned(), HostTensor::float(rotary, DType::F32, sin)),
        ]);
        if let Some(logn) = &config.logn {
            let factors = HostTensor::float([batch, SEQUENCE, 1, 1, 1], DType::F32, logn.scale(&positions));
            inputs.insert(input::LOGN.to_owned(), factors);
        }
        let positions = positions.into_iter().map(|position| position as i64).collect();
        inputs.insert(input::POSITIONS.to_owned(), HostTensor::int([batch, SEQUENCE], DType::I64, positions));
        let logits = logits.chunks(whole * config.vocab_size);
        let logits = logits.flat_map(|row| row[..SEQUENCE * config.vocab_size].to_vec()).collect();
        Self { name, config, program, params, inputs, logits }
    }
}
