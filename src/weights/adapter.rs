//! Low-rank adapters: added to the weights of a checkpoint while they are read, or stacked for
//! programs that have them next to the weights.
//!
//! Input: folders that peft wrote, and the checkpoint of the model. Output: the two factors of each
//! adapted tensor. Invariants: each element is summed in f32, in the order of the factors'
//! rank, for any slice of the tensor. Every factor in the folder belongs to a tensor of the
//! checkpoint and has a fitting shape.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::checkpoint::{Checkpoint, text_name};
use super::file;
use crate::base::{Diagnostic, Diagnostics, Shape};
use crate::config::{AdapterSet, PEFT_PREFIX, PeftAdapter};
use crate::program::models::{factor_tensor, layer_of_weight};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// The update of a matrix `[out, in]`: the product of two factors.
#[derive(Debug)]
pub(super) struct Delta {
    /// Number of columns of the matrix.
    width: usize,
    rank: usize,
    /// Inner factor of the update, `[rank, width]`.
    a: Vec<f32>,
    /// Outer factor times the scale, `[out, rank]`.
    b: Vec<f32>,
}

impl Delta {
    /// Adds the elements from number `first` on, in row-major order, to `numbers`.
    pub(super) fn add(&self, first: usize, numbers: &mut [f32]) {
        let (mut element, mut rest) = (first, numbers);
        while !rest.is_empty() {
            let (row, column) = (element / self.width, element % self.width);
            let (here, after) = rest.split_at_mut((self.width - column).min(rest.len()));
            let factors = &self.b[row * self.rank..][..self.rank];
            for (factor, a) in factors.iter().zip(self.a.chunks_exact(self.width)) {
                here.iter_mut().zip(&a[column..]).for_each(|(number, a)| *number += factor * a);
            }
            element += here.len();
            rest = after;
        }
    }
}

/// Reads the updates of a folder, by tensor of `checkpoint`.
pub(super) fn read(folder: &Path, checkpoint: &Checkpoint) -> Result<BTreeMap<String, Delta>, Diagnostics> {
    let path = folder.join(CONFIG);
    let text = file::read_text(&path).map_err(|error| {
        Diagnostic::new(path.display().to_string(), "cannot be read")
            .expected("a folder as peft writes it")
            .found(error)
    });
    let config = text.map_err(Diagnostics::from).and_then(|text| PeftAdapter::from_json(&text));
    let (config, weights) = match (config, Checkpoint::open_file(&folder.join(WEIGHTS))) {
        (Ok(config), Ok(weights)) => (config, weights),
        (config, weights) => {
            let mut problems = Diagnostics::new();
            config.err().into_iter().chain(weights.err()).for_each(|found| problems.append(found));
            return Err(problems);
        }
    };
    let mut problems = Diagnostics::new();
    let mut deltas = BTreeMap::new();
    let layers = factors(&weights, &config, checkpoint)?;
    let read =
        |name: &str| weights.read_f32(name).map_err(|error| Diagnostic::new(WEIGHTS, error.to_string()));
    for (layer, factors) in layers {
        let [Some(a), Some(b)] = factors else { continue };
        let ((shape, a), (b_shape, mut b)) = (read(a)?, read(b)?);
        let (rank, width) = (shape[0], shape[1]);
        if b_shape[1] != rank {
            let place = format!("{WEIGHTS}: {PEFT_PREFIX}{layer}");
            let problem = Diagnostic::new(place, "factors of different ranks");
            problems.push(problem.expected(format!("the rank {rank} of lora_A")).found(b_shape[1]));
            continue;
        }
        let scale = config.scale(&layer, rank) as f32;
        b.iter_mut().for_each(|b| *b *= scale);
        deltas.insert(format!("{layer}.weight"), Delta { width, rank, a, b });
    }
    problems.into_result(deltas)
}

/// A factor of all adapters of a layer, `[rank, in]` or `[out, rank]` with the rank of the set.
pub(super) struct StackedFactor {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) numbers: Vec<f32>,
}

