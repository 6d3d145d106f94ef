//! Checks every operator and kernel of the commands on a card against the interpreter.
//!
//! - Input: generation and training programs of small models in each element type. The operators
//!   come from the plans.
//! - Output: for each operator and element type, the largest error divided by the bound.
//! - Invariants: the interpreter computes each op on the card's own operands, so each error belongs
//!   to one op. Integers are compared exactly.
//!
//! The bound of an op with `n` calls, including unexposed ops, is `4 · (√k · 2⁻²⁴ + u) · √n` times
//! the largest magnitude among operands and results, as in `verify` (docs/DEPLOYMENT.md). `k` is
//! the element count of the largest operand, and `u` is one rounding of the type. Integers of a
//! quantised row may differ by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascend_tp::base::{DType, Diagnostics, HostData, Id, Kernels, Precision};
use ascend_tp::compile::compile;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::KernelSource;
use ascend_tp::exec::{self, Engine, EngineOptions, ProgramId};
use ascend_tp::placement::Residual;
use ascend_tp::program::interpret::meaning;
use ascend_tp::program::models::{Head, RunShape, cache_inputs, decoder, input, run_of};
use ascend_tp::program::{Builder, HostTensor, Kind, Op, OpId, Program, Role, Value};
use ascend_tp::schedule::plan::Action;
use ascend_tp::schedule::{Joining, Plan, Scheduling, StepOrder, Target, schedule};
use ascend_tp::train::{self, Layout, Optimizer, Recipe, recipe};
use ascend_tp::{Cann, Mesh, Pins};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::report::ReportGroup;

mod sums;

/// Models that together launch every operator of the model families. A head size of 128 has
/// dedicated operators.
const MODELS: [&str; 3] = [BIASED, CAPPED, NORMED];

/// A model with biases, grouped heads and a separate output head.
const BIASED: &str = r#"{
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 256, "intermediate_size": 96,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 96,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2
}"#;

/// A model with soft caps, GELU, windows, scaled embeddings and a tied head.
const CAPPED: &str = r#"{
    "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "hidden_size": 256, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128, "vocab_size": 96,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4,
    "query_pre_attn_scalar": 128, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2
}"#;

/// A model with norms over all heads.
const NORMED: &str = r#"{
    "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 256, "intermediate_size": 96,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 96,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2
}"#;

const TOKENS: usize = 8;
const CONTEXT: usize = 16;

struct OperatorUse {
    command: &'static str,
    program: Program,
    plan: Plan,
}

fn uses(kernels: Kernels) -> Result<Vec<OperatorUse>, Diagnostics> {
    let mut uses = Vec::new();
    for model in MODELS {
        let config = ModelConfig::from_json(model)?;
        uses.extend(generating(&config, kernels)?);
        uses.extend(training(&config, kernels)?);
    }
    if kernels != Kernels::NONE {
        uses.push(large(kernels)?);
    }
    Ok(uses)
}

/// Builds ops for which `train` launches kernels only at large sizes.
fn large(kernels: Kernels) -> Result<OperatorUse, Diagnostics> {
    let mut build = Builder::new("large");
    let gradient = build.input("gradient", [1 << 20], DType::F32);
    let squares = build.matmul("a,a->", gradient, gradient);
    build.output("squares", squares);
    let logits = build.input("logits", [8, 1 << 13], DType::F32);
    let largest = build.op(Kind::ReduceMax { dim: 1 }, &[logits]);
    let sum = build.op(Kind::SumExp, &[logits, largest]);
    build.output("sum", sum);
    on_one_card("train", &build.finish()?, 1, 1, kernels)
}

fn on_one_card(
    command: &'static str,
    program: &Program,
    kv_heads: usize,
    group: usize,
    kernels: Kernels,
) -> Result<OperatorUse, Diagnostics> {
    let mesh = Mesh::tensor_parallel(1, kv_heads, group)
        .map_err(|error| ascend_tp::base::Diagnostic::new("mesh", error.to_string()))?;
    let mut compiled =
        compile(program, &mesh, &Pins::auto(Residual::Replicate), Target::with_kernels(kernels))?;
    Ok(OperatorUse { command, program: compiled.split.lowered.program, plan: compiled.plans.remove(0) })
}

