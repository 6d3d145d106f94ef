//! `/v1/completions`.

use serde_json::{Value, json};

use crate::{shared, with};

const PATH: &str = "/v1/completions";

fn body(prompt: &str, more: &Value) -> Value {
    with(json!({"model": "kjv", "prompt": prompt, "max_tokens": 12, "seed": 7}), more)
}

/// Joins the chunks of a stream into whole choices.
fn joined(events: &[Value]) -> Vec<Value> {
    let mut choices: Vec<Value> = Vec::new();
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        while choices.len() <= index {
            let new = json!({"index": choices.len(), "text": "", "logprobs": null, "finish_reason": null});
            choices.push(new);
        }
        let whole = &mut choices[index];
        assert!(whole["finish_reason"].is_null(), "a chunk after the end: {choice}");
        whole["text"] =
            (whole["text"].as_str().unwrap().to_owned() + choice["text"].as_str().unwrap()).into();
        if let Some(logprobs) = choice["logprobs"].as_object() {
            for (name, values) in logprobs {
                let all = &mut whole["logprobs"][name];
                let mut joined = all.as_array().cloned().unwrap_or_default();
                joined.extend(values.as_array().unwrap().clone());
                *all = joined.into();
            }
        }
        if !choice["finish_reason"].is_null() {
            assert_eq!(choice["text"], "", "the reason of the end has a chunk of its own");
            whole["finish_reason"] = choice["finish_reason"].clone();
        }
    }
    choices
}

#[test]
fn a_completion_has_the_fields_of_openai() {
    let answer = shared().post(PATH, &body("In the beginning", &json!({"temperature": 0}))).answer();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("kjv")));
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-") && answer["created"].is_u64(), "{answer}");
    let choice = &answer["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with(" of the Lord"), "{answer}");
    assert_eq!((&choice["finish_reason"], &choice["logprobs"]), (&json!("length"), &Value::Null));
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 0}});
    assert_eq!(answer["usage"], usage);
}

#[test]
fn sixteen_at_once_equal_each_alone() {
    let bodies: Vec<Value> = (0..16)
        .map(|at| {
            let prompt = ["In the beginning", "And the king said", "The words of", "Thou shalt"][at % 4];
            let temperature = if at % 2 == 0 { 0.0 } else { 0.9 };
            body(
                prompt,
                &json!({"logprobs": 3, "temperature": temperature, "seed": at, "max_tokens": 8 + at}),
            )
        })
        .collect();
    let alone: Vec<Value> =
        bodies.iter().map(|body| shared().post(PATH, body).answer()["choices"].clone()).collect();
    let together = std::thread::scope(|scope| {
        let threads: Vec<_> =
            bodies.iter().map(|body| scope.spawn(|| shared().post(PATH, body).answer())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()["choices"].clone()).collect::<Vec<_>>()
    });
    assert_eq!(alone, together);
    // One request with all prompts numbers its choices prompt × n.
    let many = body("", &json!({"prompt": ["The words of", "Thou shalt"], "n": 2, "logprobs": 1}));
    let many = shared().post(PATH, &many).answer();
    for (index, choice) in many["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["index"], index);
        let prompt = ["The words of", "Thou shalt"][index / 2];
        let two = shared().post(PATH, &body(prompt, &json!({"n": 2, "logprobs": 1}))).answer();
        assert_eq!(choice["text"], two["choices"][index % 2]["text"], "choice {index}");
        assert_eq!(choice["logprobs"], two["choices"][index % 2]["logprobs"], "choice {index}");
    }
}

