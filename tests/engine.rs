//! Error handling of the engine: messages with place and reason, and clean ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use ascend_tp::base::DType;
use ascend_tp::call::{Call, View};
use ascend_tp::compile::Deployment;
use ascend_tp::device::{Buffer, Communicator, Device};
use ascend_tp::emulator::{CannVersion, Config};
use ascend_tp::exec::{
    Clock, Engine, EngineOptions, Error, Launching, Marks, NamedTensors, Part, ProgramId, Timed,
};
use ascend_tp::generate::{self, Session};
use ascend_tp::program::models::Head;
use ascend_tp::program::{Builder, HostTensor, Kind};
use ascend_tp::schedule::plan::{Action, Region};
use ascend_tp::schedule::{Plan, Scheduling, schedule};
use ascend_tp::world::{MeetingPlace, ProcessGroup, World};
use ascend_tp::{Cann, Mesh, Pins, parallelize};
use ascend_tp_sys::Table;

use crate::common::{machine, shipped};

/// A table lookup, then a product that is summed over the ranks.
pub(crate) fn plans(cards: usize) -> Vec<Plan> {
    plans_of(cards, 3)
}

fn plans_of(cards: usize, ids: usize) -> Vec<Plan> {
    let mut build = Builder::new("lookup");
    let ids = build.input("ids", [ids], DType::I64);
    let table = build.param("table", [8, 4], DType::F32);
    let x = build.op(Kind::Embed, &[ids, table]);
    let w = build.param("layers.0.w", [4, 4], DType::F32);
    let y = build.matmul("sh,oh->so", x, w);
    build.output("y", y);
    let program = build.finish().unwrap();
    let pins = Pins::default().replicate("table").split_axis("layers.0.w", 1);
    let mesh = Mesh::new(&[("tp", cards)]).unwrap();
    schedule(&parallelize(&program, &mesh, &pins).unwrap().lowered, Scheduling::default()).unwrap()
}

fn elems(part: &Part<'_>) -> usize {
    part.tensor().ranges.iter().map(std::ops::Range::len).product()
}

pub(crate) fn ones(engine: &mut Engine) -> Result<(), Error> {
    let one = |part: &Part<'_>| {
        let elems = elems(part);
        part.write(0, &HostTensor::float([elems], DType::F32, vec![1.0; elems]).to_bytes())
    };
    engine.load(|shards| shards.parts().try_for_each(one))
}

fn ids(ids: [i64; 3]) -> NamedTensors {
    NamedTensors::new().with("ids", ids.to_vec())
}

#[test]
fn runs_repeat_and_give_the_same() {
    let (_emulator, cann) = machine(Config::with_cards(4));
    let mut engine = Engine::start(&cann, vec![plans(4)], &EngineOptions::default()).unwrap();
    ones(&mut engine).unwrap();
    for _ in 0..3 {
        let outputs = engine.run(ProgramId(0), &ids([0, 7, 3])).unwrap();
        assert_eq!(outputs.only().unwrap().floats(), [4.0; 12]);
    }
}

#[test]
fn wrong_inputs_and_programs_are_refused_together_and_the_engine_goes_on() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let mut engine = Engine::start(&cann, vec![plans(2)], &EngineOptions::default()).unwrap();
    ones(&mut engine).unwrap();
    let wrong = NamedTensors::new().with("ids", vec![0_i64; 2]).with("idz", vec![0_i64; 3]);
    let Err(Error::Refused(problems)) = engine.run(ProgramId(0), &wrong) else { panic!("refused") };
    assert_eq!(
        problems.to_string(),
        "input `ids`: is another tensor: expected i64[3], found 2 i64\n\
         input `idz`: the program has no tensor of this name: expected ids"
    );
    let message = engine.run(ProgramId(0), &NamedTensors::new()).unwrap_err().to_string();
    assert_eq!(message, "input `ids`: is missing: expected i64[3]");
    let message = engine.run(ProgramId(9), &ids([0, 1, 2])).unwrap_err().to_string();
    assert_eq!(message, "program: does not exist: expected below 1, found 9");
    assert!(engine.plans(ProgramId(9)).is_empty() && engine.memory(9).is_empty());
    let outputs = engine.run(ProgramId(0), &ids([0, 7, 3])).unwrap();
    assert_eq!(outputs.only().unwrap().floats(), [4.0; 12]);
}

