//! Fixtures: checkpoints with random weights, and logits of the reference implementation.

use std::collections::BTreeSet;

use ascend_tp::base::{DType, Id};
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::shard::{Remainder, part};
use ascend_tp::program::models::{Head, RunShape, cache_inputs, decoder, input};
use ascend_tp::program::{HostTensor, Program, Role, interpret};
use ascend_tp::weights::Checkpoint;

use crate::common::{Tensors, fixture};

pub(crate) const NAMES: [&str; 5] =
    ["llama3-ropescaling", "qwen-v1-mha", "qwen2-gqa", "qwen2-tied-uneven", "qwen3-qknorm"];

/// Number of tokens used of each sequence. Attention is causal, so the reference's first logits do
/// not change.
const SEQUENCE: usize = 9;
/// Rows of the KV caches. Rows beyond the sequence must have no effect.
const CACHE: usize = 12;

pub(crate) struct Case {
    pub(crate) inputs: Tensors,
    pub(crate) output: HostTensor,
}

pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) config: ModelConfig,
    pub(crate) program: Program,
    pub(crate) params: Tensors,
    /// Runs with expected outputs. The first is the reference's. Its few ids leave zeros on most
    /// cards, which hide errors. So the other runs cover every shard of the vocabulary at every
    /// position. Their outputs come from `interpret`, which is compared with the reference first.
    pub(crate) cases: Vec<Case>,
}

impl Fixture {
    pub(crate) fn read(name: &'static str, head: Head, cards: usize) -> Self {
        let folder = fixture(name);
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config = ModelConfig::from_json(&config).unwrap();
        let expected = Checkpoint::open_file(&folder.join("expected.safetensors")).unwrap();
        let (shape, ids) = expected.read_i64("input_ids").unwrap();
        let (batch, whole) = (shape[0], shape[1]);
        let run = RunShape::new(batch, SEQUENCE, CACHE);
        let program = decoder(&config, run, DType::F32, head).unwrap();
        let params = params(&program, &Checkpoint::open(&folder).unwrap());

        let ids = ids.chunks(whole).flat_map(|row| row[..SEQUENCE].to_vec()).collect();
        let logits = expected.read_f32("logits").unwrap().1;
        let rows = logits.chunks(whole * config.vocab_size).map(|row| &row[..SEQUENCE * config.vocab_size]);
        let output = match head {
            Head::AllLogits => HostTensor::float(
                [batch, SEQUENCE, config.vocab_size],
                DType::F32,
                rows.flatten().copied().collect(),
            ),
            Head::LastLogits => HostTensor::float(
                [batch, config.vocab_size],
                DType::F32,
                rows.flat_map(|row| last(row, &config).to_vec()).collect(),
            ),
            Head::LastToken => {
                HostTensor::int([batch], DType::I64, rows.map(|row| likeliest(last(row, &config))).collect())
            }
            Head::AllCandidates(_) | Head::LastCandidates(_) => unreachable!("no case has candidates"),
        };
        let reference = Case { inputs: inputs(&config, batch, head, ids), output };
        let found = interpreted(&program, &params, &reference.inputs);
        assert!(
            distance(&found, &reference.output) <= BOUND,
            "{name}: interpret does not give the reference's output"
        );
        let mut cases = vec![reference];
        for turn in 0..cards {
            // The middle of a shard; the shard changes with each position and run.
            let card = |at: usize| (at % SEQUENCE + at / SEQUENCE + turn) % cards;
            let id = |at: usize| ((2 * card(at) + 1) * config.vocab_size / (2 * cards)) as i64;
            let inputs = inputs(&config, batch, head, (0..batch * SEQUENCE).map(id).collect());
            let output = interpreted(&program, &params, &inputs);
            cases.push(Case { inputs, output });
        }
        if head == Head::LastToken {
            // Each card must hold the most likely token once.
            let card = |token: &i64| {
                let holds = |card: &usize| {
                    let part = part(config.vocab_size, cards, *card, Remainder::Balanced).unwrap();
                    part.contains(&usize::try_from(*token).unwrap())
                };
                (0..cards).find(holds).unwrap()
            };
            let mut seen: BTreeSet<usize> =
                cases.iter().flat_map(|case| case.output.ints()).map(card).collect();
            for turn in 0.. {
                if seen.len() == cards {
                    break;
                }
                assert!(turn < 500, "{name}: no likeliest token on some of {cards} cards, only on {seen:?}");
                let id = |at: usize| ((at * 7919 + turn * 104_729) % config.vocab_size) as i64;
                let inputs = inputs(&config, batch, head, (0..batch * SEQUENCE).map(id).collect());
                let output = interpreted(&program, &params, &inputs);
                let new: BTreeSet<usize> = output.ints().iter().map(card).collect();
                if !new.is_subset(&seen) {
                    seen.extend(new);
                    cases.push(Case { inputs, output });
                }
            }
        }
        Self { name, config, program, params, cases }
    }
}

