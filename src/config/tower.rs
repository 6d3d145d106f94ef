//! The text tower of a `config.json` of a model of images and text.
//!
//! Input: the fields of the whole file. Output: [`ModelConfig`] of the object `text_config`.
//!
//! Invariants: keys that a file can have in the whole object or in `text_config` agree. Keys of the
//! whole object are judged as in files of text models, except for descriptions of images.
//!
//! Not here: the tensors of a file (`weights/checkpoint/names.rs`).

use serde_json::{Map, Value, json};

use super::architecture::{self, Architecture};
use super::families::{Family, Tower};
use super::fields::{Fields, ShortJson, parse_object};
use super::keys;
use super::model::{self, ModelConfig};
use crate::base::{DType, Diagnostic, Diagnostics};

/// The object of the text tower.
pub(super) const TEXT: &str = "text_config";

/// Keys that can be in either object.
const SHARED: [&str; 4] = ["tie_word_embeddings", "dtype", "torch_dtype", "quantization_config"];

/// Beginnings of names of text tensors in models of images and text, and of the names in text
/// models. The first match counts.
pub(crate) const TEXT_NAMES: [(&str, &str); 3] =
    [("model.language_model.", "model."), ("language_model.model.", "model."), ("language_model.", "")];

/// Reads the text tower. `weights` returns the element type of a file that names none.
pub(super) fn read(
    fields: &mut Fields<'_>,
    family: Family,
    tower: &Tower,
    weights: impl FnOnce() -> DType,
) -> Option<ModelConfig> {
    let absent = match absent(fields, tower) {
        Ok(absent) => absent,
        Err(problems) => {
            fields.add(problems);
            return None;
        }
    };
    let Some(mut text) = fields.nested_or(TEXT, Some(&absent)) else {
        if fields.get(TEXT).is_none() {
            fields.report(
                Diagnostic::new(fields.place(TEXT), "missing")
                    .expected(format!("the configuration of the text tower of {}", tower.architecture)),
            );
        }
        return None;
    };
    architecture::check_text(&mut text, family);
    for key in SHARED {
        if let (Some(outer), Some(inner)) = (fields.get(key), text.get(key))
            && outer != inner
        {
            fields.report(
                Diagnostic::new(fields.place(key), format!("differs from {TEXT}.{key}"))
                    .expected(ShortJson(inner))
                    .found(ShortJson(outer)),
            );
        }
    }
    let config = model::read(&mut text, family, weights);
    fields.absorb(text);
    fields.get("vision_config");
    keys::check(fields, family, config.as_ref());
    config
}

/// Returns the values of keys that the object of the text tower does not have.
fn absent(fields: &Fields<'_>, tower: &Tower) -> Result<Map<String, Value>, Diagnostics> {
    let mut absent = parse_object("values of the class", tower.absent)?;
    let given = SHARED.into_iter().filter_map(|key| Some((key.to_owned(), fields.get(key)?.clone())));
    absent.extend(given);
    Ok(absent)
}

impl ModelConfig {
    /// Returns the text of a `config.json` of the text model alone. The text of a text model is
    /// returned as it is.
    ///
    /// # Errors
    /// The architecture is not known, or the text has no object of a text tower.
    #[doc(hidden)]
    pub fn text_alone(file: &str, text: &str) -> Result<String, Diagnostics> {
        let object = parse_object(file, text)?;
        let mut fields = Fields::new(file, &object);
        let found = architecture::read(&mut fields, Family::ALL);
        let absent = match found {
            Some(Architecture::Tower(_, tower)) => absent(&fields, tower)?,
            Some(Architecture::Text(_)) | None => Map::new(),
        };
        fields.into_problems().into_result(())?;
        let (Some(Architecture::Tower(family, _)), Some(Value::Object(tower))) = (found, object.get(TEXT))
        else {
            return Ok(text.to_owned());
        };
        let mut alone = absent;
        alone.extend(
            tower
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        alone.insert("architectures".to_owned(), json!([family.architecture()]));
        alone.insert("model_type".to_owned(), json!(family.model_type()));
        Ok(format!("{:#}\n", Value::Object(alone)))
    }
}