#[test]
fn an_operator_that_fails_on_the_card_is_named_and_stops_the_engine() {
    let (emulator, cann) = machine(Config::with_cards(4));
    let mut engine = Engine::start(&cann, vec![plans(4)], &EngineOptions::default()).unwrap();
    ones(&mut engine).unwrap();
    let message = engine.run(ProgramId(0), &ids([0, 8, 3])).unwrap_err().to_string();
    // All ranks look the same row up, so any rank may report the error first.
    assert!(message.starts_with("rank ") && message.contains("aclnnEmbedding"), "{message}");
    assert!(message.contains("index 8 at position 1"), "{message}");
    assert!(message.contains("), embed of "), "{message}");
    assert!(matches!(engine.run(ProgramId(0), &ids([0, 1, 2])), Err(Error::Stopped)));
    drop(engine);
    drop(cann);
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
}

#[test]
fn a_rank_that_fails_alone_ends_the_others_and_is_the_one_named() {
    let mut build = Builder::new("lookup");
    let ids = build.input("ids", [3], DType::I64);
    let table = build.param("table", [8, 1], DType::F32);
    let x = build.op(Kind::Embed, &[ids, table]);
    build.output("x", x);
    let program = build.finish().unwrap();
    let pins = Pins::default().replicate("table").value("ids", &[(0, "dp")]);
    let mesh = Mesh::new(&[("dp", 3)]).unwrap();
    let plans =
        schedule(&parallelize(&program, &mesh, &pins).unwrap().lowered, Scheduling::default()).unwrap();
    let (_emulator, cann) = machine(Config::with_cards(3));
    let mut engine = Engine::start(&cann, vec![plans], &EngineOptions::default()).unwrap();
    ones(&mut engine).unwrap();
    let message = engine.run(ProgramId(0), &self::ids([0, 8, 3])).unwrap_err().to_string();
    assert!(message.starts_with("rank 1 (card 1)") && message.contains("index 8"), "{message}");
}

/// Observers wait for the last rank, which never comes if its process is gone.
#[test]
fn another_process_that_fails_ends_an_observed_run() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let [ready, done] = [(); 2].map(|()| Barrier::new(2));
    let start = |rank: usize| {
        let mut world = World::alone();
        (world.rank, world.size, world.card) = (rank, 2, Some(rank));
        world.place = MeetingPlace::Socket { job: format!("observed-{}", std::process::id()) };
        let group = Arc::new(ProcessGroup::join(&world).unwrap());
        let options = EngineOptions { group: Arc::clone(&group), ..EngineOptions::default() };
        let mut engine = Engine::start(&cann, vec![plans(2)], &options).unwrap();
        ones(&mut engine).unwrap();
        (group, engine)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (group, engine) = start(1);
            ready.wait();
            group.fail("it had enough");
            done.wait();
            drop(engine);
        });
        let (_group, mut engine) = start(0);
        ready.wait();
        let message = engine.run_observed(ProgramId(0), &ids([0, 7, 3]), |_| ()).unwrap_err().to_string();
        assert!(message.starts_with("rank 1 ") && message.contains("it had enough"), "{message}");
        done.wait();
    });
}

#[test]
fn a_program_is_added_to_the_memory_of_the_others_or_refused() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let mut engine = Engine::start(&cann, vec![plans_of(2, 300)], &captured(Marks::None)).unwrap();
    ones(&mut engine).unwrap();
    let added = engine.add_program(plans(2)).unwrap();
    assert_eq!((added, engine.plans(added).len()), (ProgramId(1), 2));
    for _ in 0..3 {
        let outputs = engine.run(added, &ids([0, 7, 3])).unwrap();
        assert_eq!(outputs.only().unwrap().floats(), [4.0; 12]);
    }
    let message = engine.add_program(plans_of(2, 700)).unwrap_err().to_string();
    assert!(
        message
            .contains("rank 1: program \"lookup\" has too little memory for its inputs: expected at most "),
        "{message}"
    );
    let message = engine.add_program(plans(1)).unwrap_err().to_string();
    assert!(message.contains("is compiled for another number of ranks"), "{message}");
    let mut launching = plans(2);
    for plan in &mut launching {
        let x = View::contiguous(plan.outputs[0].buffer, DType::F32, [1, 1].into());
        let step = plan.steps.iter_mut().find(|step| matches!(step.action, Action::Launch(_))).unwrap();
        step.action = Action::Launch(Box::new(Call::OrderedSum { x: x.clone(), out: x }));
    }
    let message = engine.add_program(launching).unwrap_err().to_string();
    assert!(
        message.contains("the plans launch one that the cards do not have: expected ordered_sum"),
        "{message}"
    );
    engine.run(added, &ids([1, 1, 1])).unwrap();
}