fn generating(config: &ModelConfig, kernels: Kernels) -> Result<Vec<OperatorUse>, Diagnostics> {
    let mut uses = Vec::new();
    let precisions = [
        ("generate --dtype f32", DType::F32.into()),
        ("generate --dtype f16", DType::F16.into()),
        ("generate --dtype bf16", DType::BF16.into()),
        ("generate --dtype w8a8", Precision::w8a8(DType::BF16)),
    ];
    for (command, precision) in precisions {
        for sequence in [TOKENS, 1] {
            let shape = RunShape::new(1, sequence, CONTEXT);
            let program = decoder(config, shape, precision, Head::LastToken)?;
            uses.push(on_one_card(command, &program, config.kv_heads, config.heads_per_kv_head(), kernels)?);
        }
    }
    Ok(uses)
}

fn training(config: &ModelConfig, kernels: Kernels) -> Result<Vec<OperatorUse>, Diagnostics> {
    let mut uses = Vec::new();
    let sgd = Optimizer::Sgd { momentum: 0.9, weight_decay: 0.01 };
    let recipes = [
        ("train", recipe::TrainingPrecision::F32, Optimizer::default(), false),
        ("train --exact", recipe::TrainingPrecision::F32, Optimizer::default(), true),
        ("train --optimizer sgd", recipe::TrainingPrecision::F32, sgd, false),
        ("train --dtype bf16", recipe::TrainingPrecision::Bf16, Optimizer::default(), false),
        ("train --dtype f16", recipe::TrainingPrecision::F16, Optimizer::default(), false),
    ];
    for (command, precision, optimizer, exact) in recipes {
        let recipe = Recipe {
            steps: 1,
            global_batch: 2,
            seq: TOKENS,
            precision,
            optimizer,
            exact,
            ..Recipe::default()
        };
        for (_, placed) in train::lower(config, &recipe, &Layout::ONE)?.parts {
            let plan = schedule(
                &placed,
                Scheduling {
                    joining: Joining::InPlace,
                    order: StepOrder::Overlapped,
                    target: Target::with_kernels(kernels),
                    ..Scheduling::default()
                },
            )?
            .remove(0);
            uses.push(OperatorUse { command, program: placed.program, plan });
        }
    }
    Ok(uses)
}

/// Returns the commands that need each operator.
pub(super) fn users() -> Result<BTreeMap<&'static str, Vec<&'static str>>, Diagnostics> {
    let mut users: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
    for of in uses(Kernels::NONE)? {
        for (_, name) in calls(&of.plan) {
            let commands = users.entry(name).or_default();
            if !commands.contains(&of.command) {
                commands.push(of.command);
            }
        }
    }
    Ok(users)
}

fn calls(plan: &Plan) -> impl Iterator<Item = (OpId, &'static str)> {
    plan.steps.iter().filter_map(|step| match &step.action {
        Action::Launch(call) => Some((step.op, call.name())),
        Action::Exchange(_) | Action::Record(_) | Action::Wait(_) => None,
    })
}

/// Largest error of an operator in one type.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// Error divided by the bound.
    share: f64,
    ops: usize,
}

pub(super) fn check(cann: &Arc<Cann>) -> ReportGroup {
    check_of(cann, "operators", &KernelSource::None, |name| name.starts_with("aclnn")).0
}

/// Like [`check`], but reports only kernels. Kernels for several cards run on two cards.
pub(super) fn check_kernels(cann: &Arc<Cann>, source: &KernelSource) -> ReportGroup {
    let (mut group, checked) = check_of(cann, "kernels", source, |name| !name.starts_with("aclnn"));
    let of_several = match sums::check(cann, source, &mut group) {
        Ok(names) => names,
        Err(problems) => {
            group.finding("sums", problems.to_string(), "programs that compile", "report this as a bug");
            return group;
        }
    };
    let launched = || checked.iter().chain(&of_several);
    for name in source.kernels().names().filter(|name| !launched().any(|launched| launched.starts_with(name)))
    {
        group.finding(
            name,
            "not launched by any program",
            "a launch",
            "see the lines above; otherwise report this as a bug",
        );
    }
    group
}

