//! The serving engine as applications use it: handles, streams, cancels, failures, processes.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use ascend_tp::Cann;
use ascend_tp::base::DType;
use ascend_tp::compile::Deployment;
use ascend_tp::emulator::{Config, Sharing};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::{Model, Request, RequestOutput, Sequence, ServingEngine, Session};
use ascend_tp::weights::fill_from;
use ascend_tp::world::{ProcessGroup, World};
use futures_core::Stream;

use crate::common::{machine, shipped};

const PROMPTS: [&str; 4] = ["In the beginning", "And the king said unto", "The", "And it came to pass"];

fn session(cann: &Arc<Cann>, model: &Model) -> Session {
    let builder = Session::builder(cann, model).cards(2).batch(3).context(64).precision(DType::F32);
    builder.start().unwrap()
}

fn request(prompt: &str) -> Request {
    Request { max_new_tokens: Some(8), ..Request::new(prompt) }
}

fn expected(cann: &Arc<Cann>, model: &Model) -> Vec<Sequence> {
    let requests = PROMPTS.map(request);
    session(cann, model).generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap().sequences
}

#[test]
fn more_requests_than_rows_are_all_answered() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let expected = expected(&cann, &model);
    let engine = ServingEngine::start(session(&cann, &model)).unwrap();
    let handles: Vec<_> =
        (0..12).map(|at| engine.submit(request(PROMPTS[at % PROMPTS.len()])).unwrap()).collect();
    for (at, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.wait().unwrap(), [expected[at % PROMPTS.len()].clone()]);
    }
    // Tokens come one by one, and their text adds up.
    let mut text = String::new();
    for output in engine.submit(request(PROMPTS[0])).unwrap() {
        match output.unwrap() {
            RequestOutput::Token { text: new, .. } => text.push_str(&new),
            RequestOutput::End { text: rest, sequence, .. } => {
                text.push_str(&rest);
                assert_eq!(*sequence, expected[0]);
            }
            _ => unreachable!(),
        }
    }
    assert_eq!(text, expected[0].text);
}

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_handle_is_a_stream() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let expected = expected(&cann, &model);
    let engine = ServingEngine::start(session(&cann, &model)).unwrap();
    let mut handle = pin!(engine.submit_samples(request(PROMPTS[1]), 2).unwrap());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let (mut tokens, mut ends) = (0, Vec::new());
    loop {
        match handle.as_mut().poll_next(&mut context) {
            Poll::Pending => thread::park(),
            Poll::Ready(None) => break,
            Poll::Ready(Some(output)) => match output.unwrap() {
                RequestOutput::Token { .. } => tokens += 1,
                RequestOutput::End { sample, sequence, .. } => ends.push((sample, *sequence)),
                _ => unreachable!(),
            },
        }
    }
    ends.sort_by_key(|(sample, _)| *sample);
    assert_eq!(ends, [(0, expected[1].clone()), (1, expected[1].clone())]);
    assert_eq!(tokens, 16);
}

#[test]
fn a_dropped_handle_frees_its_blocks() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let engine = ServingEngine::start(session(&cann, &model)).unwrap();
    let mut handles: Vec<_> = PROMPTS.iter().map(|prompt| engine.submit(endless(prompt)).unwrap()).collect();
    for handle in &mut handles[..3] {
        handle.next().unwrap().unwrap();
    }
    drop(handles.drain(..3));
    // The last request waited for a row.
    assert_eq!(handles.remove(0).wait().unwrap().len(), 1);
    // The load was counted after the last step, which may have been the request's.
    let load = engine.load().unwrap().remove(0);
    assert!(load.running <= 1 && load.waiting == 0, "{load:?}");
}

#[test]
fn a_request_that_cannot_fit_is_refused_at_once() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let builder = Session::builder(&cann, &model).cards(2).batch(2).context(300).cache_blocks(2);
    let engine = ServingEngine::start(builder.start().unwrap()).unwrap();
    let long = |tokens, new| Request { max_new_tokens: Some(new), ..Request::new(vec![5; tokens]) };
    let refused = engine.submit(long(250, 7)).unwrap_err().to_string();
    assert!(refused.contains("expected 1 to 6 new tokens, found 7"), "{refused}");
    let refused = engine.submit_samples(long(5, 1), 0).unwrap_err().to_string();
    assert!(refused.contains("asks for no sample"), "{refused}");
    assert_eq!(engine.submit(long(250, 6)).unwrap().wait().unwrap()[0].ids.len(), 6);
}

