//! `checkpoint quantise`: writes a model with quantised linear layers.

use std::collections::BTreeMap;

use ascend_tp::base::Diagnostics;
use ascend_tp::generate::Model;
use ascend_tp::weights::{self, LayerError, Quantised};
use ascend_tp_planner::table::{Align, Table};
use serde::Serialize;

use super::QuantiseOptions;
use crate::failure::{Failure, Outcome};
use crate::{files, print_json, print_report, terminal};

#[derive(Serialize)]
struct QuantiseReport<'a> {
    path: String,
    format: &'static str,
    tensors: usize,
    bytes_before: u64,
    bytes: u64,
    files: &'a [String],
    layers: Vec<LayerReport<'a>>,
}

#[derive(Serialize)]
struct LayerReport<'a> {
    layer: &'a str,
    shape: [usize; 2],
    /// Root mean square of the differences, relative to the weights.
    relative_error: f64,
    /// Largest magnitude of a difference.
    largest_error: f64,
    /// Largest magnitude of a weight.
    largest_weight: f64,
}

impl<'a> From<&'a LayerError> for LayerReport<'a> {
    fn from(error: &'a LayerError) -> Self {
        Self {
            layer: &error.layer,
            shape: error.shape,
            relative_error: error.relative(),
            largest_error: error.largest_error,
            largest_weight: error.largest,
        }
    }
}

pub(super) fn run(options: &QuantiseOptions) -> Result<Outcome, Failure> {
    files::check_folder("--out", &options.out).map_err(Diagnostics::from)?;
    let model = Model::open(&options.path)?;
    let Model { checkpoint, config, dir, .. } = &model;
    let written = weights::quantise(checkpoint, config, dir, options.format, &options.out)?;
    let Quantised { path, tensors, bytes: [before, bytes], files, layers } = &written;
    if options.json {
        print_json(&QuantiseReport {
            path: path.display().to_string(),
            format: options.format.name(),
            tensors: *tensors,
            bytes_before: before.0,
            bytes: bytes.0,
            files,
            layers: layers.iter().map(LayerReport::from).collect(),
        })?;
        return Ok(Outcome::Done);
    }
    let count = layers.len();
    print_report(&format!(
        "{}: {count} layers in {}, {before} → {bytes}: {}\n\n{}",
        path.display(),
        options.format,
        files.join(", "),
        table(layers)
    ))?;
    Ok(Outcome::Done)
}

/// Returns the errors of the layers. The experts of a layer share a row for each projection.
fn table(layers: &[LayerError]) -> Table {
    let mut rows: BTreeMap<String, (usize, LayerError)> = BTreeMap::new();
    for error in layers {
        let (count, sum) = rows.entry(row_of(&error.layer)).or_default();
        *count += 1;
        sum.shape = error.shape;
        sum.squares += error.squares;
        sum.error_squares += error.error_squares;
        sum.largest = sum.largest.max(error.largest);
        sum.largest_error = sum.largest_error.max(error.largest_error);
    }
    let mut table = terminal::table([
        ("layer", Align::Left),
        ("count", Align::Right),
        ("outputs×inputs", Align::Right),
        ("relative rms error", Align::Right),
        ("largest error", Align::Right),
        ("largest weight", Align::Right),
    ])
    .optional(["count", "outputs×inputs"]);
    for (layer, (count, error)) in rows {
        let [outputs, inputs] = error.shape;
        table.row([
            layer,
            count.to_string(),
            format!("{outputs}×{inputs}"),
            format!("{:.5}", error.relative()),
            format!("{:.6}", error.largest_error),
            format!("{:.6}", error.largest),
        ]);
    }
    table
}

/// Returns the name of the row of a layer, with `*` for the number of an expert.
fn row_of(layer: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut numbers = 0;
    let parts = layer.split('.').map(|part| {
        numbers += usize::from(is_number(part));
        if is_number(part) && numbers > 1 { "*" } else { part }
    });
    parts.collect::<Vec<&str>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_share_a_row() {
        assert_eq!(row_of("model.layers.3.mlp.experts.17.up_proj"), "model.layers.3.mlp.experts.*.up_proj");
        assert_eq!(row_of("model.layers.3.mlp.up_proj"), "model.layers.3.mlp.up_proj");
        let of = |layer: &str, error_squares| LayerError {
            layer: layer.to_owned(),
            squares: 2.0,
            error_squares,
            ..LayerError::default()
        };
        let text = table(&[of("layers.0.e.0.up", 0.5), of("layers.0.e.1.up", 0.5)]).to_string();
        assert!(text.contains("layers.0.e.*.up") && text.contains("0.50000"), "{text}");
    }
}
