//! Answers that follow a grammar: JSON schemas, choices, and forced tool calls.

use serde_json::{Value, json};

use crate::{Running, Setup, shared};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Number of tokens that suffices for every answer of these tests.
const ENOUGH: usize = 900;

/// A linear congruential generator (Knuth's MMIX): a fixed set of schemas.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Returns a schema for texts of bounded length.
fn schema(random: &mut Random, depth: u64) -> Value {
    let kinds = if depth == 0 { 7 } else { 10 };
    match random.below(kinds) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "null"}),
        2 => json!({"type": "integer", "minimum": 0, "maximum": 10 + random.below(1000)}),
        3 => json!({"type": "string", "maxLength": 1 + random.below(8)}),
        4 => json!({"type": "string", "pattern": "^[a-z]{2,4}-[0-9]{1,2}$"}),
        5 => json!({"enum": ["Cain", "Abel", 7, null]}),
        6 => json!({"const": {"verse": random.below(30)}}),
        7 => {
            let least = random.below(2);
            json!({"type": "array", "items": schema(random, 0), "minItems": least, "maxItems": least + random.below(3)})
        }
        8 => json!({"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": 9}]}),
        _ => object(random, depth - 1),
    }
}

fn object(random: &mut Random, depth: u64) -> Value {
    let names = ["name", "age", "wise", "sons", "land"];
    let count = 1 + random.below(3) as usize;
    let properties: serde_json::Map<String, Value> =
        names[..count].iter().map(|name| ((*name).to_owned(), schema(random, depth))).collect();
    let required = &names[..1 + random.below(count as u64) as usize];
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// Returns whether the value has the form of one of the schemas above.
fn is_valid(schema: &Value, value: &Value) -> bool {
    if let Some(allowed) = schema["enum"].as_array() {
        return allowed.contains(value);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().any(|option| is_valid(option, value));
    }
    if !schema["const"].is_null() {
        return schema["const"] == *value;
    }
    let within = |number: u64, least: &str, most: &str| {
        schema[least].as_u64().is_none_or(|least| number >= least)
            && schema[most].as_u64().is_none_or(|most| number <= most)
    };
    match (schema["type"].as_str().unwrap(), value) {
        ("boolean", Value::Bool(_)) | ("null", Value::Null) => true,
        ("integer", Value::Number(number)) => {
            number.as_u64().is_some_and(|number| within(number, "minimum", "maximum"))
        }
        ("string", Value::String(text)) if schema["pattern"].is_string() => {
            let parts = text.split_once('-');
            parts.is_some_and(|(word, number)| {
                (2..=4).contains(&word.len())
                    && word.bytes().all(|byte| byte.is_ascii_lowercase())
                    && (1..=2).contains(&number.len())
                    && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        }
        ("string", Value::String(text)) => within(text.chars().count() as u64, "minLength", "maxLength"),
        ("array", Value::Array(items)) => {
            within(items.len() as u64, "minItems", "maxItems")
                && items.iter().all(|item| is_valid(&schema["items"], item))
        }
        ("object", Value::Object(fields)) => {
            let properties = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().unwrap();
            required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields.iter().all(|(name, value)| {
                    properties.get(name).is_some_and(|property| is_valid(property, value))
                })
        }
        _ => false,
    }
}

#[test]
fn the_validator_refuses_other_forms() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"], "additionalProperties": false});
    assert!(is_valid(&schema, &json!({"a": 9})));
    for wrong in [json!({"a": 10}), json!({"a": "9"}), json!({}), json!({"a": 1, "b": 2}), json!([1])] {
        assert!(!is_valid(&schema, &wrong), "{wrong}");
    }
}

/// The tiny model writes nonsense at temperature 1, and the grammar turns it into valid JSON.
#[test]
fn a_hundred_schemas_have_valid_answers() {
    let running = Running::start(Setup { context: 1000, ..Setup::default() });
    let mut random = Random(1);
    let schemas: Vec<Value> = (0..100).map(|_| object(&mut random, 2)).collect();
    let client = running.client();
    std::thread::scope(|scope| {
        for part in schemas.chunks(schemas.len().div_ceil(16)) {
            scope.spawn(move || {
                for schema in part {
                    let format = json!({"type": "json_schema",
                        "json_schema": {"name": "answer", "schema": schema, "strict": true}});
                    let body = json!({"messages": [{"role": "user", "content": "And the king said"}],
                        "max_tokens": ENOUGH, "temperature": 1, "response_format": format});
                    let answer = client.post(CHAT, &body).answer();
                    let choice = &answer["choices"][0];
                    assert_eq!(choice["finish_reason"], "stop", "{schema}: {answer}");
                    let text = choice["message"]["content"].as_str().unwrap();
                    let value: Value = serde_json::from_str(text).unwrap();
                    assert!(is_valid(schema, &value), "{schema}: {value}");
                }
            });
        }
    });
    running.end().unwrap();
}

#[test]
fn an_answer_is_one_of_the_choices() {
    let body = json!({"prompt": "The", "structured_outputs": {"choice": ["alpha", "beta"]}, "temperature": 1,
        "seed": 4, "n": 4});
    let answer = shared().post(COMPLETIONS, &body).answer();
    for choice in answer["choices"].as_array().unwrap() {
        assert!(["alpha", "beta"].map(Value::from).contains(&choice["text"]), "{answer}");
        assert_eq!(choice["finish_reason"], "stop");
    }
}

#[test]
fn a_grammar_that_cannot_be_is_refused_with_its_field() {
    for (more, field) in [
        (json!({"structured_outputs": {"regex": "("}}), "structured_outputs"),
        (json!({"structured_outputs": {"choice": ["a"]}, "ignore_eos": true}), "ignore_eos"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 7}}}}),
            "response_format",
        ),
    ] {
        let mut body = json!({"prompt": "The", "max_tokens": 4});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = shared().post(COMPLETIONS, &body).error(400);
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

/// A template that shows the format of Hermes. It renders as the shipped one.
const WITH_TOOLS: &str = "{%- for message in messages -%}{{- message.content -}}{%- endfor -%}\
    {#- <tool_call> {\"name\": } </tool_call> -#}";

fn tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"enum": ["Bethel", "Hebron"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"],
        "additionalProperties": false});
    json!({"type": "function", "function": {"name": name, "description": "Tells.", "parameters": parameters}})
}