#[test]
fn one_call_fills_shards_from_named_tensors() {
    let (_emulator, cann) = machine(Config::with_cards(4));
    let weights = |rows: usize| {
        NamedTensors::new().with("layers.0.w", vec![1.0; 16]).with("table", vec![1.0; 4 * rows])
    };
    let mut engine = Engine::start(&cann, vec![plans(4)], &EngineOptions::default()).unwrap();
    engine.fill(&weights(8)).unwrap();
    let outputs = engine.run(ProgramId(0), &ids([0, 7, 3])).unwrap();
    assert_eq!(outputs.get("y").unwrap(), HostTensor::float([3, 4], DType::F32, vec![4.0; 12]));
    let message = engine.fill(&weights(7).with("bias", 1.0)).unwrap_err().to_string();
    assert_eq!(
        message,
        "weight `table`: is another tensor: expected f32[8,4], found 28 f32\n\
         weight `bias`: the program has no tensor of this name: expected table, layers.0.w"
    );
}

#[test]
fn a_weight_that_cannot_be_read_ends_all() {
    let (_emulator, cann) = machine(Config::with_cards(4));
    let mut engine = Engine::start(&cann, vec![plans(4)], &EngineOptions::default()).unwrap();
    let failure = engine.load(|shards| {
        let [table, _] = shards.weights() else { panic!("two weights") };
        table.iter().try_for_each(|part| part.write(0, &vec![0; elems(part) * 4]))?;
        Err(Error::fill("the disk is gone"))
    });
    assert_eq!(failure.unwrap_err().to_string(), "loading weights: the disk is gone");
    assert!(matches!(engine.run(ProgramId(0), &ids([0, 1, 2])), Err(Error::Stopped)));
}

#[test]
fn weights_of_another_engine_are_not_written_again() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let first = Engine::start(&cann, vec![plans(2)], &EngineOptions::default()).unwrap();
    let options = EngineOptions { weights: Some(first.weights()), ..EngineOptions::default() };
    let mut second = Engine::start(&cann, vec![plans(2)], &options).unwrap();
    second
        .load(|shards| {
            assert!(shards.weights().is_empty());
            Ok(())
        })
        .unwrap();
}

#[test]
fn bytes_beyond_a_part_are_refused_by_rank_and_weight() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let mut engine = Engine::start(&cann, vec![plans(2)], &EngineOptions::default()).unwrap();
    let message = engine.load(|shards| shards.weights()[1][1].write(8, &[0; 32])).unwrap_err().to_string();
    assert_eq!(message, "rank 1 (card 1), loading layers.0.w: bytes 8..40 of a part of 32");
}

#[test]
fn a_rank_whose_thread_panics_ends_all_and_is_named() {
    let (emulator, cann) = machine(Config::with_cards(3));
    let clock = Clock(Arc::new(|| {
        assert_ne!(std::thread::current().name(), Some("rank 1"), "no more time");
        0
    }));
    let options = EngineOptions { clock: Some(clock), ..EngineOptions::default() };
    let mut engine = Engine::start(&cann, vec![plans(3)], &options).unwrap();
    let message = engine.run(ProgramId(0), &ids([0, 1, 2])).unwrap_err().to_string();
    assert!(message.starts_with("rank 1 (card 1): the rank's thread panicked: "), "{message}");
    assert!(message.contains("no more time"), "{message}");
    assert!(matches!(engine.run(ProgramId(0), &ids([0, 1, 2])), Err(Error::Stopped)));
    drop((engine, cann));
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
}

#[test]
fn an_engine_that_is_told_to_stop_runs_no_more() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let options = EngineOptions::default();
    let mut engine = Engine::start(&cann, vec![plans(2)], &options).unwrap();
    ones(&mut engine).unwrap();
    engine.run(ProgramId(0), &ids([0, 7, 3])).unwrap();
    options.stop.store(true, Ordering::Relaxed);
    assert!(matches!(engine.run(ProgramId(0), &ids([0, 7, 3])), Err(Error::Interrupted)));
}

