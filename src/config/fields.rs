//! Typed access to the fields of one JSON object, collecting every problem.
//!
//! Input → output: a JSON object and field names → values of the wanted type, problems located as
//! `file: field`. Invariants: a field that is `null` counts as absent, as it does for the programs
//! that write these files; each access adds at most one problem. It knows no meaning of any field.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::base::{Diagnostic, Diagnostics};

/// The largest size any field may have, 2²⁸. Products of two sizes and an element's bytes stay far
/// below 2⁶⁴.
pub const LARGEST_SIZE: usize = 1 << 28;

/// The JSON object that `text` is.
///
/// # Errors
/// The text is no JSON, or not an object.
pub(super) fn parse_object(file: &str, text: &str) -> Result<Map<String, Value>, Diagnostics> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Diagnostic::new(file, "not a JSON object")
            .expected("an object of fields")
            .found(kind(&other))
            .into()),
        Err(error) => Err(Diagnostic::new(file, "not valid JSON").found(error).into()),
    }
}

/// Reads the fields of one object.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    file: &'a str,
    /// What stands before a field's name: empty, or the names of the enclosing objects with a dot
    /// after each.
    prefix: String,
    object: &'a Map<String, Value>,
    /// The fields that were asked for.
    read: RefCell<BTreeSet<&'a str>>,
    problems: Diagnostics,
}

impl<'a> Fields<'a> {
    /// The fields of a file's outermost object.
    pub(super) const fn new(file: &'a str, object: &'a Map<String, Value>) -> Self {
        Self {
            file,
            prefix: String::new(),
            object,
            read: RefCell::new(BTreeSet::new()),
            problems: Diagnostics::new(),
        }
    }

    /// The fields of the object that is the field `name`, if it is there. Its problems come back by
    /// [`Self::absorb`].
    pub(super) fn nested(&mut self, name: &str) -> Option<Self> {
        match self.get(name)? {
            Value::Object(object) => Some(Self {
                file: self.file,
                prefix: format!("{}{name}.", self.prefix),
                object,
                read: RefCell::default(),
                problems: Diagnostics::new(),
            }),
            other => {
                self.wrong_type(name, "an object", other);
                None
            }
        }
    }

    /// Takes over the problems of a nested object.
    pub(super) fn absorb(&mut self, nested: Fields<'_>) {
        self.problems.append(nested.problems);
    }

    /// The problems found so far.
    pub(super) fn into_problems(self) -> Diagnostics {
        self.problems
    }

    /// `file: field`, where a problem of this field is.
    pub(super) fn place(&self, name: &str) -> String {
        format!("{}: {}{name}", self.file, self.prefix)
    }

    /// Adds a problem.
    pub(super) fn report(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    /// The field's value unless it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let (name, value) = self.object.get_key_value(name)?;
        self.read.borrow_mut().insert(name);
        (!value.is_null()).then_some(value)
    }

    /// The names of all fields that are not null and were not asked for, sorted.
    pub(super) fn unread(&self) -> Vec<&'a str> {
        let read = self.read.borrow();
        let unread =
            self.object.iter().filter(|(name, value)| !value.is_null() && !read.contains(name.as_str()));
        unread.map(|(name, _)| name.as_str()).collect()
    }

    /// A size: an integer from 1 to [`LARGEST_SIZE`]. Absent is a problem.
    pub(super) fn size(&mut self, name: &str) -> Option<usize> {
        let value = self.optional_size(name);
        self.require(name, value)
    }

    /// A size that may be absent.
    pub(super) fn optional_size(&mut self, name: &str) -> Option<usize> {
        let value = self.get(name)?;
        let size = value
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| (1..=LARGEST_SIZE).contains(size));
        if size.is_none() {
            self.wrong_type(name, &format!("an integer from 1 to {LARGEST_SIZE}"), value);
        }
        size
    }

    /// A finite number above zero. Absent is a problem.
    pub(super) fn positive(&mut self, name: &str) -> Option<f64> {
        let value = self.optional_positive(name);
        self.require(name, value)
    }

    /// A finite number above zero that may be absent.
    pub(super) fn optional_positive(&mut self, name: &str) -> Option<f64> {
        let value = self.get(name)?;
        let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        if number.is_none() {
            self.wrong_type(name, "a number above 0", value);
        }
        number
    }

    /// A truth value. Absent is a problem.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.optional_flag(name);
        self.require(name, value)
    }

    /// A truth value that may be absent.
    pub(super) fn optional_flag(&mut self, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.wrong_type(name, "true or false", value);
        }
        flag
    }

    /// A text that may be absent.
    pub(super) fn optional_text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong_type(name, "a text", value);
        }
        text
    }

    /// Reports a value that is not what the field holds.
    pub(super) fn wrong_type(&mut self, name: &str, expected: &str, found: &Value) {
        self.report(
            Diagnostic::new(self.place(name), "wrong value").expected(expected).found(ShortJson(found)),
        );
    }

    /// Reports the field as missing when it is absent (and not merely of a wrong type, which is
    /// reported already).
    fn require<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        if self.get(name).is_none() {
            self.report(
                Diagnostic::new(self.place(name), "missing")
                    .help("add the field as the model's publisher wrote it; there is no safe default"),
            );
        }
        value
    }
}

/// A JSON value, cut to one readable line.
pub(super) struct ShortJson<'a>(pub(super) &'a Value);

impl fmt::Display for ShortJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 80;
        let text = self.0.to_string();
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => write!(f, "{}…", &text[..end]),
            None => f.write_str(&text),
        }
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