/// Returns the report and the names of all launched operators.
fn check_of(
    cann: &Arc<Cann>,
    what: &'static str,
    source: &KernelSource,
    is_told: fn(&str) -> bool,
) -> (ReportGroup, Vec<&'static str>) {
    let mut group = ReportGroup::new(what);
    let mut worst_of_types: BTreeMap<&'static str, BTreeMap<String, Worst>> = BTreeMap::new();
    let uses = match uses(source.kernels()) {
        Ok(uses) => uses,
        Err(problems) => {
            group.finding("programs", problems.to_string(), "programs that compile", "report this as a bug");
            return (group, Vec::new());
        }
    };
    for of in uses.iter().filter(|of| calls(&of.plan).any(|(_, name)| is_told(name))) {
        match run(cann, of, source) {
            Ok(values) => compare(of, values, &mut worst_of_types),
            Err(exec::Error::Refused(problems)) => {
                group.skipped(format!("{what} of {}", of.command), problems.to_string());
            }
            Err(error) => {
                let remedy = "see the card's log (~/ascend/log) for the failed operator";
                group.finding(
                    format!("{what} of {}", of.command),
                    error.to_string(),
                    "a complete run",
                    remedy,
                );
            }
        }
    }
    let launched = worst_of_types.keys().copied().collect();
    for (name, types) in worst_of_types.into_iter().filter(|(name, _)| is_told(name)) {
        let text =
            |(dtype, worst): (&String, &Worst)| format!("{dtype} {:.0} % of the bound", 100.0 * worst.share);
        let seen = types.iter().map(text).collect::<Vec<_>>().join(", ");
        if types.values().all(|worst| worst.share <= 1.0) {
            group.well(name, seen);
        } else {
            let remedy = "do not trust results in the types above 100 %; try another release of CANN, see docs/VERSIONS.md";
            group.finding(name, seen, "at most 100 %", remedy);
        }
    }
    (group, launched)
}

/// Runs a program and returns every value.
fn run(
    cann: &Arc<Cann>,
    of: &OperatorUse,
    kernels: &KernelSource,
) -> Result<Vec<Option<HostTensor>>, exec::Error> {
    let program = &of.program;
    let places = run_of(program).map(|run| cache_inputs(run, &vec![0..run.sequence; run.batch]));
    let given = |value: &Value| {
        let place = places.iter().flatten().find(|(name, _)| *name == value.name);
        place.map_or_else(|| given(value), |(_, place)| place.clone())
    };
    let mut values: Vec<Option<HostTensor>> = program
        .values
        .values()
        .iter()
        .map(|value| (value.role != Role::Result).then(|| given(value)))
        .collect();
    let tensors = |role: Role| {
        program.with_role(role).map(|id| (program.values[id].name.clone(), given(&program.values[id])))
    };
    let options = EngineOptions { kernels: kernels.clone(), ..EngineOptions::default() };
    let mut engine = Engine::start(cann, vec![vec![of.plan.clone()]], &options)?;
    engine.fill(&tensors(Role::Param).chain(tensors(Role::State)).collect())?;
    let _outputs = engine.run_observed(ProgramId(0), &tensors(Role::Input).collect(), |observation| {
        let id = of.plan.taps[observation.tap].value;
        let value = &program.values[id];
        values[id.index()] =
            Some(HostTensor::from_bytes(value.shape.clone(), value.dtype, &observation.bytes));
    })?;
    Ok(values)
}

