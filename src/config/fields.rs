//! Typed access to the fields of one JSON object, collecting every problem.
//!
//! Input: a JSON object and field names. Output: values of the wanted type, and problems located as
//! `file: field`.
//!
//! Invariants: a field that is `null` counts as absent, as for the programs that write these files.
//! Each access adds at most one problem.
//!
//! Not here: the meaning of any field.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::base::{Diagnostic, Diagnostics};

/// Largest size of any field, 2²⁸. Products of two sizes and an element's bytes stay far below 2⁶⁴.
pub const LARGEST_SIZE: usize = 1 << 28;

/// Parses a text as a JSON object.
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

/// A reader of the fields of one object.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    file: &'a str,
    /// Names of the enclosing objects, each followed by a dot.
    prefix: String,
    object: &'a Map<String, Value>,
    /// Values of fields that the object does not have.
    absent: Option<&'a Map<String, Value>>,
    /// Fields that were read.
    read: RefCell<BTreeSet<&'a str>>,
    problems: Diagnostics,
}

impl<'a> Fields<'a> {
    /// Creates a reader of a file's outermost object.
    pub(super) const fn new(file: &'a str, object: &'a Map<String, Value>) -> Self {
        Self {
            file,
            prefix: String::new(),
            object,
            absent: None,
            read: RefCell::new(BTreeSet::new()),
            problems: Diagnostics::new(),
        }
    }

    /// Returns a reader of the object in the field `name`, if there is one. Pass it to
    /// [`Self::absorb`] afterwards.
    pub(super) fn nested(&mut self, name: &str) -> Option<Self> {
        self.nested_or(name, None)
    }

    /// As [`Self::nested`], with values of fields that the object does not have.
    pub(super) fn nested_or<'b>(
        &mut self,
        name: &str,
        absent: Option<&'b Map<String, Value>>,
    ) -> Option<Fields<'b>>
    where
        'a: 'b,
    {
        match self.get(name)? {
            Value::Object(object) => Some(Fields {
                file: self.file,
                prefix: format!("{}{name}.", self.prefix),
                object,
                absent,
                read: RefCell::default(),
                problems: Diagnostics::new(),
            }),
            other => {
                self.wrong_type(name, "an object", other);
                None
            }
        }
    }

    /// Adds the problems of a nested object.
    pub(super) fn absorb(&mut self, nested: Fields<'_>) {
        self.add(nested.problems);
    }

    pub(super) fn add(&mut self, problems: Diagnostics) {
        self.problems.append(problems);
    }

    pub(super) fn into_problems(self) -> Diagnostics {
        self.problems
    }

    /// Returns the place of a problem of this field: `file: field`.
    pub(super) fn place(&self, name: &str) -> String {
        format!("{}: {}{name}", self.file, self.prefix)
    }

    pub(super) fn report(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    /// Returns the field's value unless it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let own = self.object.get_key_value(name).map(|(name, value)| {
            self.read.borrow_mut().insert(name);
            value
        });
        let is_given = |value: &&Value| !value.is_null();
        own.filter(is_given).or_else(|| self.absent?.get(name).filter(is_given))
    }

    /// Returns whether the object has the field, null included. Does not count as reading.
    pub(super) fn has(&self, name: &str) -> bool {
        self.object.contains_key(name) || self.absent.is_some_and(|absent| absent.contains_key(name))
    }

    /// Returns the names of all fields that are not null and were not read, sorted.
    pub(super) fn unread(&self) -> Vec<&'a str> {
        let read = self.read.borrow();
        let unread =
            self.object.iter().filter(|(name, value)| !value.is_null() && !read.contains(name.as_str()));
        let mut names: Vec<&str> = unread.map(|(name, _)| name.as_str()).collect();
        // The object is in the order of the file if another crate asks serde_json for it.
        names.sort_unstable();
        names
    }

    /// Reads a size: an integer from 1 to [`LARGEST_SIZE`]. Absence is a problem.
    pub(super) fn size(&mut self, name: &str) -> Option<usize> {
        let value = self.optional_size(name);
        self.require(name, value)
    }

    /// Reads a size that may be absent.
    pub(super) fn optional_size(&mut self, name: &str) -> Option<usize> {
        let value = self.get(name)?;
        self.size_of(name, value)
    }

    /// Reads the size that a field's value, or a part of it, gives.
    pub(super) fn size_of(&mut self, name: &str, value: &Value) -> Option<usize> {
        let size = value
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| (1..=LARGEST_SIZE).contains(size));
        if size.is_none() {
            self.wrong_type(name, &format!("an integer from 1 to {LARGEST_SIZE}"), value);
        }
        size
    }

    /// Reads a finite number above zero. Absence is a problem.
    pub(super) fn positive(&mut self, name: &str) -> Option<f64> {
        let value = self.optional_positive(name);
        self.require(name, value)
    }

    /// Reads a finite number above zero that may be absent.
    pub(super) fn optional_positive(&mut self, name: &str) -> Option<f64> {
        let value = self.get(name)?;
        let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        if number.is_none() {
            self.wrong_type(name, "a number above 0", value);
        }
        number
    }

    /// Reads a truth value. Absence is a problem.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.optional_flag(name);
        self.require(name, value)
    }

    /// Reads a truth value that may be absent.
    pub(super) fn optional_flag(&mut self, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.wrong_type(name, "true or false", value);
        }
        flag
    }

    /// Reads a text that may be absent.
    pub(super) fn optional_text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong_type(name, "a text", value);
        }
        text
    }

    pub(super) fn wrong_type(&mut self, name: &str, expected: &str, found: &Value) {
        self.report(
            Diagnostic::new(self.place(name), "wrong value").expected(expected).found(ShortJson(found)),
        );
    }

    /// Reports an absent field as missing. A wrong type was reported before.
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

/// A JSON value, shortened to one readable line.
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
