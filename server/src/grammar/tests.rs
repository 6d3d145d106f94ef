//! Tests of grammars: random answers against their schemas, masks, forced calls, errors.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::LazyLock;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use regex::Regex;
use serde_json::{Value, json};

use ascend_tp::generate::Tokenizer;
use ascend_tp::generate::tokenizer::Vocabulary;

use super::{CACHED, Constraint, ConstraintCompiler, Grammar, GrammarCompiler, MAX_GRAMMAR_BYTES};
use crate::output::{
    AnswerFormat, AnswerParser, AnswerPart, CallCount, ForcedTool, ReasoningParserKind, ToolParserKind,
};

/// A vocabulary with its compiler.
struct Model {
    vocabulary: Vocabulary,
    compiler: GrammarCompiler,
    stop_ids: Vec<u32>,
}

impl Model {
    fn new(vocabulary: Vocabulary, stop_ids: &[u32]) -> Self {
        let compiler = GrammarCompiler::new(&vocabulary, stop_ids).unwrap();
        Self { vocabulary, compiler, stop_ids: stop_ids.to_vec() }
    }

    /// Returns a model with one token per byte, and the given special tokens.
    fn of_bytes(special: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vocabulary: serde_json::Map<String, Value> =
            (0..256).map(|byte| (format!("<0x{byte:02X}>"), byte.into())).collect();
        let special = ["<end>", "<end2>"].iter().chain(special).enumerate();
        let added: Vec<Value> = special
            .map(|(at, content)| {
                json!({"id": 256 + at, "content": content, "special": true, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false})
            })
            .collect();
        let size = 256 + added.len();
        let model = json!({"type": "WordLevel", "vocab": vocabulary, "unk_token": "<0x00>"});
        let tokenizer = json!({"version": "1.0", "added_tokens": added, "model": model});
        std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        // Padding rows, as published models have.
        Self::new(Tokenizer::open(dir.path(), size + 7).unwrap().vocabulary(), &[256, 257])
    }

    fn constraint(&self, grammar: &Grammar) -> Box<dyn Constraint> {
        self.compiler.compile(grammar).unwrap()
    }

    /// Returns the text of an answer of random tokens that the grammar allows.
    fn sample(&self, grammar: &Grammar, seed: u64) -> String {
        const MAX_TOKENS: usize = 3000;
        let mut random = StdRng::seed_from_u64(seed);
        let mut constraint = self.constraint(grammar);
        let mut bytes = Vec::new();
        for _ in 0..MAX_TOKENS {
            let allowed = ids(constraint.mask().unwrap());
            let id = allowed[random.random_range(0..allowed.len())];
            constraint.accept(id).unwrap();
            if self.stop_ids.contains(&id) {
                assert_eq!(ids(constraint.mask().unwrap()), self.stop_ids);
                return String::from_utf8(bytes).unwrap();
            }
            bytes.extend_from_slice(self.vocabulary.bytes(id));
        }
        panic!("no end: {:.200}", String::from_utf8_lossy(&bytes));
    }

    /// Returns whether the grammar allows a text, byte by byte, and then an end.
    fn allows(&self, grammar: &Grammar, text: &str) -> bool {
        let mut constraint = self.constraint(grammar);
        let mut tokens = text.bytes().map(u32::from).chain([self.stop_ids[0]]);
        tokens.all(|id| ids(constraint.mask().unwrap()).contains(&id) && constraint.accept(id).is_ok())
    }
}

static SHIPPED: LazyLock<Model> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/kjv-qwen2");
    Model::new(Tokenizer::open(&dir, 4096).unwrap().vocabulary(), &[0])
});

static BYTES: LazyLock<Model> = LazyLock::new(|| Model::of_bytes(&[]));