/// Returns valid data for an input, weight, moment or cache. Ids and positions are 0 or 1. A mask
/// shows every second position. Only weights are negative, because second moments must not be. Both
/// halves of a rotary angle are equal.
fn given(value: &Value) -> HostTensor {
    let elems = value.shape.elems();
    let seed =
        value.name.bytes().fold(17_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = StdRng::seed_from_u64(seed);
    let mut unit = || random.random::<f32>();
    match value.dtype {
        DType::Bool => {
            let row = value.shape.last().copied().unwrap_or(1);
            HostTensor::int(
                value.shape.clone(),
                DType::Bool,
                (0..elems).map(|at| (at % row % 2) as i64).collect(),
            )
        }
        DType::I8 => {
            let data = (0..elems).map(|_| (unit() * 254.0) as i64 - 127).collect();
            HostTensor::int(value.shape.clone(), DType::I8, data)
        }
        DType::I32 | DType::I64 | DType::U8 | DType::F8E4M3 => {
            HostTensor::int(value.shape.clone(), value.dtype, (0..elems).map(|at| (at % 2) as i64).collect())
        }
        DType::F16 | DType::BF16 | DType::F32 => {
            let least = if value.role == Role::Param { 0.5 } else { 0.0 };
            let mut data: Vec<f32> = (0..elems).map(|_| unit() - least).collect();
            if [input::COS, input::SIN, input::LOCAL_COS, input::LOCAL_SIN].contains(&value.name.as_str()) {
                let row = value.shape.last().copied().unwrap_or(2);
                data.chunks_mut(row).for_each(|angles| angles.copy_within(..row / 2, row / 2));
            }
            HostTensor::float(value.shape.clone(), value.dtype, data)
        }
    }
}

/// Calls and ops since the last exposed values. A call that implements several ops hides the values
/// between the ops.
#[derive(Clone, Debug, Default)]
struct HiddenOps {
    /// Calls without a compared result.
    calls: Vec<&'static str>,
    ops: usize,
}

/// Compares each result with its meaning on the card's operands, or on interpreted values for
/// hidden operands.
fn compare(
    of: &OperatorUse,
    mut values: Vec<Option<HostTensor>>,
    worst_of_types: &mut BTreeMap<&'static str, BTreeMap<String, Worst>>,
) {
    let program = &of.program;
    let mut by_op: BTreeMap<usize, Vec<&'static str>> = BTreeMap::new();
    for (op, name) in calls(&of.plan) {
        by_op.entry(op.index()).or_default().push(name);
    }
    let mut hidden: BTreeMap<usize, HiddenOps> = BTreeMap::new();
    for (index, op) in program.ops.values().iter().enumerate() {
        let operands: Vec<&HostTensor> =
            op.operands.iter().filter_map(|id| values[id.index()].as_ref()).collect();
        let mut behind = HiddenOps { calls: by_op.remove(&index).unwrap_or_default(), ops: 0 };
        for operand in op.operands.iter().filter_map(|id| hidden.get(&id.index())) {
            behind.calls.extend(&operand.calls);
            behind.ops += operand.ops;
        }
        // An op is not responsible for NaN or infinity among its operands.
        let is_finite =
            |tensor: &HostTensor| !tensor.dtype.is_float() || tensor.floats().iter().all(|x| x.is_finite());
        if operands.len() < op.operands.len() || !operands.iter().all(|operand| is_finite(operand)) {
            continue;
        }
        let expected = meaning(program, op, &operands);
        let dtype = expected.iter().chain(operands.iter().copied()).map(|tensor| tensor.dtype);
        let dtype = dtype.into_iter().find(|dtype| dtype.is_float()).unwrap_or(DType::I64).to_string();
        let roundings = behind.calls.len() + behind.ops;
        let shares = op.results.iter().zip(&expected).filter_map(|(id, expected)| {
            let found = values[id.index()].as_ref()?;
            Some(distance(expected, found) / bound(op, &operands, expected, roundings))
        });
        let shares: Vec<f64> = shares.collect();
        for name in behind.calls.iter().filter(|_| !shares.is_empty()) {
            let worst = worst_of_types.entry(name).or_default().entry(dtype.clone()).or_default();
            *worst = Worst { share: shares.iter().copied().fold(worst.share, f64::max), ops: worst.ops + 1 };
        }
        behind.ops += 1;
        for (id, expected) in op.results.iter().zip(expected) {
            if values[id.index()].is_none() {
                values[id.index()] = Some(expected);
                hidden.insert(id.index(), behind.clone());
            }
        }
    }
}

/// Returns the largest difference. NaN and different shapes count as infinity.
fn distance(expected: &HostTensor, found: &HostTensor) -> f64 {
    let largest = |differences: &mut dyn Iterator<Item = f64>| {
        differences.fold(0.0, |most: f64, next| if next.is_nan() { f64::INFINITY } else { most.max(next) })
    };
    match (&expected.data, &found.data) {
        (HostData::Float(a), HostData::Float(b)) if a.len() == b.len() => {
            largest(&mut a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { f64::from(a - b).abs() }))
        }
        (HostData::Int(a), HostData::Int(b)) if a.len() == b.len() => {
            largest(&mut a.iter().zip(b).map(|(a, b)| a.abs_diff(*b) as f64))
        }
        _ => f64::INFINITY,
    }
}

