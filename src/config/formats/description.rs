//! The description that msModelSlim writes: one entry per tensor, with its scheme.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Formats, WeightFormat};
use crate::base::{Diagnostic, Diagnostics};
use crate::config::fields::{ShortJson, parse_object};

/// Names of the description in the folder of a checkpoint. Older files have the name of the scheme.
pub const DESCRIPTIONS: [&str; 3] = [
    "quant_model_description.json",
    "quant_model_description_w8a8.json",
    "quant_model_description_w8a8_dynamic.json",
];

/// The schemes of all tensors of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Formats of the layers.
    pub formats: Formats,
    /// Names of the described tensors.
    pub tensors: Vec<String>,
}

impl Description {
    /// Reads the text of a description. Problems name the file as `file`.
    ///
    /// # Errors
    /// All problems: an unknown scheme, tensors of one layer with different schemes, and a text
    /// without tensors.
    pub fn from_json(file: &str, text: &str) -> Result<Self, Diagnostics> {
        let object = parse_object(file, text)?;
        let mut problems = Diagnostics::new();
        let mut schemes: BTreeMap<&str, Option<WeightFormat>> = BTreeMap::new();
        // Keys without a dot describe the file.
        for (name, value) in object.iter().filter(|(name, _)| name.contains('.')) {
            let scheme = scheme(value);
            if scheme.is_none() {
                let problem = Diagnostic::new(format!("{file}: {name}"), "unknown scheme");
                let problem = problem.expected("FLOAT, W8A8 or W8A8_DYNAMIC").found(ShortJson(value));
                problems.push(problem.help("use the checkpoint the quantised one was made from"));
            }
            schemes.insert(name, scheme);
        }
        if schemes.is_empty() {
            let problem = Diagnostic::new(file, "names no tensor");
            problems.push(problem.expected("an entry for each tensor, such as `….weight`: `W8A8`"));
        }
        let mut named = BTreeMap::new();
        for (name, scheme) in &schemes {
            let Some((layer, suffix)) = name.rsplit_once('.') else { continue };
            let of_weight = schemes.get(format!("{layer}.weight").as_str());
            if let (Some(Some(of_weight)), Some(scheme)) = (of_weight, scheme)
                && of_weight != scheme
                && suffix != "bias"
            {
                let problem =
                    Diagnostic::new(format!("{file}: {name}"), "another scheme than the layer's weight");
                problems.push(problem.expected(of_weight).found(scheme));
            }
            if let (Some(scheme), "weight") = (scheme, suffix)
                && *scheme != WeightFormat::Float
            {
                named.insert(layer.to_owned(), *scheme);
            }
        }
        let formats = Formats { named, ..Formats::default() };
        problems.into_result(Self { formats, tensors: schemes.into_keys().map(str::to_owned).collect() })
    }
}

fn scheme(value: &Value) -> Option<WeightFormat> {
    match value.as_str()? {
        "FLOAT" => Some(WeightFormat::Float),
        "W8A8" => Some(WeightFormat::Int8Static),
        "W8A8_DYNAMIC" => Some(WeightFormat::Int8),
        _ => None,
    }
}