fn is_call(call: &Value, names: &[&str]) -> bool {
    let function = &call["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    names.contains(&function["name"].as_str().unwrap())
        && ["Bethel", "Hebron"].contains(&arguments["city"].as_str().unwrap())
        && (1..=9).contains(&arguments["days"].as_u64().unwrap())
}

#[test]
fn forced_tools_are_called_whole_and_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("tools.jinja");
    std::fs::write(&template, WITH_TOOLS).unwrap();
    let running = Running::start(Setup { template: Some(template), context: 1000, ..Setup::default() });
    let client = running.client();
    let base = json!({"messages": [{"role": "user", "content": "Go up"}], "max_tokens": ENOUGH, "seed": 2,
        "temperature": 1, "tools": [tool("weather"), tool("harvest")]});
    let named = json!({"type": "function", "function": {"name": "harvest"}});
    for (choice, names, finish) in
        [(json!("required"), &["weather", "harvest"][..], "tool_calls"), (named, &["harvest"], "stop")]
    {
        let mut body = base.clone();
        body["tool_choice"] = choice;
        body["parallel_tool_calls"] = json!(false);
        let answer = client.post(CHAT, &body).answer();
        let whole = &answer["choices"][0];
        assert_eq!(whole["finish_reason"], finish, "{answer}");
        let calls = whole["message"]["tool_calls"].as_array().unwrap();
        assert!(calls.len() == 1 && is_call(&calls[0], names), "{answer}");
        body["stream"] = json!(true);
        let events = client.post(CHAT, &body).events();
        let (mut name, mut arguments, mut finishes) = (String::new(), String::new(), Vec::new());
        for choice in events.iter().map(|event| &event["choices"][0]) {
            for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                assert_eq!(call["index"], 0);
                name.push_str(call["function"]["name"].as_str().unwrap_or_default());
                arguments.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
            }
            finishes.extend(choice["finish_reason"].as_str());
        }
        let function = &calls[0]["function"];
        assert_eq!((&json!(name), &json!(arguments)), (&function["name"], &function["arguments"]));
        assert_eq!(finishes, [finish]);
    }
    running.end().unwrap();
}