/// Largest error of an f32 logit.
pub(crate) const BOUND: f32 = 1e-4;

/// Returns the largest difference: infinity for different integers or NaN.
pub(crate) fn distance(found: &HostTensor, expected: &HostTensor) -> f32 {
    if found.shape != expected.shape || found.ints() != expected.ints() {
        return f32::INFINITY;
    }
    let errors = found.floats().iter().zip(expected.floats()).map(|(a, b)| (a - b).abs());
    errors.fold(0.0, |most: f32, error| if error.is_nan() { f32::INFINITY } else { most.max(error) })
}

fn last<'a>(row: &'a [f32], config: &ModelConfig) -> &'a [f32] {
    &row[row.len() - config.vocab_size..]
}

fn likeliest(logits: &[f32]) -> i64 {
    let largest = logits.iter().copied().fold(f32::MIN, f32::max);
    logits.iter().position(|logit| *logit == largest).map_or(-1, |at| at as i64)
}

fn params(program: &Program, checkpoint: &Checkpoint) -> Tensors {
    let mut params = Tensors::new();
    for id in program.with_role(Role::Param) {
        let value = &program.values[id];
        let source = value.source.as_ref().unwrap();
        let mut bytes = vec![0; value.shape.elems() * 4];
        let ranges: Vec<_> = value.shape.iter().map(|size| 0..*size).collect();
        checkpoint.read_param(source, &value.shape, &ranges, DType::F32, &mut bytes).unwrap();
        params.insert(value.name.clone(), HostTensor::from_bytes(value.shape.clone(), DType::F32, &bytes));
    }
    params
}

fn inputs(config: &ModelConfig, batch: usize, head: Head, ids: Vec<i64>) -> Tensors {
    let positions: Vec<usize> = (0..batch * SEQUENCE).map(|at| at % SEQUENCE).collect();
    let (cos, sin) = config.rope.cos_sin(config.head_dim, &positions, SEQUENCE);
    let rotary = [batch, SEQUENCE, config.head_dim];
    let mut inputs = Tensors::from([
        (input::IDS.to_owned(), HostTensor::int([batch, SEQUENCE], DType::I64, ids)),
        (input::COS.to_owned(), HostTensor::float(rotary, DType::F32, cos)),
        (input::SIN.to_owned(), HostTensor::float(rotary, DType::F32, sin)),
    ]);
    if let Some(logn) = &config.logn {
        let factors = HostTensor::float([batch, SEQUENCE, 1, 1, 1], DType::F32, logn.scale(&positions));
        inputs.insert(input::LOGN.to_owned(), factors);
    }
    if !head.is_of_all() {
        inputs.insert(
            input::LAST.to_owned(),
            HostTensor::int([batch], DType::I64, vec![SEQUENCE as i64 - 1; batch]),
        );
    }
    let run = RunShape::new(batch, SEQUENCE, CACHE);
    let places = cache_inputs(run, &vec![0..SEQUENCE; batch]);
    inputs.extend(places.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)));
    inputs
}

/// Computes the only output on the host.
fn interpreted(program: &Program, params: &Tensors, inputs: &Tensors) -> HostTensor {
    let mut values = interpret(program, |_, value| match value.role {
        Role::Param => params[&value.name].clone(),
        Role::Input => inputs[&value.name].clone(),
        Role::State | Role::Result => HostTensor::zeros(value.shape.clone(), value.dtype),
    });
    values.swap_remove(program.outputs[0].1.index())
}
