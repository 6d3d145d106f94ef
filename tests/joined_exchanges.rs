//! Products fused with exchanges: bits of separate calls in any order of ranks, eager and replayed;
//! fused pairs and reasons against fusion; refusals and error messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use ascend_tp::base::{DType, Kernels};
use ascend_tp::emulator::{Calls, Config, Emulator, Fault, Mode};
use ascend_tp::exec::{EngineOptions, Launching, NamedTensors, ProgramId};
use ascend_tp::placement::Placed;
use ascend_tp::program::{Builder, HostTensor, Kind, Program};
use ascend_tp::schedule::plan::{Action, Collective, Launched, Plan, Region};
use ascend_tp::schedule::{Exchanges, Joining, Scheduling, StepOrder, Target, schedule, text, verify};
use ascend_tp::{Cann, Mesh, Pins, parallelize};

use crate::common::cases::first_cases;
use crate::common::{Tensors, cann, start_with};

#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    hidden: usize,
    inner: usize,
}

const LARGE: Sizes = Sizes { rows: 512, hidden: 2048, inner: 4096 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Whole,
    Cut,
}

/// Two products, the first sharded by outputs, the second by its contraction, and a sum with the
/// input.
fn program(of: Sizes, dtype: DType) -> Program {
    let mut build = Builder::new("two products");
    let x = build.input("x", [of.rows, of.hidden], dtype);
    let up = build.param("layers.0.up", [of.inner, of.hidden], dtype);
    let down = build.param("layers.0.down", [of.hidden, of.inner], dtype);
    let made = build.matmul("sh,fh->sf", x, up);
    let y = build.matmul("sf,hf->sh", made, down);
    build.name(y, "layers.0.out");
    // With sharded rows, the output must be gathered, but not the product.
    let sum = build.op(Kind::Add, &[y, x]);
    build.output("sum", sum);
    build.finish().unwrap()
}

fn lowered(program: &Program, cards: usize, rows: Rows) -> Placed {
    let dims: &[(usize, &str)] = if rows == Rows::Cut { &[(0, "tp")] } else { &[] };
    let pins = Pins::default().split_axis("layers.0.up", 0).split_axis("layers.0.down", 1);
    let pins = pins.value("x", dims).value("layers.0.out", dims);
    parallelize(program, &Mesh::new(&[("tp", cards)]).unwrap(), &pins).unwrap().lowered
}

fn plans(of: Sizes, dtype: DType, cards: usize, rows: Rows, exchanges: Exchanges) -> Vec<Plan> {
    let program = program(of, dtype);
    schedule(
        &lowered(&program, cards, rows),
        Scheduling {
            joining: Joining::SideBySide,
            target: Target { kernels: Kernels::NONE, exchanges },
            ..Scheduling::default()
        },
    )
    .unwrap()
}

fn joined(plan: &Plan) -> Vec<&Collective> {
    let exchanges = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Exchange(of) => Some(&**of),
        _ => None,
    });
    exchanges.filter(|exchange| exchange.product.is_some()).collect()
}

fn names(plan: &Plan) -> Vec<&'static str> {
    joined(plan).into_iter().map(Collective::name).collect()
}

/// Returns the nonzero elements of a weight row: few, so that all sums are 8-bit integers.
fn weight(row: usize, width: usize) -> [(usize, i64); 3] {
    [0, 1, 2].map(|at| ((row * 31 + at * 677) % width, [1, -1, 2][(row + at) % 3]))
}

fn number(row: usize, column: usize) -> i64 {
    ((row * 5 + column * 3) % 7) as i64 - 3
}

fn dense(rows: usize, width: usize) -> HostTensor {
    let mut data = vec![0.0; rows * width];
    for row in 0..rows {
        weight(row, width).into_iter().for_each(|(at, number)| data[row * width + at] += number as f32);
    }
    HostTensor::float([rows, width], DType::BF16, data)
}

fn params(of: Sizes) -> Tensors {
    let named = |name: &str, tensor| (name.to_owned(), tensor);
    [named("layers.0.up", dense(of.inner, of.hidden)), named("layers.0.down", dense(of.hidden, of.inner))]
        .into()
}

fn expected(of: Sizes) -> Vec<f32> {
    let mut y = Vec::with_capacity(of.rows * of.hidden);
    for row in 0..of.rows {
        let made: Vec<i64> = (0..of.inner)
            .map(|at| weight(at, of.hidden).into_iter().map(|(from, by)| number(row, from) * by).sum())
            .collect();
        y.extend((0..of.hidden).map(|at| {
            let product: i64 = weight(at, of.inner).into_iter().map(|(from, by)| made[from] * by).sum();
            (product + number(row, at)) as f32
        }));
    }
    y
}

