//! The same program on one card and on many, compared value by value; and with a reference, if there is one.
//!
//! Input → output: a model, a number of cards and perhaps the tensors `input_ids`, `logits`, `greedy_prompt` and
//! `greedy_ids` of another implementation → [`Verification`]: the first value that differs, if any, and the largest
//! error of the logits.
//!
//! The bound of a value. Splitting changes the order of sums only. A product that sums `k` terms in f32 is off by about
//! `√k · 2⁻²⁴` of its magnitude in either order (rounding errors of random sign, Higham & Mary 2019, probabilistic
//! error bounds); with 16-bit activations the parts of a split sum are rounded once more, by `u = 2⁻¹¹` (f16) or `2⁻⁸`
//! (bf16). After `n` ops such errors have added up like `√n`. A value may differ by four times that, relative to
//! its largest element, which covers cancellation within a row.
//!
//! With quantised linear layers a row of activations is rounded to steps of 1/127 of its largest element, and a part of a
//! row, on a card of its own, to steps of its own. Each is off by half a step at most, so both are up to one step apart,
//! which comes to `u`; as far as a reference goes, half a step is that of the activations and half that of the weights.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::{DType, Diagnostic, Diagnostics, Id, Precision, Weights};
use crate::collective::parallelize;
use crate::device::Cann;
use crate::exec::{Engine, EngineOptions, Observation};
use crate::placement::{Mesh, Pins, Residual};
use crate::program::models::{Head, RunShape, decoder};
use crate::program::text::op_text;
use crate::program::{HostTensor, Program, Reduce, ValueId};
use crate::schedule::{Plan, schedule};
use crate::weights::{Checkpoint, fill_from};
use crate::world::ProcessGroup;

use super::error::Error;
use super::inputs::{Row, inputs};
use super::model::Model;
use super::request::Request;
use super::session::{Choosing, Session, SessionOptions};

/// How many times the expected size of accumulated rounding errors a difference may be.
const SAFETY: f64 = 4.0;

/// A step of a quantised row, relative to the row's largest element: two roundings of an element, to half a step each, are
/// up to one step apart.
const STEP: f64 = 1.0 / 127.0;

/// Largest error of f32 logits against a reference that this project vouches for.
const REFERENCE_BOUND_F32: f64 = 1e-4;

/// What another implementation computed.
#[derive(Clone, Debug)]
pub struct Reference {
    batch: usize,
    sequence: usize,
    input_ids: Vec<u32>,
    logits: Option<Vec<f32>>,
    greedy: Option<(Vec<u32>, Vec<u32>)>,
}

/// Two numbers that should be alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The value: an op of the program with its name, or `logits`.
    pub place: String,
    /// Index of the element.
    pub index: Vec<usize>,
    /// What one card, or the reference, has there.
    pub expected: f64,
    /// What the cards have.
    pub found: f64,
    /// How far apart they may be.
    pub bound: f64,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// Values that were compared between one card and many.
    pub values: usize,
    /// The first op whose values differ by more than the bound.
    pub first_difference: Option<Difference>,
    /// Where the value nearest to its bound (as a share of it) differs most.
    pub closest: Option<Difference>,
    /// The worst element of the logits against the reference.
    pub logits: Option<Difference>,
    /// Greedy tokens of the reference and of the cards.
    pub greedy: Option<(Vec<u32>, Vec<u32>)>,
}

impl Verification {
    /// Whether everything lies within its bound.
    #[must_use]
    pub fn passed(&self) -> bool {
        let within = |difference: &Difference| (difference.expected - difference.found).abs() <= difference.bound;
        self.first_difference.is_none()
            && self.logits.as_ref().is_none_or(within)
            && self.greedy.as_ref().is_none_or(|(expected, found)| expected == found)
    }
}

