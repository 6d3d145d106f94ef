//! Sessions as applications use them: many requests with separate options, several sessions on the
//! same cards, and results that are NaN or infinity.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use ascend_tp::Cann;
use ascend_tp::base::DType;
use ascend_tp::compile::Deployment;
use ascend_tp::emulator::Config;
use ascend_tp::generate::sampling::SamplingOptions;
use ascend_tp::generate::{
    CancelToken, Error, Finish, Generation, Model, Prompt, Request, RequestEvent, Session,
};
use ascend_tp::program::models::Head;

use crate::common::{machine, shipped};

const CARDS: usize = 2;

const PROMPTS: [&str; 3] = ["In the beginning", "And the king said unto", "The"];

fn start(cann: &Arc<Cann>, model: &Model, batch: usize) -> Session {
    Session::builder(cann, model).cards(CARDS).batch(batch).context(48).precision(DType::F32).start().unwrap()
}

fn run(session: &mut Session, requests: &[Request]) -> Generation {
    session.generate(requests, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn short(prompt: &str) -> Request {
    Request { max_new_tokens: Some(8), ..Request::new(prompt) }
}

#[test]
fn a_request_is_answered_alone_as_in_any_batch() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(CARDS));
    let mut session = start(&cann, &model, 3);
    let alone: Vec<_> =
        PROMPTS.iter().map(|prompt| run(&mut session, &[short(prompt)]).sequences.remove(0)).collect();
    assert!(alone.iter().all(|sequence| sequence.ids.len() == 8 && sequence.finish == Finish::Length));
    let together = run(&mut session, &PROMPTS.map(short));
    assert_eq!(together.sequences, alone);
    let two = run(&mut session, &[short(PROMPTS[2]), short(PROMPTS[0])]);
    assert_eq!(two.sequences, [alone[2].clone(), alone[0].clone()]);
    let builder = Session::builder(&cann, &model).cards(CARDS).batch(3).context(48).precision(DType::F32);
    let mut greedy = builder.head(Head::LastToken).start().unwrap();
    assert_eq!(run(&mut greedy, &PROMPTS.map(short)).sequences, alone);
}

#[test]
fn options_and_seeds_are_the_requests_own() {
    let (_emulator, cann) = machine(Config::with_cards(CARDS));
    let mut session = start(&cann, &shipped(), 3);
    let warm = |seed| {
        let sampling = SamplingOptions { temperature: 1.0, seed, ..SamplingOptions::default() };
        Request { sampling, ..short(PROMPTS[0]) }
    };
    let mixed = run(&mut session, &[warm(1), short(PROMPTS[0]), warm(2)]).sequences;
    let again = run(&mut session, &[warm(2), warm(1)]).sequences;
    assert_eq!((&again[0].ids, &again[1].ids), (&mixed[2].ids, &mixed[0].ids));
    assert_ne!(mixed[0].ids, mixed[2].ids);
    assert_eq!(mixed[1], run(&mut session, &[short(PROMPTS[0])]).sequences[0]);
    let wary = SamplingOptions { repetition_penalty: 4.0, ..SamplingOptions::default() };
    let request = Request { sampling: wary, max_new_tokens: Some(16), ..Request::new(PROMPTS[0]) };
    let mut ids = run(&mut session, &[request]).sequences.remove(0).ids;
    ids.sort_unstable();
    let before = ids.len();
    ids.dedup();
    assert!(before - ids.len() <= 1, "{ids:?}");
}

#[test]
fn a_sample_depends_on_its_number_alone() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(CARDS));
    let mut session = start(&cann, &model, 3);
    let sampling = SamplingOptions { temperature: 1.5, seed: 5, ..SamplingOptions::default() };
    let sample = |prompt: &str, sample| Request { sampling: sampling.clone(), sample, ..short(prompt) };
    let first = run(&mut session, &[sample(PROMPTS[0], 0)]).sequences.remove(0);
    let batch = [sample(PROMPTS[1], 0), sample(PROMPTS[0], 1), sample(PROMPTS[0], 0)];
    let mixed = run(&mut session, &batch).sequences;
    assert_eq!(mixed[2], first, "neither the place nor the other requests count");
    assert_ne!(mixed[1].ids, first.ids);
    // A sequence that resumes after three tokens continues identically.
    let seen = [first.prompt_ids.as_slice(), &first.ids[..3]].concat();
    let (stop_ids, max_new_tokens) = (Some(Vec::new()), Some(first.ids.len() - 3));
    let resumed = Request { sampling: sampling.clone(), stop_ids, max_new_tokens, ..Request::new(seen) };
    assert_eq!(run(&mut session, &[resumed]).sequences[0].ids, first.ids[3..]);
}

