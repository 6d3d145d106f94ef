//! JSON values that keep the order of their keys.
//!
//! Input and output: a JSON text ↔ [`Json`]. Invariant: an object keeps all keys in their order,
//! because chat templates write objects in that order. Duplicate keys are kept too, so that the
//! reader can report them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Maximum number of characters of a value in a message.
const SHOWN: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    /// A number, `true` or `false`, as its JSON text.
    Plain(String),
    Text(String),
    List(Vec<Self>),
    Object(Vec<Member>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) value: Json,
}

impl Json {
    /// Returns the beginning of the value's JSON text, for messages.
    pub(super) fn shown(&self) -> String {
        let text = self.to_string();
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Plain(text) => out.write_str(text),
            Self::Text(text) => quoted(text, out),
            Self::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    write!(out, "{}{item}", if at == 0 { "[" } else { ", " })?;
                }
                out.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Self::Object(members) => {
                for (at, member) in members.iter().enumerate() {
                    out.write_str(if at == 0 { "{" } else { ", " })?;
                    quoted(&member.name, out)?;
                    write!(out, ": {}", member.value)?;
                }
                out.write_str(if members.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn quoted(text: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "{}", serde_json::Value::from(text))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Plain(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Plain(serde_json::Value::from(value).to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element()? {
            found.push(item);
        }
        Ok(Json::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut found = Vec::new();
        while let Some((name, value)) = members.next_entry()? {
            found.push(Member { name, value });
        }
        Ok(Json::Object(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_order() {
        let text = r#"{"z": [1, -2, 1.5, true, null, []], "a": {"é\"": "x\n", "b": {}}}"#;
        let found: Json = serde_json::from_str(text).unwrap();
        assert_eq!(found.to_string(), text);
        assert_eq!(found.shown(), r#"{"z": [1, -2, 1.5, true, null, []], "a":…"#);
    }
}