fn ids(mask: &[u32]) -> Vec<u32> {
    (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect()
}

/// Returns the first problem of a value under a JSON schema with the keywords of these tests.
fn problem(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let Value::Object(fields) = schema else {
        return (schema == &json!(false)).then(|| format!("{value}: nothing is allowed"));
    };
    let size = |value: &Value| value.as_u64().unwrap() as usize;
    let holds = |key: &str, limit: &Value| -> Result<bool, String> {
        let inner = |schema: &Value, value: &Value| problem(root, schema, value).map_or(Ok(true), Err);
        let all = |schema: &Value, values: &[Value]| {
            values.iter().try_for_each(|value| inner(schema, value).map(drop)).map(|()| true)
        };
        let matching = |schemas: &Value| {
            schemas.as_array().unwrap().iter().filter(|schema| problem(root, schema, value).is_none()).count()
        };
        Ok(match (key, value) {
            ("type", _) => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    _ => value.is_object(),
                };
                limit.as_array().map_or_else(|| is(limit), |names| names.iter().any(is))
            }
            ("const", _) => value == limit,
            ("enum", _) => limit.as_array().unwrap().contains(value),
            ("anyOf", _) => matching(limit) > 0,
            ("oneOf", _) => matching(limit) == 1,
            ("allOf", _) => matching(limit) == limit.as_array().unwrap().len(),
            ("$ref", _) => return inner(root.pointer(&limit.as_str().unwrap()[1..]).unwrap(), value),
            ("minimum", Value::Number(number)) => number.as_f64() >= limit.as_f64(),
            ("maximum", Value::Number(number)) => number.as_f64() <= limit.as_f64(),
            ("exclusiveMinimum", Value::Number(number)) => number.as_f64() > limit.as_f64(),
            ("exclusiveMaximum", Value::Number(number)) => number.as_f64() < limit.as_f64(),
            ("multipleOf", Value::Number(number)) => {
                (number.as_f64().unwrap() / limit.as_f64().unwrap()).fract() == 0.0
            }
            ("minLength", Value::String(text)) => text.chars().count() >= size(limit),
            ("maxLength", Value::String(text)) => text.chars().count() <= size(limit),
            ("pattern", Value::String(text)) => Regex::new(limit.as_str().unwrap()).unwrap().is_match(text),
            ("minItems", Value::Array(items)) => items.len() >= size(limit),
            ("maxItems", Value::Array(items)) => items.len() <= size(limit),
            ("prefixItems", Value::Array(items)) => {
                let pairs = limit.as_array().unwrap().iter().zip(items);
                return pairs
                    .map(|(schema, item)| inner(schema, item))
                    .collect::<Result<Vec<_>, _>>()
                    .map(|_| true);
            }
            ("items", Value::Array(items)) => {
                let prefix = fields.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                return all(limit, items.get(prefix..).unwrap_or_default());
            }
            ("required", Value::Object(object)) => {
                limit.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
            }
            ("properties", Value::Object(object)) => {
                for (name, value) in object {
                    limit.get(name).map_or(Ok(true), |schema| inner(schema, value))?;
                }
                true
            }
            ("patternProperties" | "additionalProperties", Value::Object(object)) => {
                let pattern = fields
                    .get("patternProperties")
                    .and_then(Value::as_object)
                    .and_then(|all| all.iter().next());
                for (name, value) in object {
                    let known = fields.get("properties").and_then(|known| known.get(name));
                    let matching = pattern.filter(|(pattern, _)| Regex::new(pattern).unwrap().is_match(name));
                    match (known, matching) {
                        (Some(_), _) => {}
                        (None, Some((_, schema))) => drop(inner(schema, value)?),
                        (None, None) if key == "additionalProperties" => drop(inner(limit, value)?),
                        (None, None) => {}
                    }
                }
                true
            }
            _ => true,
        })
    };
    fields.iter().find_map(|(key, limit)| match holds(key, limit) {
        Ok(true) => None,
        Ok(false) => Some(format!("{value}: {key} {limit}")),
        Err(problem) => Some(problem),
    })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn schemas() -> Vec<Value> {
    let word = json!({"type": "string", "maxLength": 6});
    let count = json!({"type": "integer", "minimum": -3, "maximum": 120});
    let node = object(
        &json!({"value": count, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}),
        &["value", "next"],
    );
    vec![
        json!({"type": "null"}),
        json!({"type": "boolean"}),
        json!({"const": {"a": [1, "x", null]}}),
        json!({"enum": ["red", "green", 3, null, true]}),
        count.clone(),
        json!({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000}),
        json!({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2}),
        json!({"type": "number", "exclusiveMinimum": -1, "maximum": 1}),
        word.clone(),
        json!({"type": "string", "minLength": 3, "maxLength": 5}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$"}),
        json!({"type": ["string", "null", "boolean"], "maxLength": 3}),
        json!({"type": "array", "items": count, "minItems": 2, "maxItems": 4}),
        json!({"type": "array", "prefixItems": [word, {"type": "boolean"}], "items": false, "minItems": 2}),
        json!({"type": "array", "maxItems": 3,
            "items": {"type": "array", "items": {"type": "null"}, "maxItems": 2}}),
        object(&json!({"name": word, "age": count}), &["name", "age"]),
        object(&json!({"name": word, "age": count, "note": {"type": "boolean"}}), &["age"]),
        object(&json!({}), &[]),
        json!({"type": "object", "properties": {"a": count}, "required": ["a"],
            "patternProperties": {"^[b-d]{1,2}$": {"type": "boolean"}}, "additionalProperties": false}),
        json!({"anyOf": [count, object(&json!({"x": word}), &["x"])]}),
        json!({"oneOf": [object(&json!({"kind": {"const": "a"}, "n": count}), &["kind", "n"]),
            object(&json!({"kind": {"const": "b"}, "w": word}), &["kind", "w"])]}),
        json!({"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 9}]}),
        json!({"$ref": "#/$defs/node", "$defs": {"node": node}}),
    ]
}

#[test]
fn random_answers_match_their_schema() {
    let mut texts = BTreeSet::new();
    for schema in schemas() {
        let grammar = Grammar::JsonSchema(schema.to_string());
        for seed in 0..8 {
            for model in [&*SHIPPED, &*BYTES] {
                let text = model.sample(&grammar, seed);
                let value =
                    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{schema}: {text}: {error}"));
                assert_eq!(problem(&schema, &schema, &value), None, "{schema}");
                texts.insert(text);
            }
        }
    }
    assert!(texts.len() > 150, "{}", texts.len());
}

#[test]
fn the_check_of_these_tests_finds_wrong_values() {
    for (schema, value) in [
        (json!({"type": "integer"}), json!(0.5)),
        (json!({"enum": [1]}), json!(2)),
        (json!({"multipleOf": 7}), json!(8)),
        (json!({"exclusiveMaximum": 2}), json!(2)),
        (json!({"maxLength": 2}), json!("abc")),
        (json!({"pattern": "^a$"}), json!("ab")),
        (json!({"items": {"type": "null"}}), json!([null, 1])),
        (json!({"prefixItems": [true], "items": false}), json!([1, 2])),
        (json!({"required": ["a"]}), json!({"b": 1})),
        (json!({"properties": {"a": {"const": 1}}}), json!({"a": 2})),
        (json!({"additionalProperties": false}), json!({"a": 2})),
        (
            json!({"patternProperties": {"a": {"type": "null"}}, "additionalProperties": true}),
            json!({"a": 2}),
        ),
        (json!({"oneOf": [true, true]}), json!(1)),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}), json!(1)),
    ] {
        assert!(problem(&schema, &schema, &value).is_some(), "{schema}: {value}");
    }
}

