//! The architecture that a `config.json` names.
//!
//! Input: the keys `architectures` and `model_type`. Output: an [`Architecture`].
//!
//! Invariants: a name that is known and not supported is refused with the reason. Both keys agree.
//!
//! Not here: the other keys.

use super::families::{Family, Tower, UNSUPPORTED};
use super::fields::Fields;
use crate::base::Diagnostic;

/// The model of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Architecture {
    /// A text model.
    Text(Family),
    /// A model of images and text, and the family of its text tower.
    Tower(Family, &'static Tower),
}

/// Reads the architecture.
pub(super) fn read(fields: &mut Fields<'_>, families: &[Family]) -> Option<Architecture> {
    let architecture = named(fields);
    let model_type = fields.optional_text("model_type");
    let known = |is_text: &dyn Fn(Family) -> bool, is_tower: &dyn Fn(&Tower) -> bool| {
        let text = families.iter().copied().find(|family| is_text(*family)).map(Architecture::Text);
        let tower = Family::of_tower(families, is_tower);
        text.or(tower.map(|(family, tower)| Architecture::Tower(family, tower)))
    };
    let (name, field, found) = match (architecture, model_type) {
        (Some(name), _) => (
            name,
            "architectures",
            known(&|family| family.architecture() == name, &|tower| tower.architecture == name),
        ),
        (None, Some(name)) => {
            // Some families have the same `model_type` with and without images.
            let is_whole = fields.has("text_config");
            let is_text = |family: Family| family.has_model_type(name) && !is_whole;
            (name, "model_type", known(&is_text, &|tower| tower.model_type == name && is_whole))
        }
        (None, None) => {
            if fields.get("architectures").is_none() && fields.get("model_type").is_none() {
                fields.report(
                    Diagnostic::new(fields.place("architectures"), "missing")
                        .expected(list(families))
                        .help("name the model's architecture"),
                );
            }
            return None;
        }
    };
    let Some(found) = found else {
        let unsupported = UNSUPPORTED.iter().find(|architecture| architecture.names.contains(&name));
        let message = if unsupported.is_some() { "unsupported architecture" } else { "unknown architecture" };
        let mut problem =
            Diagnostic::new(fields.place(field), message).expected(list(families)).found(format!("`{name}`"));
        problem.help = unsupported.map(|architecture| architecture.reason.to_owned());
        fields.report(problem);
        return None;
    };
    match found {
        Architecture::Text(family) => check_model_type(fields, family),
        Architecture::Tower(_, tower) => {
            if let Some(model_type) = model_type.filter(|name| *name != tower.model_type) {
                contradicts(fields, "model_type", tower.architecture, tower.model_type, model_type);
            }
        }
    }
    Some(found)
}

/// Refuses the object of a text tower if it names another architecture than `family`.
pub(super) fn check_text(fields: &mut Fields<'_>, family: Family) {
    if let Some(name) = named(fields).filter(|name| *name != family.architecture()) {
        contradicts(fields, "architectures", family.architecture(), family.architecture(), name);
    }
    check_model_type(fields, family);
}

fn check_model_type(fields: &mut Fields<'_>, family: Family) {
    if let Some(name) = fields.optional_text("model_type").filter(|name| !family.has_model_type(name)) {
        contradicts(fields, "model_type", family.architecture(), family.model_type(), name);
    }
}

fn contradicts(fields: &mut Fields<'_>, field: &str, architecture: &str, expected: &str, found: &str) {
    fields.report(
        Diagnostic::new(fields.place(field), format!("contradicts the architecture {architecture}"))
            .expected(format!("`{expected}`"))
            .found(format!("`{found}`")),
    );
}

fn list(families: &[Family]) -> String {
    let names: Vec<&str> = families.iter().map(|family| family.architecture()).collect();
    format!("one of {}", names.join(", "))
}

/// Returns the single name in `architectures`.
fn named<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    let value = fields.get("architectures")?;
    let name = match value.as_array().map(Vec::as_slice) {
        Some([name]) => name.as_str(),
        _ => None,
    };
    if name.is_none() {
        fields.wrong_type("architectures", "a list of one name", value);
    }
    name
}
