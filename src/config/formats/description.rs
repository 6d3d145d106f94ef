//! The description that msModelSlim writes: one entry per tensor, with its scheme.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Layers with an unknown scheme. Their formats are not known.
    pub unknown: BTreeSet<String>,
}

impl Description {
    /// Reads the text of a description. Problems name the file as `file`.
    ///
    /// All problems are added to `problems`: an unknown scheme, tensors of one layer with different
    /// schemes, and a text without tensors. With unknown schemes, the other layers are known.
    pub fn from_json(file: &str, text: &str, problems: &mut Diagnostics) -> Option<Self> {
        let object = parse_object(file, text).map_err(|found| problems.append(found)).ok()?;
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
            return None;
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
        let unknown = schemes.iter().filter(|(_, scheme)| scheme.is_none());
        let unknown = unknown.filter_map(|(name, _)| Some(name.rsplit_once('.')?.0.to_owned())).collect();
        Some(Self { formats, tensors: schemes.into_keys().map(str::to_owned).collect(), unknown })
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
