//! The tensors of a checkpoint, with the names of a text model.
//!
//! Input: stored tensors. Output: [`Named`].
//!
//! - A model of images and text has `model.language_model.layers.0.…` or
//!   `language_model.model.layers.0.…` for `model.layers.0.…`. Tensors of the image tower are left
//!   out.
//! - A file can have the weights of all experts in `….experts.gate_up_proj`, `[experts, 2 ·
//!   intermediate, hidden]`, and `….experts.down_proj`, `[experts, hidden, intermediate]`. They
//!   become tensors of each expert. gpt-oss has the same names with other shapes, which are kept.
//!
//! Invariants: a name has one tensor. No byte belongs to two tensors.
//!
//! Not here: the tensors that a model needs.

use std::collections::BTreeMap;

use super::{NamedFile, TensorInfo};
use crate::base::{Bytes, Diagnostic, Diagnostics, Shape};
use crate::config::TEXT_NAMES;

/// Beginnings of names of tensors of images.
const IMAGES: [&str; 7] = [
    "model.visual.",
    "visual.",
    "model.vision_tower.",
    "vision_tower.",
    "model.multi_modal_projector.",
    "multi_modal_projector.",
    "mm_projector.",
];

/// Ends of the names of the weights of all experts.
const GATE_UP: &str = ".experts.gate_up_proj";
const DOWN: &str = ".experts.down_proj";

/// Tensors with the names of a text model.
#[derive(Default)]
pub(super) struct Named {
    pub(super) tensors: BTreeMap<String, TensorInfo>,
    /// Tensors of images, which are not in `tensors`.
    pub(super) images: TensorTally,
    problems: Diagnostics,
}

/// Number and size of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TensorTally {
    pub(super) tensors: usize,
    pub(super) bytes: Bytes,
}

impl TensorTally {
    pub(super) fn add(&mut self, tensor: &TensorInfo) {
        self.tensors += 1;
        self.bytes = Bytes(self.bytes.0 + tensor.bytes.len() as u64);
    }
}

impl Named {
    /// Names the stored tensors of these files.
    ///
    /// # Errors
    /// All tensors that are stored under two names.
    pub(super) fn of(stored: BTreeMap<String, TensorInfo>, files: &[NamedFile]) -> Result<Self, Diagnostics> {
        let mut named = Self::default();
        for (name, tensor) in stored {
            if IMAGES.iter().any(|prefix| name.starts_with(prefix)) {
                named.images.add(&tensor);
                continue;
            }
            let text = text_name(&name);
            named.insert(&name, &text, tensor, files);
        }
        let fused: Vec<String> =
            named.tensors.keys().filter(|name| name.ends_with(GATE_UP)).cloned().collect();
        for name in fused {
            named.split(&name, files);
        }
        let Self { tensors, images, problems } = named;
        problems.into_result(Self { tensors, images, problems: Diagnostics::new() })
    }

    /// Adds the tensor with the name `stored` in its file.
    fn insert(&mut self, stored: &str, name: &str, tensor: TensorInfo, files: &[NamedFile]) {
        let place = format!("{}: {stored}", files[tensor.file].name);
        if self.tensors.insert(name.to_owned(), tensor).is_some() {
            self.problems.push(
                Diagnostic::new(place, "the tensor is stored under another name too")
                    .expected(format!("one tensor {name}")),
            );
        }
    }

    /// Splits the weights of all experts into tensors of each expert.
    fn split(&mut self, gate_up_name: &str, files: &[NamedFile]) {
        let Some(layer) = gate_up_name.strip_suffix(GATE_UP) else { return };
        let down_name = format!("{layer}{DOWN}");
        let shapes = [gate_up_name, &down_name].map(|name| self.tensors.get(name).map(|found| &found.shape));
        let [Some(&[experts, rows, hidden]), Some(&[of_down, outputs, width])] =
            shapes.map(|shape| shape.map(Shape::sizes))
        else {
            return;
        };
        let has_rows_of_both = rows == 2 * width && hidden == outputs && experts == of_down;
        if experts == 0 || !has_rows_of_both {
            return;
        }
        let whole = [gate_up_name, &down_name].map(|name| self.tensors.remove(name));
        let [Some(gate_up), Some(down)] = whole else { return };
        for (stored, whole, names, shape) in [
            (gate_up_name, gate_up, &["gate_proj", "up_proj"][..], [width, hidden]),
            (&down_name, down, &["down_proj"][..], [hidden, width]),
        ] {
            let part_bytes = whole.bytes.len() / (experts * names.len());
            let parts = (0..experts).flat_map(|expert| names.iter().map(move |name| (expert, name)));
            for (at, (expert, name)) in parts.enumerate() {
                let start = whole.bytes.start + at * part_bytes;
                let part = TensorInfo { shape: shape.into(), bytes: start..start + part_bytes, ..whole };
                self.insert(stored, &format!("{layer}.experts.{expert}.{name}.weight"), part, files);
            }
        }
    }
}

/// Returns the name without images of a tensor.
pub(in crate::weights) fn text_name(stored: &str) -> String {
    let text = TEXT_NAMES.iter().find_map(|(prefix, text)| Some((text, stored.strip_prefix(prefix)?)));
    match text {
        Some((text, rest)) => format!("{text}{rest}"),
        None => stored.to_owned(),
    }
}

#[cfg(test)]
mod tests;