/// Returns the outputs of three runs. With capturing, the last one is a replay.
fn run(cann: &Arc<Cann>, plans: Vec<Plan>, of: Sizes, launching: Launching) -> Vec<Vec<u8>> {
    let options = EngineOptions { launching, ..EngineOptions::default() };
    let mut engine = start_with(cann, plans, &params(of), &options).unwrap();
    let x = (0..of.rows).flat_map(|row| (0..of.hidden).map(move |at| number(row, at) as f32)).collect();
    let inputs = NamedTensors::new().with("x", HostTensor::float([of.rows, of.hidden], DType::BF16, x));
    let mut once = || engine.run(ProgramId(0), &inputs).unwrap().only().unwrap().to_bytes();
    [once(), once(), once()].into()
}

const CASES: [(Rows, &[&str]); 2] = [
    (Rows::Whole, &["aclnnMatmulAllReduce"]),
    (Rows::Cut, &["aclnnAllGatherMatmul", "aclnnMatmulReduceScatter"]),
];

#[test]
fn one_call_has_the_bits_of_two_and_the_sums_of_whole_numbers() {
    for &cards in first_cases(&[2, 4], 1) {
        let (cann, of) = (cann(cards), Sizes { inner: LARGE.inner * cards / 2, ..LARGE });
        let wanted = HostTensor::float([of.rows, of.hidden], DType::BF16, expected(of)).to_bytes();
        for (rows, calls) in CASES {
            let [apart, one] = [Exchanges::Apart, Exchanges::WithProducts]
                .map(|exchanges| plans(of, DType::BF16, cards, rows, exchanges));
            for plan in &one {
                assert_eq!(names(plan), calls, "{rows:?} of {cards} cards");
                assert_eq!(text::parse(&plan.to_string()).unwrap(), *plan);
            }
            assert!(apart.iter().all(|plan| joined(plan).is_empty()));
            assert!(one.iter().zip(&apart).all(|(one, apart)| {
                one.region_bytes(Region::Arena) >= apart.region_bytes(Region::Arena)
            }));
            let two = run(&cann, apart, of, Launching::Eager);
            assert!(two.iter().all(|found| *found == wanted), "{rows:?} of {cards} cards, apart");
            for launching in [Launching::Eager, Launching::Captured] {
                assert!(
                    run(&cann, one.clone(), of, launching) == two,
                    "{rows:?} of {cards} cards, {launching:?}"
                );
            }
        }
    }
}

#[test]
fn strict_mode_has_nothing_to_report_in_any_order() {
    let wanted = HostTensor::float([LARGE.rows, LARGE.hidden], DType::BF16, expected(LARGE)).to_bytes();
    for (rows, calls) in CASES {
        let plans = plans(LARGE, DType::BF16, 2, rows, Exchanges::WithProducts);
        assert_eq!(names(&plans[0]), calls);
        for seed in 0..2 {
            let config = Config { mode: Mode::Strict { seed }, ..Config::with_cards(2) };
            let emulator = Emulator::new(config).unwrap();
            let cann = Cann::new(emulator.table()).unwrap();
            assert!(run(&cann, plans.clone(), LARGE, Launching::Eager).iter().all(|found| *found == wanted));
            drop(cann);
            let reports: Vec<String> = emulator.reports().iter().map(ToString::to_string).collect();
            assert_eq!(reports, Vec::<String>::new(), "{rows:?}, seed {seed}");
        }
    }
}

#[test]
fn a_step_of_training_joins_them_in_any_order_with_the_same_bits() {
    let (cann, of) = (cann(2), LARGE);
    let wanted = HostTensor::float([of.rows, of.hidden], DType::BF16, expected(of)).to_bytes();
    for (rows, calls) in CASES {
        let lowered = lowered(&program(of, DType::BF16), 2, rows);
        for order in [StepOrder::Program, StepOrder::Overlapped] {
            let [apart, one] = [Exchanges::Apart, Exchanges::WithProducts].map(|exchanges| {
                schedule(
                    &lowered,
                    Scheduling {
                        joining: Joining::InPlace,
                        order,
                        target: Target { kernels: Kernels::NONE, exchanges },
                        ..Scheduling::default()
                    },
                )
                .unwrap()
            });
            assert_eq!((names(&apart[0]), names(&one[0])), (vec![], calls.to_vec()), "{rows:?}, {order:?}");
            if order == StepOrder::Overlapped {
                let found = run(&cann, one, of, Launching::Captured);
                assert!(found.iter().all(|found| *found == wanted), "{rows:?}");
            }
        }
    }
}

fn beside(of: Sizes) -> Placed {
    let mut build = Builder::new("two products and an operator");
    let [x, z] = ["x", "z"].map(|name| build.input(name, [of.rows, of.hidden], DType::BF16));
    let up = build.param("layers.0.up", [of.inner, of.hidden], DType::BF16);
    let down = build.param("layers.0.down", [of.hidden, of.inner], DType::BF16);
    let made = build.matmul("sh,fh->sf", x, up);
    let y = build.matmul("sf,hf->sh", made, down);
    build.name(y, "layers.0.out");
    let w = build.op(Kind::Silu, &[z]);
    build.output("y", y);
    build.output("w", w);
    lowered(&build.finish().unwrap(), 2, Rows::Whole)
}

