//! The Jinja environment of transformers' chat templates.
//!
//! Input: a [`TemplateClock`]. Output: a minijinja environment. Invariants: blocks are trimmed as
//! in transformers. Filters, tests, functions and methods give the results of Jinja2 in Python. An
//! error in Jinja2 is an error here, never another text. Not here: the variables of a template.

use std::fmt::Write;
use std::time::SystemTime;

use chrono::{DateTime, Local};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::json;

/// The time that `strftime_now` formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TemplateClock {
    /// Current time in the system's time zone.
    #[default]
    System,
    /// Fixed time, shown in the system's time zone.
    Fixed(SystemTime),
}

impl TemplateClock {
    /// Makes `strftime_now` of an environment use this clock.
    pub(super) fn set(self, environment: &mut Environment<'static>) {
        environment.add_function("strftime_now", move |format: &str| strftime(self, format));
    }
}

/// Returns the environment of chat templates, without a template.
pub(super) fn environment(clock: TemplateClock) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    minijinja_contrib::add_to_environment(&mut environment);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(method);
    environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.to_string()))
    });
    clock.set(&mut environment);
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_filter("tojson", json::dumps);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("center", |text: &str, width: Option<usize>| {
        justify(text, "center", width.unwrap_or(80), " ")
    });
    environment.add_test("sequence", is_sequence);
    environment
        .add_test("iterable", |value: &Value| is_sequence(value) || value.kind() == ValueKind::Iterable);
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    Ok(environment)
}

/// Returns the fallback if the value is undefined, or with `boolean` if it is false.
#[expect(clippy::needless_pass_by_value, reason = "minijinja gives named arguments by value")]
fn default(value: &Value, fallback: Value, boolean: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let boolean = boolean.or(named.get("boolean")?).is_some_and(|boolean| boolean.is_true());
    named.assert_all_used()?;
    Ok(if value.is_undefined() || (boolean && !value.is_true()) { fallback } else { value.clone() })
}

/// Returns whether Jinja2 treats the value as a sequence, which has a length and items.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Bytes, Map, Seq, String, Undefined};
    matches!(value.kind(), Bytes | Map | Seq | String | Undefined)
}

fn strftime(clock: TemplateClock, format: &str) -> Result<String, Error> {
    let now: DateTime<Local> = match clock {
        TemplateClock::System => Local::now(),
        TemplateClock::Fixed(time) => time.into(),
    };
    let mut text = String::new();
    match write!(text, "{}", now.naive_local().format(format)) {
        Ok(()) => Ok(text),
        Err(_) => {
            Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now cannot format {format:?}")))
        }
    }
}

/// Calls a method of Python that minijinja does not have.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = text_method(text, name, args)?
    {
        return Ok(result);
    }
    if value.kind() == ValueKind::Seq && name == "index" {
        let (item,): (&Value,) = from_args(args)?;
        let at = value.try_iter()?.position(|found| found == *item);
        return at
            .map(Value::from)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the list has no such item"));
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

/// Calls a method of strings. Returns `None` for other methods.
fn text_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "split" => split(text, args)?,
        "rsplit" => rsplit(text, args)?,
        "partition" | "rpartition" => partition(text, name, args)?,
        "index" | "rindex" => index(text, name, args)?,
        "ljust" | "rjust" | "center" | "zfill" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            Value::from(justify(text, name, width, fill.unwrap_or(" ")))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(text.chars().map(swapped).collect::<String>())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase())
        }
        _ => return Ok(None),
    }))
}

/// The separator and the maximum number of splits, for `split` and `rsplit`.
struct Splits<'a> {
    separator: Option<&'a str>,
    /// Maximum number of splits; `None` without a limit.
    limit: Option<usize>,
}

impl<'a> Splits<'a> {
    fn of(args: &'a [Value]) -> Result<Self, Error> {
        let (separator, limit, named): (Option<&Value>, Option<i64>, Kwargs) = from_args(args)?;
        let limit = limit.or(named.get("maxsplit")?);
        let separator = match separator.filter(|separator| !separator.is_none()) {
            None => None,
            Some(separator) => Some(separator.as_str().filter(|text| !text.is_empty()).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidOperation,
                    "the separator of split must be a string that is not empty",
                )
            })?),
        };
        // Python accepts `sep` by name, but templates rarely use it.
        if separator.is_none() && named.has("sep") {
            return Err(Error::new(ErrorKind::InvalidOperation, "give the separator of split by position"));
        }
        named.assert_all_used()?;
        Ok(Self { separator, limit: limit.and_then(|limit| usize::try_from(limit).ok()) })
    }
}

fn split(text: &str, args: &[Value]) -> Result<Value, Error> {
    Ok(match Splits::of(args)? {
        Splits { separator: Some(separator), limit: None } => {
            text.split(separator).map(Value::from).collect()
        }
        Splits { separator: Some(separator), limit: Some(limit) } => {
            text.splitn(limit + 1, separator).map(Value::from).collect()
        }
        Splits { separator: None, limit: None } => text.split_whitespace().map(Value::from).collect(),
        Splits { separator: None, limit: Some(limit) } => {
            let mut parts = Vec::new();
            let mut rest = text.trim_start();
            while !rest.is_empty() {
                let end = if parts.len() < limit { rest.find(char::is_whitespace) } else { None };
                let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
                parts.push(Value::from(part));
                rest = behind.trim_start();
            }
            Value::from(parts)
        }
    })
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let mut parts: Vec<Value> = match Splits::of(args)? {
        Splits { limit: None, .. } => return split(text, args),
        Splits { separator: Some(separator), limit: Some(limit) } => {
            text.rsplitn(limit + 1, separator).map(Value::from).collect()
        }
        Splits { separator: None, limit: Some(limit) } => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end();
            while !rest.is_empty() {
                let space = if parts.len() < limit {
                    rest.char_indices().rfind(|(_, c)| c.is_whitespace())
                } else {
                    None
                };
                let start = space.map_or(0, |(at, space)| at + space.len_utf8());
                parts.push(Value::from(&rest[start..]));
                rest = rest[..start].trim_end();
            }
            parts
        }
    };
    parts.reverse();
    Ok(Value::from(parts))
}

fn partition(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let is_first = name == "partition";
    let found = if is_first { text.split_once(separator) } else { text.rsplit_once(separator) };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if is_first => [text, "", ""],
        None => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// Returns the position of a text, in characters.
fn index(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    let found = if name == "index" { text.find(part) } else { text.rfind(part) };
    let at = found.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
    Ok(Value::from(text[..at].chars().count()))
}

/// Pads a text to a width, in characters.
fn justify(text: &str, name: &str, width: usize, fill: &str) -> String {
    let missing = width.saturating_sub(text.chars().count());
    match name {
        "ljust" => format!("{text}{}", fill.repeat(missing)),
        "rjust" => format!("{}{text}", fill.repeat(missing)),
        "center" => {
            // For an odd width, Python puts the odd character on the left.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))
        }
        _ => {
            let sign = usize::from(text.starts_with(['+', '-']));
            format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..])
        }
    }
}

/// Capitalizes each word. As in Python, a word is a sequence of letters.
fn title(text: &str) -> String {
    let mut is_inside = false;
    let mut titled = String::with_capacity(text.len());
    for c in text.chars() {
        if is_inside {
            titled.extend(c.to_lowercase());
        } else {
            titled.extend(c.to_uppercase());
        }
        is_inside = c.is_alphabetic();
    }
    titled
}

/// Returns the character in the other case.
fn swapped(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}
