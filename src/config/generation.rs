//! `generation_config.json`: the tokens that end a text, and default sampling settings.
//!
//! Input: the texts of `generation_config.json`, if there is one, and of `config.json`. Output:
//! [`GenerationConfig`].
//!
//! Invariants: every id is below the vocabulary's size. Ids are in the file's order, without
//! duplicates.
//!
//! Not here: the decision to use the sampling settings.

use serde_json::Value;

use super::fields::{Fields, parse_object};
use super::tower;
use crate::base::{Diagnostic, Diagnostics};

const FILE: &str = "generation_config.json";

/// Special tokens and sampling settings of generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a text. Empty if neither file names one. Generation then ends by length
    /// only.
    pub eos_ids: Vec<u32>,
    /// Token that starts a text, if the model has one.
    pub bos_id: Option<u32>,
    /// Sampling settings of `generation_config.json`.
    pub sampling: SamplingDefaults,
}

/// The sampling settings of a `generation_config.json`. A setting that is absent or changes nothing
/// is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// Whether tokens are sampled. Without this setting, transformers takes the most likely token.
    pub do_sample: Option<bool>,
    /// Divisor of the logits.
    pub temperature: Option<f32>,
    /// Number of most likely tokens that are kept.
    pub top_k: Option<usize>,
    /// Sum of the probabilities of the kept tokens.
    pub top_p: Option<f32>,
    /// Minimum probability of a token, relative to the most likely token.
    pub min_p: Option<f32>,
    /// Penalty of tokens that are in the text already.
    pub repetition_penalty: Option<f32>,
    /// Maximum number of generated tokens.
    pub max_new_tokens: Option<usize>,
}

impl GenerationConfig {
    /// Reads both files. `config.json` counts for ids that `generation_config.json` does not have.
    ///
    /// # Errors
    /// All problems of both texts: invalid JSON, or an id that is not an integer below
    /// `vocab_size`.
    pub fn from_json(generation: Option<&str>, config: &str, vocab_size: usize) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut read = |file: &'static str, text: &str| match Self::read_file(file, text, vocab_size) {
            Ok(found) => found,
            Err(found) => {
                problems.append(found);
                Self::default()
            }
        };
        let own = generation.map(|text| read(FILE, text)).unwrap_or_default();
        let fallback = read("config.json", config);
        problems.into_result(Self {
            eos_ids: if own.eos_ids.is_empty() { fallback.eos_ids } else { own.eos_ids },
            bos_id: own.bos_id.or(fallback.bos_id),
            sampling: own.sampling,
        })
    }

    fn read_file(file: &str, text: &str, vocab_size: usize) -> Result<Self, Diagnostics> {
        let object = parse_object(file, text)?;
        let mut fields = Fields::new(file, &object);
        let mut ids = Self::read_ids(&mut fields, vocab_size);
        if file == FILE {
            ids.sampling = SamplingDefaults::read(&mut fields);
        } else if let Some(Value::Object(_)) = fields.get(tower::TEXT)
            && let Some(mut text) = fields.nested(tower::TEXT)
        {
            // Models of images and text can have the ids in the object of their text tower.
            let inner = Self::read_ids(&mut text, vocab_size);
            fields.absorb(text);
            if ids.eos_ids.is_empty() {
                ids.eos_ids = inner.eos_ids;
            }
            ids.bos_id = ids.bos_id.or(inner.bos_id);
        }
        fields.into_problems().into_result(ids)
    }

    /// Reads the ids. Sampling settings in config.json are for other versions of transformers.
    fn read_ids(fields: &mut Fields<'_>, vocab_size: usize) -> Self {
        let mut eos_ids = Vec::new();
        for id in token_ids(fields, "eos_token_id", vocab_size) {
            if !eos_ids.contains(&id) {
                eos_ids.push(id);
            }
        }
        let bos_ids = token_ids(fields, "bos_token_id", vocab_size);
        if bos_ids.len() > 1 {
            fields.report(
                Diagnostic::new(fields.place("bos_token_id"), "more than one")
                    .expected("one id")
                    .found(format!("{bos_ids:?}")),
            );
        }
        Self { eos_ids, bos_id: bos_ids.first().copied(), sampling: SamplingDefaults::default() }
    }
}