#[test]
fn a_grammar_allows_its_texts_only() {
    let all = [
        (Grammar::Json, r#"{"a": [1, {"b": null}], "é": "中"}"#, r#"["a"]"#),
        (Grammar::Json, "{\n  \"a\": {\n    \"b\": 1\n  }\n}", "1"),
        (Grammar::Json, r#"{"a":1}"#, r#"{"a":   1}"#),
        (Grammar::JsonSchema("true".to_owned()), "[1]", "[1"),
        (Grammar::Regex("[a-c]{2,3}(x|yz)?".to_owned()), "abyz", "abyzz"),
        (Grammar::Regex("a*".to_owned()), "", "b"),
        (Grammar::Regex("é/中\n".to_owned()), "é/中\n", "é/"),
        (Grammar::Lark("start: (\"a\" | b)+\nb: \"<\" start \">\"".to_owned()), "a<<a>a>", "a<a"),
    ];
    for (grammar, good, bad) in all {
        assert!(BYTES.allows(&grammar, good), "{grammar:?}: {good}");
        assert!(!BYTES.allows(&grammar, bad), "{grammar:?}: {bad}");
    }
}

#[test]
fn a_mask_has_the_tokens_that_are_accepted() {
    let grammar = Grammar::JsonSchema(schemas()[15].to_string());
    let prefix = [b"{\"name\"".as_slice(), b": \"a"].concat();
    let at_prefix = || {
        let mut constraint = BYTES.constraint(&grammar);
        prefix.iter().for_each(|byte| constraint.accept(u32::from(*byte)).unwrap());
        constraint
    };
    let mut constraint = at_prefix();
    let allowed = ids(constraint.mask().unwrap());
    assert_eq!(constraint.mask().unwrap().len(), BYTES.vocabulary.len().div_ceil(32));
    for id in 0..BYTES.vocabulary.len() as u32 {
        assert_eq!(at_prefix().accept(id).is_ok(), allowed.contains(&id), "{id}");
    }
}

#[test]
fn a_complete_text_ends_by_a_stop_id() {
    let mut constraint = BYTES.constraint(&Grammar::Regex("ab?".to_owned()));
    assert_eq!(ids(constraint.mask().unwrap()), [u32::from(b'a')]);
    assert!(BYTES.constraint(&Grammar::Regex("ab?".to_owned())).accept(256).is_err());
    constraint.accept(u32::from(b'a')).unwrap();
    assert_eq!(ids(constraint.mask().unwrap()), [u32::from(b'b'), 256, 257]);
    constraint.accept(u32::from(b'b')).unwrap();
    for _ in 0..3 {
        assert_eq!(ids(constraint.mask().unwrap()), [256, 257]);
        constraint.accept(257).unwrap();
    }
    let error = constraint.accept(u32::from(b'b')).unwrap_err().to_string();
    assert!(error.starts_with("grammar: a token does not match the grammar: found id 98"), "{error}");
}

#[test]
fn unsupported_features_are_named_at_once() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": {"type": "array", "uniqueItems": true, "items": {"not": {"type": "null"}}},
            "not": {"const": {"not": 1}},
            "b": {"anyOf": [{"format": "iri"}, {"$ref": "http://example.com"}]},
        },
        "x-guidance": {"lenient": true},
        "x-order": 1,
        "title": "T",
    });
    let error = SHIPPED.compiler.compile(&Grammar::JsonSchema(schema.to_string())).unwrap_err().to_string();
    let feature = "the schema has a feature that grammars do not support";
    let formats = super::schema::FORMATS.join(", ");
    assert_eq!(
        error.lines().collect::<Vec<_>>(),
        [
            format!("JSON schema: #/properties/a: {feature}: found `uniqueItems`"),
            format!("JSON schema: #/properties/a/items: {feature}: found `not`"),
            format!("JSON schema: #/properties/b/anyOf/0: {feature}: expected {formats}, found format `iri`"),
            format!(
                "JSON schema: #/properties/b/anyOf/1: {feature}: expected a reference that begins with #/, \
                 found $ref `http://example.com`"
            ),
            format!("JSON schema: #: {feature}: found `x-guidance`"),
        ]
    );
}