#[test]
fn streams_are_marked_with_their_ops_if_that_is_asked_for() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let options = EngineOptions { marks: Marks::EachOp, ..EngineOptions::default() };
    let mut engine = Engine::start(&cann, vec![plans(2)], &options).unwrap();
    ones(&mut engine).unwrap();
    let message = engine.run(ProgramId(0), &ids([0, 8, 3])).unwrap_err().to_string();
    assert!(message.contains("at \"embed of "), "{message}");
}

fn captured(marks: Marks) -> EngineOptions {
    EngineOptions { marks, launching: Launching::Captured, ..EngineOptions::default() }
}

/// The first run is eager, the second captures, and later runs replay. Timed runs are eager.
#[test]
fn replays_of_a_captured_plan_see_the_inputs_of_their_own_run() {
    let (emulator, cann) = machine(Config::with_cards(4));
    let mut engine = Engine::start(&cann, vec![plans(4)], &captured(Marks::None)).unwrap();
    let rows = |part: &Part<'_>| {
        let elems = elems(part);
        // Row i has the value i; columns are sharded.
        let value = |i: usize| if part.tensor().name == "table" { (i / 4) as f32 } else { 1.0 };
        part.write(0, &HostTensor::float([elems], DType::F32, (0..elems).map(value).collect()).to_bytes())
    };
    engine.load(|shards| shards.parts().try_for_each(rows)).unwrap();
    for run in 0..5_i64 {
        let inputs = ids([run, 7 - run, 3]);
        let timed = if run == 3 { Timed::Streams } else { Timed::No };
        let outputs = engine.begin(ProgramId(0), &inputs, timed).unwrap().finish().unwrap();
        let expected: Vec<f32> = [run, 7 - run, 3].iter().flat_map(|id| [4.0 * *id as f32; 4]).collect();
        assert_eq!(outputs.only().unwrap().floats(), expected, "run {run}");
    }
    drop((engine, cann));
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
}

#[test]
fn an_operator_that_fails_in_a_replay_is_named() {
    for (marks, place) in
        [(Marks::None, "replay of the program \"lookup\", embed of "), (Marks::EachOp, "at \"embed of ")]
    {
        let (_emulator, cann) = machine(Config::with_cards(4));
        let mut engine = Engine::start(&cann, vec![plans(4)], &captured(marks)).unwrap();
        ones(&mut engine).unwrap();
        for _ in 0..3 {
            engine.run(ProgramId(0), &ids([0, 7, 3])).unwrap();
        }
        let message = engine.run(ProgramId(0), &ids([0, 8, 3])).unwrap_err().to_string();
        assert!(message.contains(place) && message.contains("index 8 at position 1"), "{message}");
        assert!(matches!(engine.run(ProgramId(0), &ids([0, 1, 2])), Err(Error::Stopped)));
    }
}

