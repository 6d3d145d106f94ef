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
use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::compile::Deployment;
use ascend_tp::emulator::{Calls, Config, Fault, Sharing};
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::drafts::LookupOptions;
use ascend_tp::generate::{
    Constraint, ConstraintCompiler, Finish, Grammar, Model, PrefixCache, Request, RequestOutput,
    SamplingOptions, Sequence, ServingEngine, Session,
};
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

#[test]
fn a_prompt_has_the_log_probabilities_that_generation_gives() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    // Chunks of 32 tokens.
    let builder = Session::builder(&cann, &model).cards(2).batch(2).context(400).longest_prompt(32);
    let session = builder.precision(DType::F32).prompt_log_probabilities().start().unwrap();
    let engine = ServingEngine::start(session).unwrap();
    let ids: Vec<u32> = (0..300).map(|at| 7 * at + 3).collect();
    let scored = Request {
        max_new_tokens: Some(1),
        prompt_log_probabilities: Some(2),
        log_probabilities: Some(2),
        ..Request::new(ids.as_slice())
    };
    for _ in 0..2 {
        let [sequence] = engine.submit(scored.clone()).unwrap().wait().unwrap().try_into().unwrap();
        assert_eq!((sequence.prompt_log_probabilities.len(), sequence.cached_tokens), (299, 0));
        for length in [1, 31, 32, 33, 299] {
            let request = Request {
                max_new_tokens: Some(1),
                log_probabilities: Some(model.config.vocab_size),
                ..Request::new(&ids[..length])
            };
            let next = &engine.submit(request).unwrap().wait().unwrap()[0].log_probabilities[0];
            let (found, expected) = (&sequence.prompt_log_probabilities[length - 1], &next.likeliest);
            assert_eq!(found.likeliest, expected[..2]);
            assert!(expected.contains(&(ids[length], found.chosen)), "after {length} tokens");
        }
    }
}

#[test]
fn the_prompt_of_another_request_is_read_from_the_cache() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    for (prefix_cache, cached) in [(PrefixCache::Shared, 256), (PrefixCache::Off, 0)] {
        let builder = Session::builder(&cann, &model).cards(2).batch(2).context(400).precision(DType::F32);
        let engine = ServingEngine::start(builder.prefix_cache(prefix_cache).start().unwrap()).unwrap();
        let ids: Vec<u32> = (0..300).map(|at| 7 * at + 3).collect();
        let request = Request { max_new_tokens: Some(2), ..Request::new(ids.as_slice()) };
        let [first, second] = [(); 2].map(|()| engine.submit(request.clone()).unwrap().wait().unwrap());
        assert_eq!((first[0].cached_tokens, second[0].cached_tokens), (0, cached));
        assert_eq!(first[0].ids, second[0].ids);
    }
}

/// Allows `length` multiples of `divisor`, then only the end.
#[derive(Debug)]
struct Multiples {
    divisor: u32,
    length: usize,
    stop_id: u32,
    accepted: usize,
    mask: Vec<u32>,
}

impl Constraint for Multiples {
    fn mask(&mut self) -> Result<&[u32], Diagnostics> {
        self.mask.fill(0);
        let mut allow = |id: u32| self.mask[id as usize / 32] |= 1 << (id % 32);
        if self.accepted == self.length {
            allow(self.stop_id);
        } else {
            (self.divisor..1000).step_by(self.divisor as usize).for_each(allow);
        }
        Ok(&self.mask)
    }

    fn accept(&mut self, token: u32) -> Result<(), Diagnostics> {
        if !token.is_multiple_of(self.divisor) {
            return Err(Diagnostic::new("multiples", "not one").found(token).into());
        }
        self.accepted += 1;
        Ok(())
    }
}

/// Reads `divisor length` as a regular expression.
#[derive(Debug)]
struct MultiplesCompiler(u32);

impl ConstraintCompiler for MultiplesCompiler {
    fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, Diagnostics> {
        let Grammar::Regex(text) = grammar else {
            return Err(Diagnostic::new("multiples", "unknown grammar").into());
        };
        let mut numbers = text.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        let (divisor, length) = (next() as u32, next());
        Ok(Box::new(Multiples { divisor, length, stop_id: self.0, accepted: 0, mask: vec![0; 1024] }))
    }
}

