//! Fields of a JSON body, read one by one.
//!
//! - Input: the bytes of a body.
//! - Output: typed values, and all problems at once.
//! - Invariants: `null` means the same as a missing field. A field is read at most once.
//! - Not here: the meaning of the values.

use std::collections::BTreeMap;

use ascend_tp::Diagnostics;
use ascend_tp::base::Diagnostic;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::ApiError;

/// Number of problems after which the items of a list are no longer read.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// The fields of an object, and the problems found so far.
#[derive(Debug)]
pub(crate) struct RequestFields {
    /// Prefix of the names in problems, such as `messages[2].`.
    place: String,
    values: BTreeMap<String, Box<RawValue>>,
    pub(crate) problems: Diagnostics,
}

impl RequestFields {
    /// Reads the object of a body.
    ///
    /// # Errors
    /// The body is not a JSON object.
    pub(crate) fn of_body(body: &[u8]) -> Result<Self, ApiError> {
        let values = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the body is not a JSON object: {error}")))?;
        Ok(Self { place: String::new(), values, problems: Diagnostics::new() })
    }

    /// Reads the object of a field, whose own fields are named in problems as `place.name`.
    ///
    /// # Errors
    /// The field is not an object.
    pub(crate) fn of_field(place: &str, value: &RawValue) -> Result<Self, Diagnostic> {
        let values = serde_json::from_str(value.get())
            .map_err(|error| Diagnostic::new(place, "is not an object").found(short(&error.to_string())))?;
        Ok(Self { place: format!("{place}."), values, problems: Diagnostics::new() })
    }

    /// Returns the name of a field in problems.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("{}{name}", self.place)
    }

    /// Adds a problem of a field.
    pub(crate) fn problem(&mut self, name: &str, message: &str) {
        let place = self.place(name);
        self.problems.push(Diagnostic::new(place, message));
    }

    /// Returns whether so many problems were found that further items of a list are not read.
    pub(crate) fn has_many_problems(&self) -> bool {
        self.problems.items().len() >= MAX_PROBLEMS
    }

    /// Adds problems that the library found in the value of a field.
    pub(crate) fn problems_in(&mut self, name: &str, found: &Diagnostics) {
        let place = self.place(name);
        for problem in found.items() {
            self.problems.push(Diagnostic::new(&place, problem.to_string()));
        }
    }

    /// Returns the value of a field; none if it is missing, null, or has the wrong type.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.raw(name)?;
        match serde_json::from_str(value.get()) {
            Ok(value) => Some(value),
            Err(error) => {
                let problem = Diagnostic::new(self.place(name), "has the wrong type or value");
                self.problems.push(problem.found(short(&error.to_string())));
                None
            }
        }
    }

    /// Returns the JSON text of a field; none if it is missing or null.
    pub(crate) fn raw(&mut self, name: &str) -> Option<Box<RawValue>> {
        self.values.remove(name).filter(|value| value.get() != "null")
    }

    /// Returns the value of a field that must be there.
    pub(crate) fn require<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        if self.values.get(name).is_none_or(|value| value.get() == "null") {
            self.problem(name, "is missing");
        }
        self.take(name)
    }

    /// Refuses fields that would change the answer, unless they have the value that changes
    /// nothing.
    pub(crate) fn refuse(&mut self, refused: &[RefusedField]) {
        for RefusedField { name, unchanged, help } in refused {
            let Some(value) = self.raw(name) else { continue };
            if !unchanged.contains(&value.get()) {
                let problem = Diagnostic::new(self.place(name), "is not supported");
                self.problems.push(if help.is_empty() { problem } else { problem.help(help) });
            }
        }
    }

    /// Returns the fields that were not read.
    pub(crate) fn rest(&mut self) -> BTreeMap<String, Box<RawValue>> {
        std::mem::take(&mut self.values)
    }

    /// Returns all problems so far, if there are any.
    ///
    /// # Errors
    /// A field has a problem.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ApiError::of_fields(&self.problems)) }
    }

    /// Returns the value, or all problems.
    ///
    /// # Errors
    /// A field has a problem.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(ApiError::of_fields(&self.problems)),
        }
    }
}

/// A field that is not supported.
#[derive(Debug)]
pub(crate) struct RefusedField {
    pub(crate) name: &'static str,
    /// JSON texts of values that have no effect.
    pub(crate) unchanged: &'static [&'static str],
    /// Help in the message, such as the field to use instead; may be empty.
    pub(crate) help: &'static str,
}

/// Returns the beginning of a text of the user, for messages.
pub(crate) fn short(message: &str) -> String {
    const LONGEST: usize = 200;
    match message.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_come_at_once() {
        let body = br#"{"a": "x", "b": null, "c": -1, "suffix": "s", "echo": false}"#;
        let mut fields = RequestFields::of_body(body).unwrap();
        assert_eq!(fields.take::<f32>("a"), None);
        assert_eq!(fields.require::<usize>("b"), None);
        assert_eq!(fields.take::<u32>("c"), None);
        let refused = |name, unchanged| RefusedField { name, unchanged, help: "" };
        fields.refuse(&[refused("suffix", &[]), refused("echo", &["false"])]);
        let error = fields.finish(Some(())).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("a"));
        let lines: Vec<&str> = error.message.lines().collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!((lines[1], lines[3]), ("b: is missing", "suffix: is not supported"));
    }

    #[test]
    fn a_body_is_an_object() {
        let nested = "[".repeat(100_000);
        for body in ["", "[]", "1", "{", r#"{"a": 1e}"#, &format!("{{\"a\": {nested}"), "\u{FFFD}"] {
            let error = RequestFields::of_body(body.as_bytes()).unwrap_err();
            assert!(error.message.starts_with("the body is not a JSON object"), "{error}");
        }
        assert!(RequestFields::of_body(b"{\"a\": \"\xff\"}").is_err());
    }
}
