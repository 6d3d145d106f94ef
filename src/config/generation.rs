//! `generation_config.json`: which tokens end a text.
//!
//! Input → output: the texts of `generation_config.json`, if there is one, and of `config.json` → [`GenerationConfig`].
//! Invariants: every id is below the vocabulary's size; ids are in the file's order, each once. Sampling options of the
//! file are not read: they are the caller's choice, and greedy is the default.

use serde_json::Value;

use super::fields::{Fields, parse_object};
use crate::base::{Diagnostic, Diagnostics};

/// Special tokens of generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenerationConfig {
    /// Any of these ends the text. Empty if neither file names one: generation then ends by length only.
    pub eos_ids: Vec<u32>,
    /// The token that starts a text, where the model wants one.
    pub bos_id: Option<u32>,
}

impl GenerationConfig {
    /// Reads both files. What `generation_config.json` does not say, `config.json` may.
    ///
    /// # Errors
    /// Every problem of both texts: no JSON, an id that is no integer or not below `vocab_size`.
    pub fn from_json(generation: Option<&str>, config: &str, vocab_size: usize) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut read = |file: &'static str, text: &str| match Self::read_file(file, text, vocab_size) {
            Ok(found) => found,
            Err(found) => {
                problems.append(found);
                Self::default()
            }
        };
        let own = generation.map(|text| read("generation_config.json", text)).unwrap_or_default();
        let fallback = read("config.json", config);
        problems.into_result(Self {
            eos_ids: if own.eos_ids.is_empty() { fallback.eos_ids } else { own.eos_ids },
            bos_id: own.bos_id.or(fallback.bos_id),
        })
    }

    fn read_file(file: &str, text: &str, vocab_size: usize) -> Result<Self, Diagnostics> {
        let object = parse_object(file, text)?;
        let mut fields = Fields::new(file, &object);
        let mut eos_ids = Vec::new();
        for id in token_ids(&mut fields, "eos_token_id", vocab_size) {
            if !eos_ids.contains(&id) {
                eos_ids.push(id);
            }
        }
        let bos_ids = token_ids(&mut fields, "bos_token_id", vocab_size);
        if bos_ids.len() > 1 {
            fields.report(
                Diagnostic::new(fields.place("bos_token_id"), "more than one")
                    .expected("one id")
                    .found(format!("{bos_ids:?}")),
            );
        }
        fields.into_problems().into_result(Self { eos_ids, bos_id: bos_ids.first().copied() })
    }
}

/// The ids of a field that holds one id or a list of them.
fn token_ids(fields: &mut Fields<'_>, name: &str, vocab_size: usize) -> Vec<u32> {
    let values = match fields.get(name) {
        None => return Vec::new(),
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
    };
    let mut ids = Vec::with_capacity(values.len());
    for value in values {
        match value.as_u64() {
            Some(id) if id < vocab_size as u64 => ids.extend(u32::try_from(id)),
            Some(id) => fields.report(
                Diagnostic::new(fields.place(name), "id out of the vocabulary")
                    .expected(format!("below vocab_size = {vocab_size}"))
                    .found(id),
            ),
            None => fields.wrong_type(name, "a token id or a list of them", value),
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::GenerationConfig;

    fn check(generation: Option<&str>, config: &str) -> Result<GenerationConfig, String> {
        GenerationConfig::from_json(generation, config, 100).map_err(|problems| problems.to_string())
    }

    #[test]
    fn one_id_or_a_list() {
        let one = check(Some(r#"{"eos_token_id": 7, "bos_token_id": 1}"#), "{}").unwrap();
        assert_eq!(one, GenerationConfig { eos_ids: vec![7], bos_id: Some(1) });
        let list = check(Some(r#"{"eos_token_id": [9, 7, 9]}"#), "{}").unwrap();
        assert_eq!(list.eos_ids, [9, 7]);
    }

    #[test]
    fn the_models_file_is_the_fallback() {
        let config = r#"{"eos_token_id": 5, "bos_token_id": 4}"#;
        assert_eq!(check(None, config).unwrap().eos_ids, [5]);
        assert_eq!(check(Some(r#"{"eos_token_id": null}"#), config).unwrap().eos_ids, [5]);
        let both = check(Some(r#"{"eos_token_id": 6}"#), config).unwrap();
        assert_eq!(both, GenerationConfig { eos_ids: vec![6], bos_id: Some(4) });
        assert_eq!(check(None, "{}").unwrap(), GenerationConfig::default());
    }

    #[test]
    fn bad_ids_of_both_files_come_at_once() {
        let message = check(Some(r#"{"eos_token_id": [100, -1, "x"]}"#), r#"{"bos_token_id": 1000}"#).unwrap_err();
        let expected = [
            "generation_config.json: eos_token_id: id out of the vocabulary: \
             expected below vocab_size = 100, found 100",
            "generation_config.json: eos_token_id: wrong value: expected a token id or a list of them, found -1",
            "generation_config.json: eos_token_id: wrong value: expected a token id or a list of them, found \"x\"",
            "config.json: bos_token_id: id out of the vocabulary: expected below vocab_size = 100, found 1000",
        ];
        assert_eq!(message, expected.join("\n"));
        assert!(check(Some("{"), "[]").unwrap_err().contains("generation_config.json: not valid JSON"));
    }
}