impl Reference {
    /// Reads a safetensors file with `input_ids [b,s]`, and perhaps `logits [b,s,v]`, `greedy_prompt [1,p]` and
    /// `greedy_ids [1,n]`.
    ///
    /// # Errors
    /// Everything in the file that does not fit the model.
    pub fn open(path: &Path, vocab_size: usize) -> Result<Self, Error> {
        let file = Checkpoint::open_file(path)?;
        let place = |name: &str| format!("{}: {name}", path.display());
        let mut problems = Diagnostics::new();
        let ids = |name: &str, problems: &mut Diagnostics| -> Result<(Vec<usize>, Vec<u32>), Error> {
            let (shape, ids) = file.read_i64(name)?;
            if shape.rank() != 2 {
                problems
                    .push(Diagnostic::new(place(name), "has another rank").expected("[batch, sequence]").found(&shape));
            }
            let checked = ids.iter().map(|id| u32::try_from(*id).ok().filter(|id| (*id as usize) < vocab_size));
            let Some(checked) = checked.collect::<Option<Vec<u32>>>() else {
                let problem = Diagnostic::new(place(name), "has an id outside the vocabulary");
                problems
                    .push(problem.expected(format!("0 to {}", vocab_size.saturating_sub(1))).found(format!("{ids:?}")));
                return Ok((shape.to_vec(), Vec::new()));
            };
            Ok((shape.to_vec(), checked))
        };
        let (shape, input_ids) = ids("input_ids", &mut problems)?;
        let (batch, sequence) = (shape.first().copied().unwrap_or(0), shape.get(1).copied().unwrap_or(0));
        let logits = match file.tensor("logits") {
            None => None,
            Some(_) => {
                let (shape, logits) = file.read_f32("logits")?;
                if shape.sizes() != [batch, sequence, vocab_size] {
                    let problem = Diagnostic::new(place("logits"), "has another shape");
                    problems.push(problem.expected(format!("[{batch},{sequence},{vocab_size}]")).found(&shape));
                }
                Some(logits)
            }
        };
        let greedy = match (file.tensor("greedy_prompt"), file.tensor("greedy_ids")) {
            (Some(_), Some(_)) => Some((ids("greedy_prompt", &mut problems)?.1, ids("greedy_ids", &mut problems)?.1)),
            _ => None,
        };
        Ok(problems.into_result(Self { batch, sequence, input_ids, logits, greedy })?)
    }

    /// Drops the greedy tokens: rounded activations may choose another one where two are nearly alike.
    pub fn forget_greedy(&mut self) {
        self.greedy = None;
    }

    /// Ids to run where there is no reference: 16 tokens spread over the vocabulary.
    #[must_use]
    pub fn without(vocab_size: usize) -> Self {
        // Steps of the golden ratio visit the whole range evenly.
        let id = |i: u64| ((i * 0x9E37_79B9) % vocab_size.max(1) as u64) as u32;
        Self { batch: 1, sequence: 16, input_ids: (1..=16).map(id).collect(), logits: None, greedy: None }
    }
}

/// Compares a model on `cards` cards with itself on one, and with a reference.
///
/// # Errors
/// Options that do not fit the model, and the failure of a card.
pub fn verify(
    cann: &Arc<Cann>,
    model: &Model,
    cards: usize,
    precision: impl Into<Precision>,
    residual: Residual,
    reference: &Reference,
) -> Result<Verification, Error> {
    let found = verify_with(cann, model, cards, precision, residual, reference, &EngineOptions::default())?;
    // This process is the first of one.
    found.ok_or_else(|| Diagnostics::from(Diagnostic::new("verify", "the first process has no outcome")).into())
}

