//! The engine under faults: for a fault at any call, it ends with an error or the correct result,
//! and the cards stay usable.

use std::sync::Arc;
use std::time::Duration;

use ascend_tp::Cann;
use ascend_tp::emulator::{Calls, Config, Fault};
use ascend_tp::exec::{Engine, EngineOptions, Error, NamedTensors, ProgramId};

use crate::common::machine;
use crate::engine::{ones, plans};

const CARDS: usize = 2;

fn run(cann: &Arc<Cann>) -> Result<Vec<Vec<f32>>, Error> {
    let mut engine = Engine::start(cann, vec![plans(CARDS)], &EngineOptions::default())?;
    ones(&mut engine)?;
    let step = |engine: &mut Engine, ids: [i64; 3]| -> Result<Vec<f32>, Error> {
        let outputs = engine.run(ProgramId(0), &NamedTensors::new().with("ids", ids.to_vec()))?;
        Ok(outputs.only()?.floats().to_vec())
    };
    Ok(vec![step(&mut engine, [0, 7, 3])?, step(&mut engine, [1, 1, 2])?])
}

/// Injects the fault at every call until a run ends before it.
fn at_every_call(fault: impl Fn(u64) -> Fault) {
    let config = Config { connect_timeout: Duration::from_secs(2), threads: 2, ..Config::with_cards(CARDS) };
    let (emulator, cann) = machine(config);
    let right = run(&cann).unwrap();
    assert_eq!(right, vec![vec![4.0; 12]; 2]);
    let mut errors = 0;
    for at in 1.. {
        let injected = emulator.inject(fault(at)).unwrap();
        match run(&cann) {
            Ok(found) => assert_eq!(found, right, "{}", fault(at)),
            Err(error) => {
                assert!(!error.to_string().is_empty(), "{}", fault(at));
                errors += 1;
            }
        }
        if injected.lift() == 0 {
            break;
        }
        assert_eq!(run(&cann).unwrap(), right, "after {}", fault(at));
    }
    assert!(errors > 20, "{errors} errors");
}

#[test]
fn an_error_at_any_call_of_a_card_ends_the_engine_or_changes_nothing() {
    at_every_call(|at| Fault::Error { calls: Calls::nth(at).on(1), code: 507_015 });
}

#[test]
fn memory_may_run_out_at_any_allocation() {
    let (emulator, cann) = machine(Config { threads: 2, ..Config::with_cards(CARDS) });
    for at in 1.. {
        let injected = emulator.inject(Fault::OutOfMemory { at, card: None }).unwrap();
        let outcome = run(&cann);
        if injected.lift() == 0 {
            assert_eq!(outcome.unwrap(), vec![vec![4.0; 12]; 2]);
            break;
        }
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("out of memory"), "allocation {at}: {text}");
        assert!(emulator.usage().iter().all(|card| card.used_bytes == 0), "{:?}", emulator.usage());
    }
}