#[test]
fn more_ranks_than_cards_are_refused_before_anything_is_opened() {
    let (_emulator, cann) = machine(Config::with_cards(2));
    let message = Engine::start(&cann, vec![plans(3)], &EngineOptions::default()).unwrap_err().to_string();
    assert!(message.contains("expected 1 to 2, found 3"), "{message}");
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_loading_with_the_arithmetic() {
    let config = Config { hbm_bytes: 4 << 20, ..Config::with_cards(2) };
    let (_emulator, cann) = machine(config);
    let model = shipped();
    let deployment = Deployment {
        precision: DType::BF16.into(),
        longest_prompt: 4,
        context: 4 + 4,
        head: Head::LastToken,
        ..Deployment::of(&model.config, 2)
    };
    let loaded = AtomicUsize::new(0);
    let count = |_, _| {
        loaded.fetch_add(1, Ordering::Relaxed);
    };
    let failure = Session::builder(&cann, &model).deployment(deployment).progress(&count).start();
    let generate::Error::Run(Error::Refused(problems)) = failure.unwrap_err() else {
        panic!("another error")
    };
    let text = problems.to_string();
    assert_eq!(problems.items().len(), 2, "one a rank: {text}");
    assert!(
        text.contains("rank 1 (card 1)") && text.contains("weights 7.6 MiB") && text.contains("4.0 MiB"),
        "{text}"
    );
    assert_eq!(loaded.load(Ordering::Relaxed), 0);
}

#[test]
fn the_card_that_is_too_small_is_named_and_not_the_rank() {
    let (_emulator, cann) = machine(Config { hbm_bytes: 4 << 20, ..Config::with_cards(3) });
    let options = EngineOptions { cards: vec![2, 0], ..EngineOptions::default() };
    let message = Engine::start(&cann, vec![plans(2)], &options).unwrap_err().to_string();
    assert!(message.contains("rank 0 (card 2)") && message.contains("rank 1 (card 0)"), "{message}");
}

/// The free memory suffices for the plan, but not for an empty region of the library. Other ranks
/// must not wait at the first exchange.
#[test]
fn a_rank_that_cannot_take_its_memory_ends_the_others_at_once() {
    let (_emulator, cann) = machine(Config::with_cards(3));
    let plans = plans(3);
    let counted: u64 = Region::ALL.into_iter().map(|region| plans[1].region_bytes(region).0).sum();
    let card = Device::open(&cann, 1).unwrap();
    let buffers = plans[1].groups.values().iter().filter(|ranks| ranks.contains(&1)).count() as u64;
    let counted = counted + buffers * Communicator::buffer_bytes().0;
    let free = card.memory().unwrap().free.0;
    // The card rounds the size of this allocation up.
    let _taken = Buffer::new(&card, usize::try_from(free - counted - 256).unwrap()).unwrap();
    let message = Engine::start(&cann, vec![plans], &EngineOptions::default()).unwrap_err().to_string();
    assert!(message.starts_with("rank 1 (card 1), taking memory and streams"), "{message}");
    assert!(message.contains("no memory for the buffers of 1 communicators"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn memory_of_a_card_is_given_back_when_the_engine_goes() {
    let (emulator, cann) = machine(Config::with_cards(4));
    let engine = Engine::start(&cann, vec![plans(4)], &EngineOptions::default()).unwrap();
    let device = Device::open(&cann, 0).unwrap();
    let memory = device.memory().unwrap();
    assert!(memory.free < memory.total);
    drop(engine);
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
}

#[test]
fn a_program_needs_the_operators_of_its_plans_and_no_other() {
    let (emulator, _cann) = machine(Config::with_cards(2));
    let mut needed = 0;
    for name in Table::OPERATORS {
        let mut table = Table::clone(&emulator.table());
        table.missing_operators.push(name);
        let cann = Cann::new(Arc::new(table)).unwrap();
        assert_eq!(cann.missing_operators(), [*name]);
        let calls = |plan: &Plan| plan.to_string().contains(&format!("{name} "));
        match Engine::start(&cann, vec![plans(2)], &EngineOptions::default()) {
            Ok(_) => assert!(!plans(2).iter().any(calls), "{name}"),
            Err(Error::Refused(problems)) => {
                assert!(plans(2).iter().any(calls), "{name}: {problems}");
                let text = problems.to_string();
                assert!(
                    text.contains(&format!("expected {name}")) && text.contains("ascend-tp doctor"),
                    "{text}"
                );
                assert!(text.contains("program \"lookup\", "), "{text}");
                needed += 1;
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(needed >= 2 && Table::OPERATORS.len() >= 60, "{needed} of {}", Table::OPERATORS.len());
}

#[test]
fn steps_with_collectives_are_recorded_from_cann_8_5_on() {
    for (cann, cards, is_refused) in
        [(CannVersion::V8_1, 2, true), (CannVersion::V8_1, 1, false), (CannVersion::V8_5, 2, false)]
    {
        let mut config = Config::with_cards(2);
        config.cann = cann;
        let (_emulator, cann) = machine(config);
        let options = EngineOptions { launching: Launching::Captured, ..EngineOptions::default() };
        match Engine::start(&cann, vec![plans(cards)], &options) {
            Ok(mut engine) => {
                assert!(!is_refused);
                ones(&mut engine).unwrap();
                for _ in 0..3 {
                    engine.run(ProgramId(0), &ids([1, 0, 2])).unwrap();
                }
            }
            Err(Error::Refused(problems)) => {
                let text = problems.to_string();
                assert!(is_refused && text.contains("expected 8.5 or newer, found 8.1.RC1"), "{text}");
                assert!(text.contains("remove --captured"), "{text}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