#[test]
fn a_stream_adds_up_to_the_whole_answer() {
    for more in [
        json!({}),
        json!({"temperature": 0, "logprobs": 2}),
        json!({"n": 3, "logprobs": 0, "stop": ["the ", ","]}),
        json!({"echo": true, "n": 2}),
        json!({"prompt": [[1143, 259], [259, 2078, 4]], "stop": "\n", "max_tokens": 40}),
        json!({"ignore_eos": true, "min_tokens": 5, "top_k": 40, "top_p": 0.9, "min_p": 0.01,
            "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -0.5,
            "logit_bias": {"5": -100, "7": 1.5}}),
        // A prompt of bytes that are no characters.
        json!({"prompt": "中文 🦀", "temperature": 1.8, "max_tokens": 60, "logprobs": 1}),
    ] {
        let whole = shared().post(PATH, &body("And God said", &more)).answer();
        let mut streamed = body("And God said", &more);
        streamed["stream"] = true.into();
        streamed["stream_options"] = json!({"include_usage": true});
        let mut events = shared().post(PATH, &streamed).events();
        let last = events.pop().unwrap();
        assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]), "{more}");
        assert!(events.iter().all(|event| event.get("usage") == Some(&Value::Null)), "{more}");
        assert_eq!(joined(&events), *whole["choices"].as_array().unwrap(), "{more}");
    }
}

#[test]
fn each_chunk_has_the_usage_if_asked() {
    let more =
        json!({"stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let events = shared().post(PATH, &body("The", &more)).events();
    let counts: Vec<u64> =
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted() && counts[0] == 1 && *counts.last().unwrap() == 12, "{counts:?}");
    // Without options there is no usage.
    let events = shared().post(PATH, &body("The", &json!({"stream": true}))).events();
    assert!(events.iter().all(|event| event.get("usage").is_none()), "{events:?}");
}

#[test]
fn the_chosen_token_has_the_same_number_twice() {
    let more = json!({"logprobs": 2, "temperature": 1.5, "max_tokens": 40});
    let answer = shared().post(PATH, &body("The", &more)).answer();
    let logprobs = &answer["choices"][0]["logprobs"];
    let tokens = logprobs["tokens"].as_array().unwrap();
    for (at, token) in tokens.iter().enumerate() {
        let top = logprobs["top_logprobs"][at].as_object().unwrap();
        assert_eq!(top[token.as_str().unwrap()].to_string(), logprobs["token_logprobs"][at].to_string());
        assert!((2..=3).contains(&top.len()), "{logprobs}");
    }
    let text: String = tokens.iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(answer["choices"][0]["text"], text);
    assert_eq!(logprobs["text_offset"][0], 0);
}

#[test]
fn a_text_never_ends_inside_a_character() {
    // Each token of these is a byte of a character.
    let half = shared().post("/tokenize", &json!({"prompt": "中"})).answer()["tokens"][0].clone();
    let bias: Value = json!({half.to_string(): 100});
    let more = json!({"logit_bias": bias, "temperature": 0, "max_tokens": 1, "logprobs": 0});
    let answer = shared().post(PATH, &body("In", &more)).answer();
    assert_eq!(answer["choices"][0]["text"], "", "{answer}");
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"], json!(["bytes:\\xe4"]), "{answer}");
}

#[test]
fn echo_comes_before_the_answer() {
    let whole = shared().post(PATH, &body("And God said", &json!({}))).answer();
    let echoed = shared().post(PATH, &body("And God said", &json!({"echo": true}))).answer();
    let text = whole["choices"][0]["text"].as_str().unwrap();
    assert_eq!(echoed["choices"][0]["text"], format!("And God said{text}"));
    let alone = shared().post(PATH, &body("And God said", &json!({"echo": true, "max_tokens": 0}))).answer();
    assert_eq!(alone["choices"][0]["text"], "And God said");
    assert_eq!(alone["usage"]["completion_tokens"], 0);
}

#[test]
fn echo_has_the_log_probabilities_of_the_prompt() {
    let prompts = json!([[1143, 259, 2078], [259, 2078, 4, 9]]);
    let more = json!({"prompt": prompts, "max_tokens": 1, "logprobs": 1, "echo": true, "temperature": 0});
    for samples in [1, 2] {
        let mut body = body("", &more);
        body["n"] = samples.into();
        let answer = shared().post(PATH, &body).answer();
        for (at, choice) in answer["choices"].as_array().unwrap().iter().enumerate() {
            let (length, logprobs) = ([3, 4][at / samples], &choice["logprobs"]);
            let numbers = logprobs["token_logprobs"].as_array().unwrap();
            assert_eq!((numbers.len(), &numbers[0]), (length + 1, &Value::Null));
            assert!(numbers[1..].iter().all(Value::is_number), "{logprobs}");
            assert!(logprobs["top_logprobs"][0].is_null(), "{logprobs}");
            for (at, token) in logprobs["tokens"].as_array().unwrap().iter().enumerate().skip(1) {
                assert_eq!(logprobs["top_logprobs"][at][token.as_str().unwrap()], numbers[at]);
            }
        }
    }
}

#[test]
fn a_stop_text_ends_an_answer_before_it() {
    let answer =
        shared().post(PATH, &body("In the", &json!({"temperature": 0, "stop": ["LORD", "zzz"]}))).answer();
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
        (&json!(" day of the "), &json!("stop"))
    );
    // A stop token ends it too, and counts.
    let ids = shared().post("/tokenize", &json!({"prompt": " of"})).answer()["tokens"].clone();
    let more = json!({"temperature": 0, "stop_token_ids": ids});
    let answer = shared().post(PATH, &body("In the", &more)).answer();
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["usage"]["completion_tokens"]),
        (&json!(" day"), &json!(2))
    );
}