/// Reads the adapters of folders, each with a name, and stacks their factors. The outer factors
/// have their scales.
pub(super) fn stack(
    named: &[(&str, &Path)],
    checkpoint: &Checkpoint,
) -> Result<(AdapterSet, Vec<StackedFactor>), Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut adapters: Vec<BTreeMap<String, Delta>> = Vec::new();
    for (at, (name, folder)) in named.iter().enumerate() {
        if named[..at].iter().any(|(earlier, _)| earlier == name) {
            problems.push(Diagnostic::new(format!("adapter {name}"), "two adapters have this name"));
        }
        match read(folder, checkpoint) {
            Ok(deltas) => adapters.push(deltas),
            Err(found) => {
                for problem in found.items() {
                    let place = format!("adapter {name}: {}", problem.place);
                    problems.push(Diagnostic { place, ..problem.clone() });
                }
            }
        }
    }
    problems.into_result(())?;
    let largest = |deltas: &BTreeMap<String, Delta>| deltas.values().map(|delta| delta.rank).max();
    let ranks = named.iter().zip(&adapters);
    let ranks = ranks.map(|((name, _), deltas)| ((*name).to_owned(), largest(deltas).unwrap_or(0))).collect();
    let tensors: BTreeSet<&String> = adapters.iter().flat_map(BTreeMap::keys).collect();
    let layers: BTreeMap<&str, &String> =
        tensors.into_iter().map(|tensor| (layer_of_weight(tensor), tensor)).collect();
    let set = AdapterSet::new(ranks, layers.keys().map(|layer| (*layer).to_owned()).collect());
    let factors = layers.into_iter().flat_map(|(layer, tensor)| {
        let of_layer: Vec<_> = adapters.iter().map(|deltas| deltas.get(tensor)).collect();
        stacked(layer, &set, &of_layer)
    });
    let factors = factors.collect();
    Ok((set, factors))
}

/// Stacks the factors of one layer. At least one adapter has it.
fn stacked(layer: &str, set: &AdapterSet, adapters: &[Option<&Delta>]) -> Vec<StackedFactor> {
    let known = || adapters.iter().enumerate().filter_map(|(at, delta)| Some((at, (*delta)?)));
    let Some((_, first)) = known().next() else { return Vec::new() };
    let (rank, width) = (set.rank(), first.width);
    let height = first.b.len() / first.rank;
    let (mut a, mut b) = (vec![0.0; rank * width], vec![0.0; height * rank]);
    for (at, delta) in known() {
        let row = set.rows(at).start;
        a[row * width..][..delta.a.len()].copy_from_slice(&delta.a);
        for (to, from) in b.chunks_exact_mut(rank).zip(delta.b.chunks_exact(delta.rank)) {
            to[row..][..delta.rank].copy_from_slice(from);
        }
    }
    let factor = |letter: &str, shape: [usize; 2], numbers: Vec<f32>| StackedFactor {
        name: factor_tensor(layer, letter),
        shape: shape.into(),
        numbers,
    };
    vec![factor("A", [rank, width], a), factor("B", [height, rank], b)]
}