/// Returns the error bound of an op; see the module header. A quantised value at a rounding edge
/// may differ by one. Other integers must be equal.
fn bound(op: &Op, operands: &[&HostTensor], result: &HostTensor, calls: usize) -> f64 {
    if matches!(op.kind, Kind::Quantise { .. }) {
        return 1.0;
    }
    if !result.dtype.is_float() {
        return f64::MIN_POSITIVE;
    }
    let all = || operands.iter().copied().chain([result]).filter(|tensor| tensor.dtype.is_float());
    let magnitude = all()
        .flat_map(HostTensor::floats)
        .filter(|x| x.is_finite())
        .fold(0.0, |most: f32, x| most.max(x.abs()));
    let unit = all().map(|tensor| match tensor.dtype {
        DType::F16 => 2.0_f64.powi(-11),
        DType::BF16 => 2.0_f64.powi(-8),
        _ => 0.0,
    });
    let summed = operands.iter().map(|tensor| tensor.shape.elems()).max().unwrap_or(1) as f64;
    let error = summed.sqrt() * 2.0_f64.powi(-24) + unit.fold(0.0, f64::max);
    4.0 * error * (calls.max(1) as f64).sqrt() * f64::from(magnitude).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use ascend_tp::emulator::{Config, Emulator};

    use super::*;
    use crate::doctor::report::Verdict;

    #[test]
    fn every_operator_that_plans_call_is_within_its_bound_on_the_emulator() {
        let emulator = Emulator::new(Config::with_cards(1)).unwrap();
        let group = check(&Cann::new(emulator.table()).unwrap());
        let bad: Vec<_> = group.lines.iter().filter(|line| line.verdict != Verdict::Well).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        let users = users().unwrap();
        assert_eq!(group.lines.len(), users.len());
        assert!(users.len() > 30, "{users:?}");
        assert_eq!(users["aclnnQuantMatmulV4"], ["generate --dtype w8a8"]);
        for of_families in ["aclnnRsqrt", "aclnnTanh", "aclnnGelu"] {
            assert!(users[of_families].contains(&"generate --dtype bf16"), "{of_families}: {users:?}");
        }
        assert!(users["aclnnGeluBackward"].contains(&"train"), "{users:?}");
        assert_eq!(
            users["aclnnApplyAdamWV2"],
            ["train", "train --exact", "train --dtype bf16", "train --dtype f16"]
        );
    }

    #[test]
    fn a_wrong_operator_is_named() {
        let mut table = ascend_tp_sys::Table::clone(&Emulator::new(Config::with_cards(1)).unwrap().table());
        // Replaces SiLU by the exponential, which has the same prototype.
        table.aclnnSiluGetWorkspaceSize = table.aclnnExpGetWorkspaceSize;
        table.aclnnSilu = table.aclnnExp;
        let group = check(&Cann::new(Arc::new(table)).unwrap());
        let bad: Vec<&str> = group
            .lines
            .iter()
            .filter(|l| l.verdict == Verdict::Finding)
            .map(|l| l.subject.as_str())
            .collect();
        assert!(bad.contains(&"aclnnSilu") && !bad.contains(&"aclnnMatmul"), "{bad:?}");
    }
}