/// As [`verify`], with the processes of a world of several. The first computes on one card and has the outcome; the others
/// get none.
///
/// # Errors
/// As for [`verify`]; and the failure of another process.
pub fn verify_with(
    cann: &Arc<Cann>,
    model: &Model,
    cards: usize,
    precision: impl Into<Precision>,
    residual: Residual,
    reference: &Reference,
    engine_options: &EngineOptions,
) -> Result<Option<Verification>, Error> {
    let precision = precision.into();
    let config = &model.config;
    let dtype = precision.activations;
    let Reference { batch, sequence, input_ids, .. } = reference;
    if *sequence > config.max_positions || *sequence == 0 || *batch == 0 {
        let problem = Diagnostic::new("input_ids", "do not fit the model's context");
        let found = format!("[{batch},{sequence}]");
        return Err(
            Diagnostics::from(problem.expected(format!("1 to {} tokens", config.max_positions)).found(found)).into()
        );
    }
    let run = RunShape { batch: *batch, sequence: *sequence, cache_length: *sequence };
    let program = decoder(config, run, precision, Head::AllLogits)?;
    let rows: Vec<Row<'_>> =
        input_ids.chunks(*sequence).map(|ids| Row { ids, start: 0, prompt_length: ids.len() }).collect();
    let group = &engine_options.group;
    let on = |cards: usize, options: &EngineOptions| -> Result<(BTreeMap<ValueId, HostTensor>, HostTensor), Error> {
        let mesh = Mesh::tensor_parallel(cards, config.kv_heads, config.heads_per_kv_head())
            .map_err(|error| Diagnostics::from(Diagnostic::new("cards", error.to_string())))?;
        let lowered = parallelize(&program, &mesh, &Pins::auto(residual))?.lowered;
        let mut engine = Engine::start_with(cann, vec![schedule(&lowered)?], options)?;
        engine.load(|shards| fill_from(&model.checkpoint, shards, &|_| ()))?;
        let mut values = Values::new(&program);
        let plans = engine.plans(0).to_vec();
        let inputs = inputs(config, run, dtype, Head::AllLogits, &rows);
        let mut seen = Vec::new();
        let outputs = engine.run_observed(0, inputs, |observation| {
            if options.group.size() == 1 {
                values.add(&plans, &observation);
            } else {
                put(&mut seen, &observation);
            }
        })?;
        if options.group.size() > 1 {
            let all = options.group.exchange("the values", seen).map_err(crate::exec::Error::from)?;
            for (rank, mut bytes) in all.iter().map(Vec::as_slice).enumerate() {
                while let Some(observation) = take(&mut bytes, rank) {
                    values.add(&plans, &observation);
                }
            }
        }
        let bytes = outputs.into_iter().next().map(|(_, bytes)| bytes).unwrap_or_default();
        Ok((values.whole, HostTensor::from_bytes([*batch, *sequence, config.vocab_size], dtype, &bytes)))
    };
    let alone = EngineOptions { group: Arc::new(ProcessGroup::alone()), ..engine_options.clone() };
    let one =
        group.is_first().then(|| on(1, &alone)).transpose().inspect_err(|error| group.fail(&error.to_string()))?;
    let (many, logits) = on(cards, engine_options)?;
    let mut found = Verification { values: 0, first_difference: None, closest: None, logits: None, greedy: None };
    if let Some((one, _)) = &one {
        compare(&program, one, &many, precision, &mut found);
    }
    if let Some(expected) = &reference.logits {
        let magnitude = expected.iter().fold(0.0_f64, |largest, x| largest.max(f64::from(x.abs())));
        let bound = match dtype {
            DType::F32 => REFERENCE_BOUND_F32,
            _ => error_bound(&program, precision, program.ops.len()) * magnitude,
        };
        found.logits = worst("logits", &logits, expected, bound);
    }
    if let Some((prompt, expected)) = &reference.greedy {
        let options = SessionOptions {
            cards,
            precision,
            residual,
            batch: 1,
            longest_prompt: prompt.len(),
            context: prompt.len() + expected.len(),
            choosing: Choosing::Greedy,
        };
        let mut session = Session::builder(cann, model).options(options).engine(engine_options.clone()).start()?;
        let request = Request { stop_ids: Some(Vec::new()), ..Request::new(prompt.clone()) };
        let generation = session.generate(&[request], &mut |_| ControlFlow::Continue(()))?;
        found.greedy = generation.sequences.into_iter().next().map(|sequence| (expected.clone(), sequence.ids));
    }
    Ok(group.is_first().then_some(found))
}

/// Appends a value to what a process sends to the others.
fn put(to: &mut Vec<u8>, observation: &Observation) {
    to.extend((observation.tap as u64).to_le_bytes());
    to.extend((observation.bytes.len() as u64).to_le_bytes());
    to.extend(&observation.bytes);
}