#[test]
fn supported_formats_compile() {
    for format in super::schema::FORMATS {
        let schema = json!({"type": "string", "format": format});
        BYTES.constraint(&Grammar::JsonSchema(schema.to_string()));
    }
}

#[test]
fn malformed_grammars_are_errors() {
    let schema = |text: &str| Grammar::JsonSchema(text.to_owned());
    let lark = |text: &str| Grammar::Lark(text.to_owned());
    let regex = |text: &str| Grammar::Regex(text.to_owned());
    let deep = "(".repeat(100_000);
    for (grammar, start) in [
        (schema("{"), "JSON schema: the schema is no JSON text: found"),
        (schema("3"), "JSON schema: #: the schema is malformed: expected an object or a boolean, found 3"),
        (schema("false"), "JSON schema: the grammar cannot be compiled: found"),
        (
            schema(r#"{"type": "text"}"#),
            "JSON schema: the grammar cannot be compiled: found Invalid type: text",
        ),
        (schema(r##"{"$ref": "#/$defs/a"}"##), "JSON schema: the grammar cannot be compiled: found"),
        (
            schema(r#"{"type": "integer", "minimum": 2, "maximum": 1}"#),
            "JSON schema: the grammar cannot be compiled",
        ),
        (
            schema(r#"{"oneOf": [{"type": "string"}, {"type": "string"}]}"#),
            "JSON schema: the grammar cannot be",
        ),
        (regex("("), "regular expression: the grammar cannot be compiled: found"),
        (regex(&deep), "regular expression: the grammar cannot be compiled: found"),
        (lark(""), "grammar: the grammar cannot be compiled: found"),
        (lark("start: a"), "grammar: the grammar cannot be compiled: found"),
        (lark(&format!("start: {deep}")), "grammar: the grammar cannot be compiled: found"),
        (lark("start: <no_such_token>"), "grammar: the grammar cannot be compiled: found"),
    ] {
        match BYTES.compiler.compile(&grammar) {
            Ok(_) => panic!("{grammar:.100?} compiles"),
            Err(error) => assert!(error.to_string().starts_with(start), "{error:.500}"),
        }
    }
}

#[test]
fn a_vocabulary_without_a_stop_id_is_refused() {
    let error = GrammarCompiler::new(&BYTES.vocabulary, &[9999]).unwrap_err().to_string();
    let expected = "grammar: the vocabulary cannot be used for grammars: \
                    expected a stop id that ends an answer, found none; \
                    set eos_token_id in generation_config.json";
    assert_eq!(error, expected);
}

#[test]
fn the_cache_is_bounded_and_sequences_share_nothing() {
    let model = Model::of_bytes(&[]);
    let grammar = |index: usize| Grammar::Regex(format!("x{{{index}}}"));
    for index in 1..=CACHED + 5 {
        model.constraint(&grammar(index));
    }
    model.constraint(&grammar(10));
    let cache = model.compiler.cache.lock().unwrap();
    assert_eq!((cache.len(), &cache[0].0, &cache[CACHED - 1].0), (CACHED, &grammar(6), &grammar(10)));
    drop(cache);
    let (mut first, mut second) = (model.constraint(&grammar(1)), model.constraint(&grammar(1)));
    first.accept(u32::from(b'x')).unwrap();
    assert_eq!(ids(first.mask().unwrap()), [256, 257]);
    assert_eq!(ids(second.mask().unwrap()), [u32::from(b'x')]);
}

/// Returns the text and the calls of an answer.
fn parsed(format: AnswerFormat, text: &str) -> (String, Vec<(String, String)>) {
    let mut parser = AnswerParser::new(format);
    let mut parts = parser.push(text);
    parts.extend(parser.finish());
    let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for part in parts {
        match part {
            AnswerPart::Text(more) => text += &more,
            AnswerPart::Reasoning(_) => {}
            AnswerPart::ToolCallStart { name, .. } => calls.push((name, String::new())),
            AnswerPart::ToolCallArguments { index, fragment } => calls[index].1 += &fragment,
        }
    }
    (text, calls)
}

#[test]
fn forced_answers_are_calls() {
    let schemas = [
        object(&json!({"city": {"type": "string", "maxLength": 5}}), &["city"]),
        json!({"properties": {"at": {"$ref": "#/$defs/hour"}}, "required": ["at"],
            "additionalProperties": false,
            "$defs": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}}}),
    ];
    let tools = [
        ForcedTool { name: "get_weather", parameters: &schemas[0] },
        ForcedTool { name: "set-alarm", parameters: &schemas[1] },
    ];
    let markers: Vec<&str> =
        ToolParserKind::ALL.iter().flat_map(|kind| kind.special_texts()).copied().collect();
    let special = Model::of_bytes(&markers);
    for kind in ToolParserKind::ALL {
        let mut seen = BTreeSet::new();
        for (model, count) in
            [(&*BYTES, CallCount::One), (&special, CallCount::Many), (&SHIPPED, CallCount::Many)]
        {
            let grammar = model.compiler.forced_calls(kind, &tools, count).unwrap();
            for seed in 0..6 {
                let answer = model.sample(&grammar, seed);
                let (text, calls) =
                    parsed(AnswerFormat { tools: Some(kind), ..AnswerFormat::default() }, &answer);
                assert_eq!(text, "", "{answer}");
                assert!(calls.len() == 1 || (count == CallCount::Many && !calls.is_empty()), "{answer}");
                for (name, arguments) in &calls {
                    let schema = &schemas[tools.iter().position(|tool| tool.name == name).unwrap()];
                    let arguments = serde_json::from_str(arguments).unwrap();
                    assert_eq!(problem(schema, schema, &arguments), None, "{answer}");
                    seen.insert(name.clone());
                }
            }
        }
        assert_eq!(seen.len(), 2, "{kind}");
    }
}

#[test]
fn special_markers_are_one_token() {
    let model = Model::of_bytes(&["[TOOL_CALLS]", "[ARGS]"]);
    let tools = [ForcedTool { name: "f", parameters: &json!({}) }];
    let grammar = model.compiler.forced_calls(ToolParserKind::Mistral, &tools, CallCount::One).unwrap();
    let mut constraint = model.constraint(&grammar);
    for id in [258, u32::from(b'f'), 259, u32::from(b'{')] {
        assert_eq!(ids(constraint.mask().unwrap()), [id]);
        constraint.accept(id).unwrap();
    }
}

#[test]
fn schemas_of_all_tools_are_checked() {
    let (first, second) = (json!({"not": {}}), json!({"properties": {"a": {"if": true}}}));
    let tools = [ForcedTool { name: "f", parameters: &first }, ForcedTool { name: "g", parameters: &second }];
    let forced = |tools| BYTES.compiler.forced_calls(ToolParserKind::Hermes, tools, CallCount::One);
    let error = forced(&tools).unwrap_err().to_string();
    let mut expected = String::new();
    let feature = "the schema has a feature that grammars do not support";
    let _ = writeln!(expected, "tool f: #: {feature}: found `not`");
    let _ = write!(expected, "tool g: #/properties/a: {feature}: found `if`");
    assert_eq!(error, expected);
    assert!(forced(&[]).is_err());
}

#[test]
fn reasoning_comes_before_the_text() {
    let think = ReasoningParserKind::Think;
    let after = |model: &Model, kind, starts_inside, grammar: &Grammar| {
        model.compiler.after_reasoning(kind, starts_inside, grammar).unwrap()
    };
    let forced = || {
        let tools = [ForcedTool { name: "f", parameters: &Value::Null }];
        BYTES.compiler.forced_calls(ToolParserKind::Hermes, &tools, CallCount::One).unwrap()
    };
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    for (grammar, text) in [
        (Grammar::Json, "{}"),
        (Grammar::JsonSchema(r#"{"type": "null"}"#.to_owned()), "null"),
        (Grammar::Regex("a/b".to_owned()), "a/b"),
        (Grammar::Lark("start: \"a\" NUMBER\nNUMBER: /[0-9]/".to_owned()), "a1"),
        (forced(), call),
    ] {
        let inside = after(&BYTES, think, true, &grammar);
        assert!(BYTES.allows(&inside, &format!("a < b\n</think>\n\n{text}")), "{inside:?}");
        assert!(!BYTES.allows(&inside, text));
        let outside = after(&BYTES, think, false, &grammar);
        assert!(BYTES.allows(&outside, &format!("<think>\na</think>{text}")));
        assert!(BYTES.allows(&outside, text));
        assert!(!BYTES.allows(&outside, &format!("a</think>{text}")));
    }
    let model = Model::of_bytes(&["[THINK]", "[/THINK]"]);
    let mut constraint =
        model.constraint(&after(&model, ReasoningParserKind::Magistral, false, &Grammar::Json));
    for id in [258, u32::from(b'a'), 259, u32::from(b'{'), u32::from(b'}'), 256] {
        assert!(ids(constraint.mask().unwrap()).contains(&id), "{id}");
        constraint.accept(id).unwrap();
    }
}

#[test]
fn long_chains_get_an_answer_or_an_error() {
    const LINKS: usize = 3000;
    let mut refs = serde_json::Map::from_iter([(format!("r{LINKS}"), json!({"type": "null"}))]);
    refs.extend((0..LINKS).map(|at| (format!("r{at}"), json!({"$ref": format!("#/$defs/r{}", at + 1)}))));
    let schema = json!({"$defs": refs, "$ref": "#/$defs/r0"}).to_string();
    let rules: String = (0..LINKS).map(|at| format!("r{at}: \"a\" r{}\n", at + 1)).collect();
    let lark = format!("start: r0\n{rules}r{LINKS}: \"b\"\n");
    for grammar in [Grammar::JsonSchema(schema), Grammar::Lark(lark)] {
        if let Ok(mut constraint) = BYTES.compiler.compile(&grammar) {
            constraint.mask().unwrap();
        }
    }
}

#[test]
fn a_long_grammar_is_refused() {
    let long = "a".repeat(MAX_GRAMMAR_BYTES + 1);
    let error = BYTES.compiler.compile(&Grammar::Regex(long)).err().unwrap().to_string();
    let expected = "regular expression: the text of the grammar is too long: \
                    expected at most 131072 bytes, found 131073";
    assert_eq!(error, expected);
}