#[test]
fn a_grammar_holds_for_each_sample_with_and_without_drafts() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(2));
    let stop_id = model.stop_ids()[0];
    let mut all = Vec::new();
    for drafts in [0, 3] {
        let builder = Session::builder(&cann, &model).cards(2).batch(4).context(64).precision(DType::F32);
        let builder = builder.constraints(Arc::new(MultiplesCompiler(stop_id)));
        let session = match drafts {
            0 => builder.start().unwrap(),
            drafts => builder.speculate(LookupOptions { drafts, sizes: 1..=3 }).start().unwrap(),
        };
        let engine = ServingEngine::start(session).unwrap();
        let of = |grammar: &str, temperature| Request {
            grammar: Some(Grammar::Regex(grammar.to_owned())),
            sampling: SamplingOptions { temperature, seed: 5, ..SamplingOptions::default() },
            ..request(PROMPTS[0])
        };
        let handles = [of("7 4", 1.0), of("3 6", 1.0), of("11 5", 0.0)]
            .map(|request| engine.submit_samples(request, 2));
        let free = engine.submit(request(PROMPTS[0])).unwrap();
        let found: Vec<Vec<Sequence>> =
            handles.into_iter().map(|handle| handle.unwrap().wait().unwrap()).collect();
        for (sequences, (divisor, length)) in found.iter().zip([(7, 4), (3, 6), (11, 5)]) {
            for sequence in sequences {
                assert!(sequence.ids.iter().all(|id| id % divisor == 0), "{:?}", sequence.ids);
                assert_eq!((sequence.ids.len(), &sequence.finish), (length, &Finish::StopId(stop_id)));
            }
        }
        let unknown = engine.submit(Request { grammar: Some(Grammar::Json), ..request("The") });
        assert_eq!(unknown.unwrap_err().to_string(), "request 4: multiples: unknown grammar");
        all.push((found, free.wait().unwrap()));
        // Every token that the grammar allows is in the prompt, so drafts are found.
        let ids: Vec<u32> = (1..10).map(|at| 101 * at).collect();
        let repeated = Request { prompt: [&ids[..], &ids].concat().into(), ..of("101 8", 1.0) };
        let drafted = engine.submit(repeated).unwrap().wait().unwrap();
        let load = engine.load().unwrap().remove(0);
        assert_eq!(drafts == 0, load.verified_drafts == 0, "{load:?}");
        all.push((vec![drafted.clone()], drafted));
    }
    assert_eq!(all[..2], all[2..]);
    let without = ServingEngine::start(session(&cann, &model)).unwrap();
    let wrong =
        Request { grammar: Some(Grammar::Json), prompt_log_probabilities: Some(0), ..request(PROMPTS[0]) };
    let message = without.submit(wrong).unwrap_err().to_string();
    assert!(
        message.contains("constraints(compiler)") && message.contains("prompt_log_probabilities()"),
        "{message}"
    );
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

/// The embedding of one token is infinite. Stale numbers must not reach other sequences: attention
/// in f32 multiplies hidden keys by a weight of 0.
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

fn replicas(cann: &Arc<Cann>, model: &Model) -> ServingEngine {
    let sessions = [[0, 1], [2, 3]].map(|cards| {
        let options = EngineOptions { cards: cards.to_vec(), ..EngineOptions::default() };
        let builder = Session::builder(cann, model).cards(2).batch(2).context(600).precision(DType::F32);
        builder.engine(options).start().unwrap()
    });
    ServingEngine::start_replicas(sessions.into()).unwrap()
}

#[test]
fn replicas_share_the_requests() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(4));
    let engine = replicas(&cann, &model);
    let mut endless: Vec<_> = PROMPTS.iter().map(|prompt| engine.submit(endless(prompt)).unwrap()).collect();
    endless.iter_mut().for_each(|handle| drop(handle.next().unwrap().unwrap()));
    let running: Vec<usize> = engine.load().unwrap().iter().map(|load| load.running).collect();
    assert_eq!(running, [2, 2]);
    // Both of the first replica's requests end, so it takes the next ones.
    drop((endless.remove(2), endless.remove(0)));
    let expected = expected(&cann, &model);
    for (prompt, expected) in PROMPTS.iter().zip(&expected) {
        assert_eq!(engine.submit(request(prompt)).unwrap().wait().unwrap()[0].ids, expected.ids);
    }
    // No request waited for the end of a request of the second replica.
    assert_eq!(engine.load().unwrap()[1].running, 2);
}

#[test]
fn the_failure_of_a_replica_ends_the_requests_of_all() {
    let model = shipped();
    let (emulator, cann) = machine(Config::with_cards(4));
    let engine = replicas(&cann, &model);
    let mut handles: Vec<_> = PROMPTS.iter().map(|prompt| engine.submit(endless(prompt)).unwrap()).collect();
    handles.iter_mut().for_each(|handle| drop(handle.next().unwrap().unwrap()));
    let calls = Calls::nth(1).on(3);
    let _injected = emulator.inject(Fault::Error { calls, code: 507_015 }).unwrap();
    for handle in handles {
        let message = handle.wait().unwrap_err().to_string();
        assert!(message.contains("card 3") || message.contains("rank 1"), "{message}");
    }
    assert!(engine.check().is_err());
    assert!(engine.join().unwrap_err().to_string().contains("rank 1"));
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
    requests_end_after("KILL");
}

#[test]
fn all_requests_end_if_a_process_is_stopped() {
    requests_end_after("STOP");
}

fn requests_end_after(signal: &str) {
    let [mut first, mut second] = start_world("failure");
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.by_ref().find(|line| line == "running").unwrap();
    let kill = Command::new("kill").args([format!("-{signal}"), second.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let rest: Vec<String> = lines.collect();
    // The engine is dropped while the other process may still be stopped.
    first.wait().unwrap();
    second.kill().unwrap();
    second.wait().unwrap();
    let failed: Vec<&String> = rest.iter().filter(|line| line.starts_with("failed Err")).collect();
    assert_eq!(failed.len(), PROMPTS.len(), "{rest:?}");
    assert!(failed.iter().all(|line| line.contains("rank 1")), "{failed:?}");
    assert!(rest.iter().any(|line| line.starts_with("refused Err") && line.contains("rank 1")), "{rest:?}");
}