#[test]
fn a_seed_repeats_an_answer_and_no_seed_does_not() {
    let text = |more: Value| {
        let mut body = body("The", &more);
        if more.get("seed") == Some(&Value::Null) {
            body.as_object_mut().unwrap().remove("seed");
        }
        shared().post(PATH, &body).answer()["choices"][0]["text"].clone()
    };
    assert_eq!(text(json!({"seed": -5})), text(json!({"seed": -5})));
    assert_ne!(text(json!({"seed": 1, "max_tokens": 30})), text(json!({"seed": 2, "max_tokens": 30})));
    let without = json!({"seed": null, "max_tokens": 30});
    assert_ne!(text(without.clone()), text(without));
}

#[test]
fn all_problems_of_a_request_are_named() {
    let wrong = json!({"prompt": [5000], "temperature": -1, "top_p": "x", "n": 0, "logit_bias": {"a": 1},
        "suffix": "s", "best_of": 3, "logprobs": 21, "stream_options": {}, "stop": [""], "max_tokens": 1000,
        "unknown": 1, "user": "u", "use_beam_search": false});
    let error = shared().post(PATH, &body("", &wrong)).error(400);
    let message = error["message"].as_str().unwrap();
    for place in [
        "n: ",
        "best_of: ",
        "stream_options: ",
        "stop: ",
        "temperature: ",
        "top_p: ",
        "logit_bias: ",
        "suffix: is not supported",
        "logprobs: ",
        "prompt: has a token id",
        "max_tokens: does not fit",
    ] {
        assert!(message.lines().any(|line| line.starts_with(place)), "{place}: {message}");
    }
    assert_eq!(message.lines().count(), 11, "{message}");
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!("n")));
    let error = shared().post(PATH, &json!({"model": "gpt-4", "prompt": "a"})).error(404);
    assert_eq!(error["code"], "model_not_found");
    // The other name is the same model.
    assert_eq!(shared().post(PATH, &json!({"model": "other", "prompt": "a"})).answer()["model"], "other");
}

#[test]
fn prompts_without_a_seed_differ() {
    let choices = |seed: Value| {
        let body = json!({"prompt": ["The", "The"], "max_tokens": 30, "temperature": 1, "seed": seed});
        shared().post(PATH, &body).answer()["choices"].clone()
    };
    let seeded = choices(json!(3));
    assert_eq!(seeded[0]["text"], seeded[1]["text"]);
    let unseeded = choices(Value::Null);
    assert_ne!(unseeded[0]["text"], unseeded[1]["text"]);
}

#[test]
fn the_default_length_fits_the_context() {
    let body = json!({"prompt": vec![259; 250], "ignore_eos": true});
    assert_eq!(shared().post(PATH, &body).answer()["usage"]["completion_tokens"], 6);
}