#[test]
fn no_operator_runs_beside_a_call_that_multiplies_and_exchanges() {
    let lowered = beside(LARGE);
    let sound = schedule(
        &lowered,
        Scheduling {
            joining: Joining::InPlace,
            order: StepOrder::Overlapped,
            target: Target { kernels: Kernels::NONE, exchanges: Exchanges::WithProducts },
            ..Scheduling::default()
        },
    )
    .unwrap();
    assert_eq!(names(&sound[0]), ["aclnnMatmulAllReduce"]);
    let mut plans = sound;
    for plan in &mut plans {
        plan.steps.retain(|step| !matches!(step.action, Action::Wait(_)));
    }
    let problems = verify(&plans).unwrap_err().to_string();
    assert!(problems.contains("needs cores that a step of another stream uses"), "{problems}");
}

fn reasons(plan: &Plan) -> BTreeSet<String> {
    let reason =
        |launch: &Launched| if let Launched::Apart(reason) = launch { Some(reason.clone()) } else { None };
    plan.notes.values().iter().filter_map(|note| reason(&note.launch)).collect()
}

#[test]
fn what_stays_apart_says_why() {
    let found = |of: Sizes, dtype, cards, rows| {
        let plans = plans(of, dtype, cards, rows, Exchanges::WithProducts);
        assert_eq!(names(&plans[0]), [""; 0]);
        assert!(plans.iter().all(|plan| reasons(plan) == reasons(&plans[0])));
        reasons(&plans[0])
    };
    let says = |reasons: &BTreeSet<String>, text: &str| {
        assert!(
            !reasons.is_empty() && reasons.iter().all(|reason| reason.contains(text)),
            "{reasons:?}, not {text}"
        );
    };
    for rows in [Rows::Whole, Rows::Cut] {
        says(&found(Sizes { rows: 8, ..LARGE }, DType::BF16, 2, rows), "two parts");
        says(&found(LARGE, DType::F32, 2, rows), "f16 or bf16");
        says(&found(LARGE, DType::BF16, 3, rows), "2, 4 or 8 cards of one server, these are 3");
        says(&found(LARGE, DType::BF16, 16, rows), "2, 4 or 8 cards of one server, these are 16");
    }
    says(&found(Sizes { rows: 511, ..LARGE }, DType::BF16, 2, Rows::Cut), "different numbers of rows");
    let narrow = Sizes { rows: 65_536, hidden: 128, inner: 256 };
    says(&found(narrow, DType::BF16, 2, Rows::Cut), "256 to 65534 elements, these have 128");
}

#[test]
fn a_call_that_is_not_its_exchange_is_refused() {
    let sound = plans(LARGE, DType::BF16, 2, Rows::Whole, Exchanges::WithProducts);
    verify(&sound).unwrap();
    let exchange = |plan: &mut Plan, change: &dyn Fn(&mut Collective)| {
        for step in &mut plan.steps {
            if let Action::Exchange(of) = &mut step.action {
                change(of);
            }
        }
    };
    let refused = |plans: &[Plan], text: &str| {
        let problems = verify(plans).unwrap_err().to_string();
        assert!(problems.contains(text), "{problems}");
    };
    let mut other = sound.clone();
    other[1] = plans(LARGE, DType::BF16, 2, Rows::Whole, Exchanges::Apart).remove(1);
    refused(&other, "differs between ranks");
    let mut other = sound.clone();
    other.iter_mut().for_each(|plan| exchange(plan, &|of| of.recv.offset += 1));
    refused(&other, "is not a call of the exchange");
    let cut = plans(LARGE, DType::BF16, 2, Rows::Cut, Exchanges::WithProducts);
    let mut other = sound;
    for (plan, cut) in other.iter_mut().zip(&cut) {
        let scatter = joined(cut)[1].product.clone();
        exchange(plan, &|of| of.product.clone_from(&scatter));
    }
    refused(&other, "is not a call of the exchange");
}

#[test]
fn a_rank_that_fails_in_such_a_call_is_named_with_its_layer() {
    let emulator = Emulator::new(Config::with_cards(2)).unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    let plans = plans(LARGE, DType::BF16, 2, Rows::Whole, Exchanges::WithProducts);
    let mut engine = start_with(&cann, plans, &params(LARGE), &EngineOptions::default()).unwrap();
    let calls = Calls::nth(1).of("aclnnMatmulAllReduce").on(1);
    let _injected = emulator.inject(Fault::Error { calls, code: 507_015 }).unwrap();
    let inputs = NamedTensors::zeros(&engine.plans(ProgramId(0))[0].inputs);
    let text = engine.run(ProgramId(0), &inputs).unwrap_err().to_string();
    assert!(text.contains("rank 1") && text.contains("layer 0, all_reduce of layers.0.out"), "{text}");
}
