//! Low-rank adapters, added to the weights of a checkpoint as they are read.
//!
//! Input → output: a folder as peft writes it and the checkpoint it is for → for each adapted
//! tensor the two factors of what is added to it. Invariants: an element's sum is taken in f32 in
//! the order of the factors' rank, whatever slice it is read with; every factor of the folder
//! belongs to a tensor of the checkpoint, and its shapes fit.

use std::collections::BTreeMap;
use std::path::Path;

use super::checkpoint::Checkpoint;
use super::file;
use crate::base::{Diagnostic, Diagnostics, Shape};
use crate::config::{Lora, PEFT_PREFIX};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// What is added to a matrix `[out, in]`: the product of two factors.
#[derive(Debug)]
pub(super) struct Delta {
    /// Columns of the matrix.
    width: usize,
    rank: usize,
    /// The inner factor, `[rank, width]`.
    a: Vec<f32>,
    /// `[out, rank]`, times what the product counts.
    b: Vec<f32>,
}

impl Delta {
    /// Adds its elements from number `first` on, row-major, to as many numbers.
    pub(super) fn add(&self, first: usize, numbers: &mut [f32]) {
        let (mut at, mut rest) = (first, numbers);
        while !rest.is_empty() {
            let (row, column) = (at / self.width, at % self.width);
            let (here, after) = rest.split_at_mut((self.width - column).min(rest.len()));
            let factors = &self.b[row * self.rank..][..self.rank];
            for (factor, a) in factors.iter().zip(self.a.chunks_exact(self.width)) {
                here.iter_mut().zip(&a[column..]).for_each(|(number, a)| *number += factor * a);
            }
            at += here.len();
            rest = after;
        }
    }
}

/// The updates of a folder, by tensor of `checkpoint`.
///
/// # Errors
/// Every problem of the folder's files, and every tensor of theirs that does not fit the
/// checkpoint.
pub(super) fn read(folder: &Path, checkpoint: &Checkpoint) -> Result<BTreeMap<String, Delta>, Diagnostics> {
    let path = folder.join(CONFIG);
    let text = file::read_text(&path).map_err(|error| {
        Diagnostic::new(path.display().to_string(), "cannot be read")
            .expected("a folder as peft writes it")
            .found(error)
    });
    let lora = text.map_err(Diagnostics::from).and_then(|text| Lora::from_json(&text));
    let (lora, weights) = match (lora, Checkpoint::open_file(&folder.join(WEIGHTS))) {
        (Ok(lora), Ok(weights)) => (lora, weights),
        (lora, weights) => {
            let mut problems = Diagnostics::new();
            lora.err().into_iter().chain(weights.err()).for_each(|found| problems.append(found));
            return Err(problems);
        }
    };
    let mut problems = Diagnostics::new();
    let mut layers: BTreeMap<&str, [Option<&str>; 2]> = BTreeMap::new();
    for (name, info) in weights.tensors() {
        let place = || format!("{WEIGHTS}: {name}");
        let factor = |ending| name.strip_prefix(PEFT_PREFIX)?.strip_suffix(ending);
        let (layer, at) = match (factor(".lora_A.weight"), factor(".lora_B.weight")) {
            (Some(layer), _) => (layer, 0),
            (_, Some(layer)) => (layer, 1),
            _ => {
                let expected = format!("{PEFT_PREFIX}….lora_A.weight and ….lora_B.weight");
                problems.push(Diagnostic::new(place(), "not a factor of an adapter").expected(expected));
                continue;
            }
        };
        layers.entry(layer).or_default()[at] = Some(name);
        let Some(of) = checkpoint.tensor(&format!("{layer}.weight")).filter(|of| of.shape.rank() == 2) else {
            let problem = Diagnostic::new(place(), "the model does not have this linear layer")
                .expected(format!("{layer}.weight"));
            problems.push(problem.help("is the adapter of another model?"));
            continue;
        };
        let expected = if at == 0 { [lora.rank, of.shape[1]] } else { [of.shape[0], lora.rank] };
        if info.shape.sizes() != expected {
            problems.push(
                Diagnostic::new(place(), "wrong shape").expected(Shape::from(expected)).found(&info.shape),
            );
        }
    }
    if layers.is_empty() {
        problems.push(Diagnostic::new(WEIGHTS, "has no tensor"));
    }
    for (layer, factors) in &layers {
        for (factor, letter) in factors.iter().zip(["A", "B"]) {
            if factor.is_none() {
                let expected = format!("{PEFT_PREFIX}{layer}.lora_{letter}.weight");
                problems.push(Diagnostic::new(WEIGHTS, "missing tensor").expected(expected));
            }
        }
    }
    problems.into_result(())?;
    let read =
        |name: &str| weights.read_f32(name).map_err(|error| Diagnostic::new(WEIGHTS, error.to_string()));
    let mut found = BTreeMap::new();
    for (layer, factors) in layers {
        let [Some(a), Some(b)] = factors else { continue };
        let ((shape, a), (_, mut b)) = (read(a)?, read(b)?);
        let scale = lora.scale() as f32;
        b.iter_mut().for_each(|b| *b *= scale);
        found.insert(format!("{layer}.weight"), Delta { width: shape[1], rank: lora.rank, a, b });
    }
    Ok(found)
}