/// The embedding of one token is infinite. Stale numbers of its sequence must not reach others:
/// attention in f32 multiplies hidden keys by a weight of 0.
#[test]
fn a_sequence_that_is_not_finite_ends_alone() {
    const BAD: u32 = 77;
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let expected = expected(&cann, &model);
    let deployment = Deployment {
        precision: DType::F32.into(),
        batch: 3,
        longest_prompt: 32,
        context: 64,
        ..Deployment::of(&model.config, 2)
    };
    let options = EngineOptions::default();
    let session = Session::start_filled(&cann, &model.config, &deployment, &options, |shards| {
        fill_from(&model.checkpoint, shards, &|_| ())?;
        for part in shards.parts().filter(|part| part.tensor().name == "model.embed_tokens.weight") {
            let [rows, columns] = [0, 1].map(|dim| part.tensor().ranges[dim].clone());
            if rows.contains(&(BAD as usize)) {
                let row = f32::INFINITY.to_le_bytes().repeat(columns.len());
                part.write((BAD as usize - rows.start) * row.len(), &row)?;
            }
        }
        Ok(())
    });
    let engine = ServingEngine::start(session.unwrap()).unwrap();
    let good = |sequence: &Sequence| {
        let ids = sequence.prompt_ids.as_slice();
        Request { max_new_tokens: Some(sequence.ids.len()), ..Request::new(ids) }
    };
    let bad = Request::new(vec![5, BAD, 9]);
    for _ in 0..2 {
        let first = engine.submit(good(&expected[0])).unwrap();
        let failing = engine.submit(bad.clone()).unwrap();
        let others: Vec<_> =
            expected[1..].iter().map(|sequence| engine.submit(good(sequence)).unwrap()).collect();
        let message = failing.wait().unwrap_err().to_string();
        assert!(message.contains("position 3: the logit of token 0 is NaN"), "{message}");
        assert!(message.contains("the first value that is not finite"), "{message}");
        for (handle, expected) in std::iter::once(first).chain(others).zip(&expected) {
            assert_eq!(handle.wait().unwrap()[0].ids, expected.ids);
        }
    }
}

#[test]
fn a_stopped_engine_ends_its_requests_and_refuses_new_ones() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let engine = ServingEngine::start(session(&cann, &model)).unwrap();
    let mut handle = engine.submit(endless(PROMPTS[0])).unwrap();
    handle.next().unwrap().unwrap();
    drop(engine);
    let last = handle.find_map(Result::err).map(|error| error.to_string());
    assert_eq!(last.as_deref(), Some("serving engine: has stopped"));
}

/// Set in the processes that the test below starts.
const WORLD: &str = "ASCEND_TP_TEST_WORLD";

/// A request without an end.
fn endless(prompt: &str) -> Request {
    Request { stop_ids: Some(Vec::new()), ..Request::new(prompt) }
}

/// One process of a world of two. Rank 0 serves the requests, and prints the ids of each.
#[test]
fn a_process_of_a_world() {
    let Some(wanted) = std::env::var_os(WORLD) else { return };
    let group = Arc::new(ProcessGroup::join(&World::from_env().unwrap()).unwrap());
    let model = shipped();
    let (_emulator, cann) = machine(Config { sharing: Sharing::Host, ..Config::with_cards(2) });
    let options = EngineOptions { group: Arc::clone(&group), ..EngineOptions::default() };
    let builder = Session::builder(&cann, &model).batch(3).context(600).precision(DType::F32);
    let engine = ServingEngine::start(builder.engine(options).start().unwrap()).unwrap();
    if !group.is_first() {
        println!("\nrank 1 ended: {:?}", engine.join().map_err(|error| error.to_string()));
        return;
    }
    if wanted == "answers" {
        let handles: Vec<_> = PROMPTS.iter().map(|prompt| engine.submit(request(prompt)).unwrap()).collect();
        for handle in handles {
            println!("\nids {:?}", handle.wait().unwrap()[0].ids);
        }
        return;
    }
    let mut handles: Vec<_> = PROMPTS.iter().map(|prompt| engine.submit(endless(prompt)).unwrap()).collect();
    handles[0].next().unwrap().unwrap();
    println!("\nrunning");
    for handle in handles {
        println!("\nfailed {:?}", handle.wait().map(drop).map_err(|error| error.to_string()));
    }
    println!(
        "\nrefused {:?}",
        engine.submit(request(PROMPTS[0])).map(drop).map_err(|error| error.to_string())
    );
}

/// Starts the processes of a world.
fn start_world(wanted: &str) -> [Child; 2] {
    // The system gives a free port.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    [0, 1].map(|rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["serving_engine::a_process_of_a_world", "--exact", "--nocapture"]).env(WORLD, wanted);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", "2").env("LOCAL_WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap()
    })
}

fn printed(child: Child) -> String {
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn processes_serve_the_requests_of_the_first_one() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let [first, second] = start_world("answers").map(printed);
    for sequence in expected(&cann, &model) {
        assert!(first.contains(&format!("ids {:?}", sequence.ids)), "{first}");
    }
    assert!(second.contains("rank 1 ended: Ok(())"), "{second}");
}

#[test]
fn all_requests_end_if_a_process_dies() {
    let [mut first, mut second] = start_world("failure");
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.by_ref().find(|line| line == "running").unwrap();
    second.kill().unwrap();
    second.wait().unwrap();
    let rest: Vec<String> = lines.collect();
    first.wait().unwrap();
    let failed: Vec<&String> = rest.iter().filter(|line| line.starts_with("failed Err")).collect();
    assert_eq!(failed.len(), PROMPTS.len(), "{rest:?}");
    assert!(failed.iter().all(|line| line.contains("rank 1")), "{failed:?}");
    assert!(rest.iter().any(|line| line.starts_with("refused Err") && line.contains("rank 1")), "{rest:?}");
}
