//! Checks of JSON schemas, before they become grammars.
//!
//! All unsupported keywords of a schema are reported at once. Keywords that JSON Schema does not
//! define are annotations, and have no effect.

use ascend_tp::Diagnostics;
use ascend_tp::base::Diagnostic;
use serde_json::{Map, Value, json};

use super::{MAX_GRAMMAR_BYTES, too_long};
use crate::fields::{MAX_PROBLEMS, short};

/// Keywords of JSON Schema that no grammar expresses.
const UNSUPPORTED: [&str; 20] = [
    "not",
    "if",
    "then",
    "else",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    OPTIONS,
];

pub(super) const FORMATS: [&str; 11] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"];

/// Field of a schema with options of llguidance.
const OPTIONS: &str = "x-guidance";

/// Keywords with a schema or a list of schemas.
const SCHEMAS: [&str; 8] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "prefixItems",
    "allOf",
    "anyOf",
    "oneOf",
    "contains",
];

/// Keywords with a schema per name.
const NAMED_SCHEMAS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Parses and prepares a JSON schema.
pub(super) fn parse(text: &str, whitespace: &str) -> Result<Value, Diagnostics> {
    const PLACE: &str = "JSON schema";
    let schema = serde_json::from_str(text)
        .map_err(|error| Diagnostic::new(PLACE, "the schema is no JSON text").found(error))?;
    prepare(PLACE, schema, whitespace)
}

/// Checks a JSON schema, and adds the whitespace that its texts may have.
pub(super) fn prepare(place: &str, schema: Value, whitespace: &str) -> Result<Value, Diagnostics> {
    let bytes = schema.to_string().len();
    if bytes > MAX_GRAMMAR_BYTES {
        return Err(too_long(place, bytes).into());
    }
    let mut problems = Diagnostics::new();
    check(&format!("{place}: #"), &schema, &mut problems);
    if problems.is_empty() { Ok(with_whitespace(schema, whitespace)) } else { Err(problems) }
}

/// Adds the whitespace between the parts of a JSON text.
pub(super) fn with_whitespace(schema: Value, whitespace: &str) -> Value {
    let mut fields = match schema {
        Value::Object(fields) => fields,
        // A boolean schema has no fields.
        other => Map::from_iter([("allOf".to_owned(), json!([other]))]),
    };
    fields.insert(OPTIONS.to_owned(), json!({"whitespace_pattern": whitespace}));
    Value::Object(fields)
}

fn check(place: &str, schema: &Value, problems: &mut Diagnostics) {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Bool(_) => return,
        other => {
            let problem = Diagnostic::new(place, "the schema is malformed");
            problems.push(problem.expected("an object or a boolean").found(short(&other.to_string())));
            return;
        }
    };
    for (key, value) in fields {
        if problems.items().len() >= MAX_PROBLEMS {
            return;
        }
        let unsupported = |what: String| {
            Diagnostic::new(place, "the schema has a feature that grammars do not support").found(what)
        };
        let inner = format!("{place}/{}", short(key));
        match (key.as_str(), value) {
            (key, _) if UNSUPPORTED.contains(&key) => problems.push(unsupported(format!("`{key}`"))),
            ("format", Value::String(format)) if !FORMATS.contains(&format.as_str()) => {
                problems
                    .push(unsupported(format!("format `{}`", short(format))).expected(FORMATS.join(", ")));
            }
            ("$ref", Value::String(target)) if target != "#" && !target.starts_with("#/") => {
                problems.push(
                    unsupported(format!("$ref `{}`", short(target)))
                        .expected("a reference that begins with #/"),
                );
            }
            (key, Value::Array(schemas)) if SCHEMAS.contains(&key) => {
                for (index, schema) in schemas.iter().enumerate() {
                    check(&format!("{inner}/{index}"), schema, problems);
                }
            }
            (key, schema) if SCHEMAS.contains(&key) => check(&inner, schema, problems),
            (key, Value::Object(schemas)) if NAMED_SCHEMAS.contains(&key) => {
                for (name, schema) in schemas {
                    check(&format!("{inner}/{}", short(name)), schema, problems);
                }
            }
            _ => {}
        }
    }
}