/// Returns the names of both factors of each adapted layer.
fn factors<'a>(
    weights: &'a Checkpoint,
    config: &PeftAdapter,
    checkpoint: &Checkpoint,
) -> Result<BTreeMap<String, [Option<&'a str>; 2]>, Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut layers: BTreeMap<String, [Option<&str>; 2]> = BTreeMap::new();
    for (name, info) in weights.tensors() {
        let place = || format!("{WEIGHTS}: {name}");
        let factor = |ending| name.strip_prefix(PEFT_PREFIX)?.strip_suffix(ending);
        let (layer, factor_index) = match (factor(".lora_A.weight"), factor(".lora_B.weight")) {
            (Some(layer), _) => (layer, 0),
            (_, Some(layer)) => (layer, 1),
            _ => {
                let expected = format!("{PEFT_PREFIX}….lora_A.weight and ….lora_B.weight");
                problems.push(Diagnostic::new(place(), "not a factor of an adapter").expected(expected));
                continue;
            }
        };
        let layer = text_name(layer);
        layers.entry(layer.clone()).or_default()[factor_index] = Some(name);
        let Some(of) = checkpoint
            .tensor(&format!("{layer}.weight"))
            .filter(|of| of.shape.rank() == 2 && of.dtype.is_float())
        else {
            let problem = Diagnostic::new(place(), "the model does not have this linear layer in floats")
                .expected(format!("{layer}.weight"));
            problems.push(problem.help("is the adapter of another model?"));
            continue;
        };
        // The shape of a factor shows which of the configured ranks the layer has.
        let sizes = info.shape.sizes();
        let is_of_rank = |rank: &usize| sizes == factor_shape(factor_index, *rank, &of.shape);
        if !config.ranks().iter().any(is_of_rank) {
            let shapes = config
                .ranks()
                .iter()
                .map(|rank| Shape::from(factor_shape(factor_index, *rank, &of.shape)).to_string());
            let expected = shapes.collect::<Vec<_>>().join(" or ");
            problems.push(Diagnostic::new(place(), "wrong shape").expected(expected).found(&info.shape));
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
    problems.into_result(layers)
}

/// Returns the shape of a factor of a matrix `[out, in]`: `[rank, in]` for the first factor, `[out,
/// rank]` for the second.
fn factor_shape(factor: usize, rank: usize, matrix: &Shape) -> [usize; 2] {
    if factor == 0 { [rank, matrix[1]] } else { [matrix[0], rank] }
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;

    struct Written {
        name: String,
        shape: [usize; 2],
        numbers: Vec<f32>,
    }

    fn written(name: &str, shape: [usize; 2], numbers: &[f32]) -> Written {
        Written { name: name.to_owned(), shape, numbers: numbers.to_vec() }
    }

    fn write(path: &Path, tensors: &[Written]) {
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|tensor| tensor.numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
            .collect();
        let views = tensors.iter().zip(&bytes).map(|(tensor, bytes)| {
            (tensor.name.clone(), TensorView::new(Dtype::F32, tensor.shape.to_vec(), bytes).unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }

    /// Returns the updates of the queries of layers 0 and 1. The factors of layer 0 have the given
    /// ranks.
    fn added(a_rank: usize, b_rank: usize) -> Result<[Vec<f32>; 2], Diagnostics> {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.safetensors");
        let layers = [0, 1, 2].map(|at| written(&format!("layers.{at}.q_proj.weight"), [2, 3], &[0.0; 6]));
        write(&model, &layers);
        let factor = |layer: usize, letter: &str, shape, numbers: &[f32]| {
            written(&format!("base_model.model.layers.{layer}.q_proj.lora_{letter}.weight"), shape, numbers)
        };
        let factors = [
            factor(0, "A", [a_rank, 3], &[1.0, 2.0, 3.0].repeat(a_rank)),
            factor(0, "B", [2, b_rank], &[10.0, 20.0].repeat(b_rank)),
            factor(1, "A", [2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
            factor(1, "B", [2, 2], &[1.0, 2.0, 3.0, 4.0]),
        ];
        write(&folder.path().join(WEIGHTS), &factors);
        let config = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ".*q_proj", "layers_to_transform": [0, 1],
            "rank_pattern": {"layers.0.q_proj": 1}, "alpha_pattern": {"layers.0.q_proj": 3}}"#;
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        let found = read(folder.path(), &Checkpoint::open_file(&model).unwrap())?;
        assert_eq!(found.len(), 2, "the third layer has no factors");
        Ok([0, 1].map(|at| {
            let mut numbers = vec![0.0; 6];
            found[&format!("layers.{at}.q_proj.weight")].add(0, &mut numbers);
            numbers
        }))
    }

    #[test]
    fn the_factors_say_which_layers_there_are_and_of_which_ranks() {
        // Rank 1 and alpha 3: 3 · [10, 20]ᵀ [1, 2, 3]. Rank 2 and alpha 4: 2 · [[1, 2], [3, 4]] ·
        // [[1, 0, 0], [0, 1, 0]].
        let expected = [vec![30.0, 60.0, 90.0, 60.0, 120.0, 180.0], vec![2.0, 4.0, 0.0, 6.0, 8.0, 0.0]];
        assert_eq!(added(1, 1).unwrap(), expected);
        let message = added(2, 1).unwrap_err().to_string();
        assert!(
            message.contains(
                "layers.0.q_proj: factors of different ranks: expected the rank 2 of lora_A, found 1"
            ),
            "{message}"
        );
        let message = added(3, 3).unwrap_err().to_string();
        assert!(message.contains("wrong shape: expected [2,3] or [1,3], found [3,3]"), "{message}");
    }
}