/// The next value of what a rank's process sent.
fn take(from: &mut &[u8], rank: usize) -> Option<Observation> {
    let (tap, rest) = from.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let (bytes, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    *from = rest;
    Some(Observation { rank, tap: usize::try_from(u64::from_le_bytes(*tap)).ok()?, bytes: bytes.to_vec() })
}

/// Whole values, put together from what each rank holds.
struct Values {
    whole: BTreeMap<ValueId, HostTensor>,
    values: usize,
    shapes: Vec<(crate::base::Shape, DType)>,
}

impl Values {
    fn new(program: &Program) -> Self {
        let shapes = program.values.values().iter().map(|value| (value.shape.clone(), value.dtype)).collect();
        Self { whole: BTreeMap::new(), values: program.values.len(), shapes }
    }

    fn add(&mut self, plans: &[Arc<Plan>], observation: &Observation) {
        let tap = &plans[observation.rank].taps[observation.tap];
        // Values beyond the logical program's are shards on their way.
        if tap.value.index() >= self.values || !tap.is_first_replica {
            return;
        }
        let (shape, dtype) = &self.shapes[tap.value.index()];
        let local: crate::base::Shape = tap.ranges.iter().map(std::ops::Range::len).collect();
        let part = HostTensor::from_bytes(local, *dtype, &observation.bytes);
        let whole = self.whole.entry(tap.value).or_insert_with(|| HostTensor {
            shape: shape.clone(),
            dtype: *dtype,
            data: start(*dtype, tap.partial, shape.elems()),
        });
        whole.combine(&tap.ranges, &part, tap.partial);
    }
}

fn start(dtype: DType, partial: Option<Reduce>, elems: usize) -> crate::program::interpret::HostData {
    use crate::program::interpret::HostData;
    match (dtype.is_float(), partial) {
        (true, Some(Reduce::Max)) => HostData::Float(vec![f32::NEG_INFINITY; elems]),
        (true, Some(Reduce::Min)) => HostData::Float(vec![f32::INFINITY; elems]),
        (true, _) => HostData::Float(vec![0.0; elems]),
        (false, Some(Reduce::Max)) => HostData::Int(vec![i64::MIN; elems]),
        (false, Some(Reduce::Min)) => HostData::Int(vec![i64::MAX; elems]),
        (false, _) => HostData::Int(vec![0; elems]),
    }
}

/// The largest relative error that a value of the `ops`-th op may have; see the module's text.
fn error_bound(program: &Program, precision: Precision, ops: usize) -> f64 {
    let widest = program.values.values().iter().filter_map(|value| value.shape.last()).max().copied().unwrap_or(1);
    let accumulated = (widest as f64).sqrt() * 2.0_f64.powi(-24);
    let rounded = match precision.activations {
        DType::F16 => 2.0_f64.powi(-11),
        DType::BF16 => 2.0_f64.powi(-8),
        DType::F32 | DType::I32 | DType::I64 | DType::I8 | DType::Bool => 0.0,
    };
    let quantised = if precision.weights == Weights::W8A8 { STEP } else { 0.0 };
    SAFETY * (accumulated + rounded + quantised) * (ops as f64).sqrt()
}

fn compare(
    program: &Program,
    one: &BTreeMap<ValueId, HostTensor>,
    many: &BTreeMap<ValueId, HostTensor>,
    precision: Precision,
    found: &mut Verification,
) {
    for (index, (_, op)) in program.ops.iter().enumerate() {
        let (Some(expected), Some(tensor)) = (one.get(&op.result), many.get(&op.result)) else { continue };
        found.values += 1;
        let magnitude = expected.floats().iter().fold(0.0_f64, |largest, x| largest.max(f64::from(x.abs())));
        let bound = error_bound(program, precision, index + 1) * magnitude;
        let Some(difference) = worst(&op_text(program, op), tensor, expected.floats(), bound) else { continue };
        let share = |d: &Difference| (d.expected - d.found).abs() / d.bound.max(f64::MIN_POSITIVE);
        // NaN is no share and fails the comparison, as it must.
        if found.first_difference.is_none()
            && !matches!(
                share(&difference).partial_cmp(&1.0),
                Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
            )
        {
            found.first_difference = Some(difference.clone());
        }
        if found.closest.as_ref().is_none_or(|closest| share(&difference) > share(closest)) {
            found.closest = Some(difference);
        }
    }
}

/// The element that differs most; NaN differs most of all.
fn worst(place: &str, tensor: &HostTensor, expected: &[f32], bound: f64) -> Option<Difference> {
    let error = |(expected, found): (&f32, &f32)| {
        let error = (f64::from(*expected) - f64::from(*found)).abs();
        if error.is_nan() { f64::INFINITY } else { error }
    };
    let errors = expected.iter().zip(tensor.floats()).map(error).enumerate();
    let (at, _) = errors.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let strides = tensor.shape.strides();
    let index = strides.iter().zip(tensor.shape.iter()).map(|(stride, size)| at / stride % size).collect();
    let (expected, found) = (f64::from(expected[at]), f64::from(tensor.floats()[at]));
    Some(Difference { place: place.to_owned(), index, expected, found, bound })
}