impl SamplingDefaults {
    fn read(fields: &mut Fields<'_>) -> Self {
        let top_k = fields.get("top_k").and_then(|value| {
            let top_k = value.as_i64();
            if top_k.is_none() {
                fields.wrong_type("top_k", "an integer", value);
            }
            // 0, and in some files -1, keep all tokens.
            top_k.and_then(|top_k| usize::try_from(top_k).ok()).filter(|top_k| *top_k > 0)
        });
        Self {
            do_sample: fields.optional_flag("do_sample"),
            temperature: share(fields, "temperature", f32::MAX),
            top_k,
            top_p: share(fields, "top_p", 1.0).filter(|top_p| *top_p < 1.0),
            min_p: share(fields, "min_p", 1.0).filter(|min_p| *min_p > 0.0),
            repetition_penalty: share(fields, "repetition_penalty", f32::MAX)
                .filter(|penalty| *penalty != 1.0),
            max_new_tokens: fields.optional_size("max_new_tokens"),
        }
    }
}

/// Reads a number from 0 to `largest`.
fn share(fields: &mut Fields<'_>, name: &str, largest: f32) -> Option<f32> {
    let value = fields.get(name)?;
    let number = value.as_f64().map(|number| number as f32).filter(|number| (0.0..=largest).contains(number));
    if number.is_none() {
        let expected = if largest == 1.0 { "a number from 0 to 1" } else { "a number of at least 0" };
        fields.wrong_type(name, expected, value);
    }
    number
}

/// Reads a field with one id or a list of ids.
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
    use super::{GenerationConfig, SamplingDefaults};

    fn check(generation: Option<&str>, config: &str) -> Result<GenerationConfig, String> {
        GenerationConfig::from_json(generation, config, 100).map_err(|problems| problems.to_string())
    }

    #[test]
    fn one_id_or_a_list() {
        let one = check(Some(r#"{"eos_token_id": 7, "bos_token_id": 1}"#), "{}").unwrap();
        assert_eq!(
            one,
            GenerationConfig { eos_ids: vec![7], bos_id: Some(1), ..GenerationConfig::default() }
        );
        let list = check(Some(r#"{"eos_token_id": [9, 7, 9]}"#), "{}").unwrap();
        assert_eq!(list.eos_ids, [9, 7]);
    }

    #[test]
    fn the_models_file_is_the_fallback() {
        let config = r#"{"eos_token_id": 5, "bos_token_id": 4}"#;
        assert_eq!(check(None, config).unwrap().eos_ids, [5]);
        assert_eq!(check(Some(r#"{"eos_token_id": null}"#), config).unwrap().eos_ids, [5]);
        let both = check(Some(r#"{"eos_token_id": 6}"#), config).unwrap();
        assert_eq!(
            both,
            GenerationConfig { eos_ids: vec![6], bos_id: Some(4), ..GenerationConfig::default() }
        );
        assert_eq!(check(None, "{}").unwrap(), GenerationConfig::default());
    }

    #[test]
    fn bad_ids_of_both_files_come_at_once() {
        let message =
            check(Some(r#"{"eos_token_id": [100, -1, "x"]}"#), r#"{"bos_token_id": 1000}"#).unwrap_err();
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

    #[test]
    fn sampling_settings_are_those_of_the_file() {
        let file = r#"{"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05,
            "repetition_penalty": 1.05, "max_new_tokens": 512, "transformers_version": "4.37.0"}"#;
        let expected = SamplingDefaults {
            do_sample: Some(true),
            temperature: Some(0.7),
            top_k: Some(20),
            top_p: Some(0.8),
            min_p: Some(0.05),
            repetition_penalty: Some(1.05),
            max_new_tokens: Some(512),
        };
        assert_eq!(check(Some(file), "{}").unwrap().sampling, expected);
        // Values that change nothing, as files have them; config.json has no say.
        let file =
            r#"{"do_sample": false, "top_k": 0, "top_p": 1.0, "min_p": null, "repetition_penalty": 1}"#;
        let expected = SamplingDefaults { do_sample: Some(false), ..SamplingDefaults::default() };
        assert_eq!(check(Some(file), r#"{"temperature": 3, "top_p": "x"}"#).unwrap().sampling, expected);
        let message = check(Some(r#"{"temperature": -1, "top_p": 1.5, "top_k": "x"}"#), "{}").unwrap_err();
        let expected = [
            "generation_config.json: top_k: wrong value: expected an integer, found \"x\"",
            "generation_config.json: temperature: wrong value: expected a number of at least 0, found -1",
            "generation_config.json: top_p: wrong value: expected a number from 0 to 1, found 1.5",
        ];
        assert_eq!(message, expected.join("\n"));
    }
}
