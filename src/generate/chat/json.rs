//! JSON with the formatting of Python.
//!
//! Input and output: a template's value ↔ the text of `json.dumps`, with the keys in their order.
//! Invariant: numbers, escapes and white space are the same as in Python.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

pub(super) fn loads(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a value like the filter `tojson` of transformers. `ensure_ascii` is false by default, and
/// HTML is not escaped.
#[expect(clippy::needless_pass_by_value, reason = "minijinja gives named arguments by value")]
pub(super) fn dumps(
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    separators: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let argument = |by_position: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        Ok(by_position.or(named.get(name)?).filter(|value| !value.is_none()))
    };
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let mut writer = JsonWriter {
        text: String::new(),
        is_ascii: is_true(argument(ensure_ascii, "ensure_ascii")?),
        indent: argument(indent, "indent")?.map(|indent| indent_text(&indent)).transpose()?,
        is_sorted: is_true(argument(None, "sort_keys")?),
        item_separator: String::new(),
        key_separator: ": ".to_owned(),
        depth: 0,
    };
    let separators = argument(separators, "separators")?;
    named.assert_all_used()?;
    writer.item_separator = if writer.indent.is_some() { ",".to_owned() } else { ", ".to_owned() };
    if let Some(separators) = separators {
        let texts: Vec<Value> = separators.try_iter()?.collect();
        let [Some(item), Some(key)] = [0, 1].map(|at| texts.get(at).and_then(Value::as_str)) else {
            return Err(refused("the separators of tojson must be two strings"));
        };
        (writer.item_separator, writer.key_separator) = (item.to_owned(), key.to_owned());
    }
    writer.value(value)?;
    Ok(writer.text)
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Returns the white space of one level, from a text or a number of spaces.
fn indent_text(indent: &Value) -> Result<String, Error> {
    match indent.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Ok(" ".repeat(i64::try_from(indent.clone())?.max(0) as usize)),
    }
}

struct JsonWriter {
    text: String,
    is_ascii: bool,
    is_sorted: bool,
    /// White space of one level; `None` for a single line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    depth: usize,
}

impl JsonWriter {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(&items)?;
            }
            ValueKind::Map => self.object(value)?,
            other => return Err(refused(format!("a value of type {other} has no JSON form"))),
        }
        Ok(())
    }

    fn list(&mut self, items: &[Value]) -> Result<(), Error> {
        if items.is_empty() {
            self.text.push_str("[]");
            return Ok(());
        }
        self.text.push('[');
        self.depth += 1;
        for (at, item) in items.iter().enumerate() {
            self.before(at);
            self.value(item)?;
        }
        self.end(']');
        Ok(())
    }

    fn object(&mut self, value: &Value) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if keys.is_empty() {
            self.text.push_str("{}");
            return Ok(());
        }
        if self.is_sorted {
            keys.sort();
        }
        self.text.push('{');
        self.depth += 1;
        for (at, key) in keys.iter().enumerate() {
            self.before(at);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None => self.text.push_str("\"null\""),
                ValueKind::Bool => self.text.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" }),
                ValueKind::Number => self.string(&number(key)),
                other => return Err(refused(format!("a key of type {other} has no JSON form"))),
            }
            self.text.push_str(&self.key_separator);
            self.value(&value.get_item(key)?)?;
        }
        self.end('}');
        Ok(())
    }

    /// Writes the separator and white space before an item.
    fn before(&mut self, at: usize) {
        if at > 0 {
            self.text.push_str(&self.item_separator);
        }
        self.line();
    }

    fn end(&mut self, bracket: char) {
        self.depth -= 1;
        self.line();
        self.text.push(bracket);
    }

    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            self.text.push_str(&indent.repeat(self.depth));
        }
    }

    fn string(&mut self, string: &str) {
        self.text.push('"');
        for c in string.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                c if c < ' ' || (self.is_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a `String` cannot fail.
                        let _ = write!(self.text, "\\u{unit:04x}");
                    }
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
    }
}

/// Returns the text of a number. Floats have the format of Python's `repr`.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else { return value.to_string() };
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(power) if number != 0.0 && !(-4..16).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
        }
        _ => format!("{number:?}"),
    }
}