#[test]
fn lists_have_limits() {
    let bias: serde_json::Map<String, Value> = (0..1025).map(|id| (id.to_string(), json!(1))).collect();
    for (more, expected) in [
        (
            json!({"prompt": vec!["a"; 4097]}),
            "prompt: has too many prompts for n: expected at most 4096 choices, found 4097",
        ),
        (json!({"stop_token_ids": vec![1; 257]}), "stop_token_ids: has too many ids: expected at most 256"),
        (json!({"stop": "a".repeat(257)}), "stop: has a text that is too long: expected at most 256 bytes"),
        (json!({"logit_bias": bias}), "logit_bias: has too many tokens: expected at most 1024, found 1025"),
        (
            json!({"ignore_eos": true, "response_format": {"type": "json_object"}}),
            "ignore_eos: cannot be used together with a grammar",
        ),
    ] {
        let error = shared().post(PATH, &body("The", &more)).error(400);
        assert!(error["message"].as_str().unwrap().starts_with(expected), "{error}");
    }
    // The text and the number of problems are bounded.
    let error = shared().post(PATH, &json!({"model": "x".repeat(1000), "prompt": "a"})).error(404);
    assert!(error["message"].as_str().unwrap().len() < 500, "{error}");
    let empty = json!({"prompt": vec![Vec::<u32>::new(); 1000]});
    let error = shared().post(PATH, &empty).error(400);
    assert!(
        error["message"].as_str().unwrap().ends_with("90 more of these, the last at prompt[99]"),
        "{error}"
    );
}

/// The shipped model has one special token, which a bias forces here.
#[test]
fn stop_texts_and_held_texts_include_special_tokens() {
    const SPECIAL: &str = "<|endoftext|>";
    let more = |stop: Value, tokens: usize| {
        json!({"max_tokens": tokens, "ignore_eos": true, "logit_bias": {"0": 100}, "temperature": 0,
            "skip_special_tokens": false, "stop": stop})
    };
    let two = [SPECIAL; 2].concat();
    for (stop, tokens, text, reason, used) in [
        // A stop text that ends inside of a special token, and one that begins inside of one.
        (json!("<|endoftext|><|end"), 9, "", "stop", 2),
        (json!("text|><"), 9, "<|endof", "stop", 2),
        (json!(["no", "text"]), 9, "<|endof", "stop", 1),
        // Text that was held back at the end.
        (json!("|>X"), 2, two.as_str(), "length", 2),
        (json!([]), 2, two.as_str(), "length", 2),
    ] {
        let more = more(stop.clone(), tokens);
        let answer = shared().post(PATH, &body("The", &more)).answer();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(text), &json!(reason)), "{stop}");
        assert_eq!(answer["usage"]["completion_tokens"], used, "{stop}");
        let options = json!({"stream": true, "stream_options": {"include_usage": true}});
        let events = shared().post(PATH, &with(body("The", &more), &options)).events();
        let choices = |event: &Value| event["choices"][0].clone();
        let streamed: String =
            events.iter().filter_map(|event| choices(event)["text"].as_str().map(str::to_owned)).collect();
        assert_eq!(streamed, text, "{stop}");
        assert!(events.iter().any(|event| choices(event)["finish_reason"] == reason), "{stop}");
        assert_eq!(events[events.len() - 1]["usage"]["completion_tokens"], used, "{stop}");
    }
    // Special tokens without a text are in no stop text, and end nothing.
    let hidden = json!({"skip_special_tokens": true});
    let answer = shared().post(PATH, &with(body("The", &more(json!("text"), 2)), &hidden)).answer();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(""), &json!("length")));
}

/// One sample ends by a stop text while the other one runs.
#[test]
fn each_sample_ends_by_its_own_stop_text() {
    let more = json!({"n": 2, "seed": 5, "temperature": 1, "max_tokens": 24, "ignore_eos": true});
    let whole = shared().post(PATH, &body("The", &more)).answer();
    let texts = [0, 1].map(|at| whole["choices"][at]["text"].as_str().unwrap().to_owned());
    let stop = texts[0].split_whitespace().find(|word| !texts[1].contains(word)).unwrap();
    let shown = json!({"stop": stop, "skip_special_tokens": false});
    let ended = shared().post(PATH, &with(body("The", &more), &shown)).answer();
    let expected = [texts[0].split(stop).next().unwrap(), &texts[1]];
    for (at, reason) in ["stop", "length"].into_iter().enumerate() {
        let choice = &ended["choices"][at];
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(expected[at]), &json!(reason)));
    }
}