#[test]
fn logits_log_probabilities_and_text_come_with_each_token() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(CARDS));
    let mut session = start(&cann, &model, 2);
    let request = Request { log_probabilities: Some(3), logits: true, ..short(PROMPTS[0]) };
    let (mut texts, mut ended) = (String::new(), Vec::new());
    let found = session
        .generate(&[request, short(PROMPTS[1])], &mut |event| {
            match event {
                RequestEvent::Token(token) if token.request == 0 => {
                    let (logits, of) = (token.logits.unwrap(), token.log_probabilities.unwrap());
                    assert_eq!((logits.len(), of.likeliest.len()), (model.config.vocab_size, 3));
                    assert_eq!(of.likeliest[0], (token.id, of.chosen), "greedy takes the likeliest");
                    let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
                    assert!(
                        (f64::from(logits[token.id as usize]) - sum.ln() - f64::from(of.chosen)).abs() < 1e-4
                    );
                    texts.push_str(token.text);
                }
                RequestEvent::Token(token) => {
                    assert!(token.logits.is_none() && token.log_probabilities.is_none());
                }
                RequestEvent::End { request, text, finish } => {
                    if request == 0 {
                        texts.push_str(text);
                    }
                    ended.push((request, finish.clone()));
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(ended, [(0, Finish::Length), (1, Finish::Length)]);
    let [first, second] = found.sequences.as_slice() else { panic!("two") };
    assert_eq!((&texts, first.log_probabilities.len(), second.log_probabilities.len()), (&first.text, 8, 0));
    let tokenizer = model.tokenizer().unwrap();
    let whole = tokenizer.decode(&[&first.prompt_ids[..], &first.ids].concat()).unwrap();
    assert_eq!(whole, format!("{}{texts}", PROMPTS[0]));
}

#[test]
fn sequences_end_at_texts_ids_breaks_and_cancels() {
    let (_emulator, cann) = machine(Config::with_cards(CARDS));
    let mut session = start(&cann, &shipped(), 3);
    let whole = run(&mut session, &[short(PROMPTS[0])]).sequences.remove(0);
    let middle = whole.text.char_indices().nth(10).unwrap().0;
    let stop = whole.text[middle..].chars().take(3).collect::<String>();
    let first = whole.text.find(&stop).unwrap();
    let request = Request { stop_texts: vec!["nowhere".to_owned(), stop.clone()], ..short(PROMPTS[0]) };
    let found = run(&mut session, &[request]).sequences.remove(0);
    assert_eq!((found.text.as_str(), &found.finish), (&whole.text[..first], &Finish::StopText(stop)));
    assert!(whole.ids.starts_with(&found.ids) && found.ids.len() <= whole.ids.len());

    let stop_ids = Some(vec![whole.ids[3]]);
    let found = run(&mut session, &[Request { stop_ids, ..short(PROMPTS[0]) }]).sequences.remove(0);
    assert_eq!((found.ids.as_slice(), found.finish), (&whole.ids[..3], Finish::StopId(whole.ids[3])));

    let token = CancelToken::new();
    let cancelled = Request { cancel: Some(token.clone()), ..short(PROMPTS[0]) };
    let mut seen = [0; 3];
    let found = session
        .generate(&[cancelled, short(PROMPTS[0]), short(PROMPTS[0])], &mut |event| {
            let RequestEvent::Token(heard) = event else { return ControlFlow::Continue(()) };
            seen[heard.request] += 1;
            if seen[0] == 2 {
                token.cancel();
            }
            if heard.request == 1 && seen[1] == 4 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
    let lengths: Vec<_> =
        found.sequences.iter().map(|sequence| (sequence.ids.len(), sequence.finish.clone())).collect();
    assert_eq!(lengths, [(2, Finish::Cancelled), (4, Finish::Cancelled), (8, Finish::Length)]);
}

#[test]
fn two_sessions_on_the_same_cards_do_not_wait_for_each_other() {
    let model = shipped();
    let (emulator, cann) = machine(Config::with_cards(CARDS));
    let mut first = start(&cann, &model, 1);
    let bytes = |card: usize| emulator.usage()[card].used_bytes;
    let of_one = bytes(0);
    let mut second = start(&cann, &model, 1);
    let of_two = bytes(0);
    let builder = Session::builder(&cann, &model).cards(CARDS).context(32).precision(DType::F32);
    let mut third = builder.weights_of(&first).start().unwrap();
    let weights =
        third.generate(&[short("a")], &mut |_| ControlFlow::Break(())).unwrap().summary.memory[0].clone();
    let held = weights.iter().find(|(kind, _)| *kind == "weights").unwrap().1.0;
    assert!(bytes(0) - of_two < of_two - of_one - held / 2, "weights are held once");
    let expected = run(&mut first, &[short(PROMPTS[0])]).sequences;
    thread::scope(|scope| {
        for session in [&mut first, &mut second, &mut third] {
            let expected = &expected;
            scope.spawn(move || {
                for _ in 0..6 {
                    assert_eq!(run(session, &[short(PROMPTS[0])]).sequences, *expected);
                }
            });
        }
    });
    // The session that loaded the weights may end first.
    drop(first);
    assert_eq!(run(&mut third, &[short(PROMPTS[0])]).sequences, expected);
    drop((second, third, cann));
    assert_eq!(bytes(0), 0);
}

#[test]
fn weights_are_shared_between_equal_splits_only() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(3));
    let first = start(&cann, &model, 1);
    let builder = || Session::builder(&cann, &model).context(32).weights_of(&first);
    for other in [builder().cards(3).precision(DType::F32), builder().cards(CARDS).precision(DType::BF16)] {
        let message = other.start().unwrap_err().to_string();
        assert!(message.contains("has another layout of weights"), "{message}");
    }
}

#[test]
fn requests_that_do_not_fit_are_refused_together() {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(1));
    let mut session =
        Session::builder(&cann, &model).cards(1).batch(2).context(16).head(Head::LastToken).start().unwrap();
    let mut refuse = |requests: &[Request]| {
        let refused = session.generate(requests, &mut |_| ControlFlow::Continue(()));
        let Err(Error::Refused(problems)) = refused else { panic!("refused") };
        problems.items().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(refuse(&[]), ["requests: there are none: expected at least 1, found 0"]);
    let long = Request::new(vec![3; 16]);
    let greedy =
        Request { max_new_tokens: Some(15), log_probabilities: Some(1), ..Request::new(vec![99_999, 3]) };
    let found = refuse(&[
        long,
        greedy,
        Request { stop_texts: vec![String::new()], ..Request::new(Prompt::Ids(vec![])) },
        Request {
            max_new_tokens: Some(2),
            sampling: SamplingOptions {
                min_tokens: 3,
                logit_bias: [(99_999, 1.0)].into(),
                presence_penalty: 3.0,
                ..SamplingOptions::default()
            },
            ..Request::new(vec![3])
        },
    ]);
    for expected in [
        "request 0: is longer than the session supports: expected at most 15 tokens, found 16",
        "request 1: needs logits",
        "request 1: asks for no tokens, or for more than the session supports: expected 1 to 14 new tokens, found 15",
        "request 1: has a token id outside the vocabulary",
        "request 2: an empty stop text",
        "request 2: has no token",
        "request 3: sampling: presence_penalty: out of range: expected -2 to 2, found 3",
        "request 3: sampling: logit_bias: token id outside the vocabulary: expected below",
        "request 3: min_tokens is above the maximum number of new tokens: expected at most 2, found 3",
        "request 3: needs logits",
    ] {
        assert!(found.iter().any(|problem| problem.starts_with(expected)), "{expected}: {found:#?}");
    }
    assert_eq!(
        run(&mut session, &[Request { max_new_tokens: Some(1), ..Request::new("The") }]).sequences.len(),
        1
    );
}

/// New values of a weight that cause an overflow. `None` keeps the weight.
type Overflow = fn(name: &str, row: usize, column: usize) -> Option<f32>;

fn without_a_number(head: Head, overflow: Overflow) -> (String, String) {
    let model = shipped();
    let (_emulator, cann) = machine(Config::with_cards(CARDS));
    let options = Deployment {
        precision: DType::F32.into(),
        longest_prompt: 40,
        context: 48,
        head,
        ..Deployment::of(&model.config, CARDS)
    };
    let (checkpoint, engine) = (&model.checkpoint, Default::default());
    let mut session = Session::start_filled(&cann, &model.config, &options, &engine, |shards| {
        ascend_tp::weights::fill_from(checkpoint, shards, &|_| ())?;
        for part in shards.parts().filter(|part| overflow(&part.tensor().name, 0, 0).is_some()) {
            let ranges = &part.tensor().ranges;
            let columns = ranges.last().map_or(0, ExactSizeIterator::len);
            let elems: usize = ranges.iter().map(ExactSizeIterator::len).product();
            let value = |at: usize| overflow(&part.tensor().name, at / columns, at % columns).unwrap();
            part.write(0, &(0..elems).flat_map(|at| value(at).to_le_bytes()).collect::<Vec<u8>>())?;
        }
        Ok(())
    })
    .unwrap();
    let request = Request::new(vec![3, 4, 5]);
    let message = session.generate(&[request], &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    let place = message.split_once("the first value that is not finite: ").unwrap().1.to_owned();
    (message, place)
}

/// Finite weights with NaN or infinite results: NaN in a layer, and +inf first in the logits.
#[test]
fn logits_that_are_no_numbers_are_an_error_with_the_first_place() {
    // The product of two such numbers overflows f32.
    let in_a_layer: Overflow = |name, _, _| (name == "model.layers.3.mlp.up_proj.weight").then_some(1e38);
    // One nonzero element per row, so that infinities do not cancel. Every second token gets +inf.
    let in_the_logits: Overflow = |name, row, column| match name {
        "model.norm.weight" => Some(if column == 0 { 1e37 } else { 0.0 }),
        "lm_head.weight" => Some(if row % 2 == 0 { 1e7 } else { -1e7 }),
        _ => None,
    };
    for head in [Head::LastToken, Head::LastLogits] {
        let (message, place) = without_a_number(head, in_a_layer);
        assert!(message.starts_with("request 0, position 3: the l"), "{message}");
        assert!(message.contains("NaN") || message.contains("inf"), "{message}");
        assert!(place.contains("layer 3") || place.contains("layers.3"), "{message}");

        let (message, place) = without_a_number(head, in_the_logits);
        assert!(message.starts_with("request 0, position 3: the l"), "{message}");
        assert!(place.contains("logits") && place.contains("inf"), "{message}");
    }
}
