//! Export of the model of a checkpoint, as a folder that transformers opens.
//!
//! Weights have their original names and one element type. Only tensors with a source are weights.
//! Fused weights are assembled from pieces that must have each element once. A stack of experts is
//! exported as one tensor per expert and matrix. The folder appears when it is complete, and one
//! tensor is in memory at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Error;
use super::read::Checkpoint;
use super::sharding::NOT_THE_SOURCE;
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};
use crate::config::{Lora, ModelConfig, PEFT_PREFIX};
use crate::generate::Model;
use crate::program::models::{Head, RunShape, checkpoint_tensors, choice_biases, decoder};
use crate::program::{Form, Source, StoredDims, TensorStack};
use crate::weights::convert::{convert, first_not_finite};
use crate::weights::file;
use crate::weights::folder::{
    FileNames, NewTensor, copy_along, problems_of_place, publish, write_file, write_json, write_tensors,
};

const CONFIG: &str = "config.json";

/// Summary of a completed export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Folder of the exported model.
    pub path: PathBuf,
    /// Number of exported weights.
    pub tensors: usize,
    /// Size of the weights, without file headers.
    pub bytes: Bytes,
    /// Names of all files, sorted.
    pub files: Vec<String>,
}

struct ExportedWeight<'a> {
    name: &'a str,
    shape: &'a Shape,
    dtype: DType,
    /// Ascending elements, without gaps.
    pieces: Vec<WeightPiece<'a>>,
}

impl ExportedWeight<'_> {
    fn tensor(&self) -> NewTensor {
        NewTensor { name: self.name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }
    }
}

/// A part of a tensor of the run, which is a contiguous part of an exported weight.
struct WeightPiece<'a> {
    /// Name of the tensor in the run.
    tensor: &'a str,
    /// Ranges within the tensor, one per dim.
    ranges: Vec<Range<usize>>,
    /// First element within the tensor.
    first: usize,
    /// First element within the exported weight.
    offset: usize,
    elems: usize,
    /// Order of the dims in the exported weight, if it differs.
    dims: Option<StoredDims>,
}

impl<'a> WeightPiece<'a> {
    /// Returns the pieces of the tensors of a source, in order. A tensor with another order of dims
    /// is split along its first dim if possible, so that a piece is small.
    fn all(tensor: &'a str, source: &Source, shape: &Shape, stack: &TensorStack) -> Vec<Vec<Self>> {
        if let Form::Blocks { block_elems, stride_elems } = source.form {
            let piece = |block: usize| Self {
                tensor,
                ranges: ranges_of_block(shape, block_elems, block),
                first: block * block_elems,
                offset: source.element_offset + block * stride_elems,
                elems: block_elems,
                dims: None,
            };
            return vec![(0..shape.elems() / block_elems).map(piece).collect()];
        }
        let dims = source.form.dims().filter(|dims| !dims.is_row_major());
        if let Some(dims) = dims.filter(StoredDims::keeps_first_dim) {
            let elems = shape[1..].iter().product();
            let piece = |row: usize| {
                let (mut ranges, first) = (stack.ranges(shape, 0), row * elems);
                ranges[0] = row..row + 1;
                Self { tensor, ranges, first, offset: first, elems, dims: Some(dims) }
            };
            return vec![(0..shape[0]).map(piece).collect()];
        }
        let elems = stack.part(shape).elems();
        let piece = |index: usize| {
            let (ranges, first) = (stack.ranges(shape, index), index * elems);
            vec![Self { tensor, ranges, first, offset: source.element_offset, elems, dims }]
        };
        (0..stack.names.count()).map(piece).collect()
    }
}

/// Returns the ranges of one of the blocks that follow each other in a tensor. A block is one index
/// of the first dims.
fn ranges_of_block(shape: &Shape, block_elems: usize, block: usize) -> Vec<Range<usize>> {
    let range = |dim: usize| {
        let inner: usize = shape[dim + 1..].iter().product();
        if inner * shape[dim] <= block_elems {
            return 0..shape[dim];
        }
        let index = block * block_elems / inner % shape[dim];
        index..index + (block_elems / inner).max(1)
    };
    (0..shape.rank()).map(range).collect()
}

/// Exports the model of a checkpoint into `into`, a new or empty folder, with weights of `dtype`.
///
/// `model` is the folder of the original model. Its weights are read only with `lora`, to add the
/// trained adapters.
///
/// # Errors
/// `dtype` is not a float type, `into` is not empty, the tensors do not match the configuration, a
/// weight is not finite or too large for the type, a file is damaged, or the folder cannot be
/// written.
pub fn export(
    checkpoint: &Checkpoint,
    model: &Path,
    lora: Option<&Lora>,
    dtype: DType,
    into: &Path,
) -> Result<Exported, Error> {
    export_in(checkpoint, model, lora, dtype, into, FileNames::TRANSFORMERS.file_bytes)
}

/// Exports the adapters of a checkpoint for peft into `into`, a new or empty folder. The weights
/// are f32.
///
/// # Errors
/// The checkpoint has no adapters, or the errors of [`export`].
pub fn export_adapter(
    checkpoint: &Checkpoint,
    model: &Path,
    lora: &Lora,
    into: &Path,
) -> Result<Exported, Error> {
    let mut problems = Diagnostics::new();
    problems_of_place(into, &mut problems);
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    for (record, source) in
        checkpoint.index().tensors.values().filter_map(|record| Some((record, record.source()?)))
    {
        // An index with a source that does not fit cannot be opened.
        let Ok(stack) = source.stack(&record.shape()) else { continue };
        let elems = stack.part(&record.shape()).elems();
        let columns = if source.tensor.ends_with(INNER) { elems / lora.rank.max(1) } else { lora.rank };
        for name in stack.names.iter() {
            let rows = elems / columns.max(1) + shapes.get(&name).map_or(0, |known| known[0]);
            shapes.insert(name, Shape::from([rows, columns]));
        }
    }
    if !shapes.keys().any(|name| name.starts_with(PEFT_PREFIX)) {
        problems.push(Diagnostic::new(checkpoint.path().display().to_string(), "has no adapters"));
    }
    let weights = weights(checkpoint, &shapes, &|_| DType::F32, &mut problems);
    problems.into_result(())?;
    let (bytes, files) = publish(into, |folder| {
        let path = folder.join("adapter_model.safetensors");
        let tensors: Vec<NewTensor> = weights.iter().map(ExportedWeight::tensor).collect();
        write_file(&path, &tensors, &mut weights.iter().map(|weight| numbers(checkpoint, weight)))?;
        write_json(&folder.join("adapter_config.json"), &lora.to_json(&model.display().to_string()))?;
        Ok::<_, Error>(tensors.iter().map(NewTensor::bytes).sum())
    })?;
    Ok(Exported { path: into.to_path_buf(), tensors: weights.len(), bytes, files })
}

/// Name suffix of inner adapter factors.
const INNER: &str = ".lora_A.weight";

fn export_in(
    checkpoint: &Checkpoint,
    model: &Path,
    lora: Option<&Lora>,
    dtype: DType,
    into: &Path,
    file_bytes: u64,
) -> Result<Exported, Error> {
    let mut problems = Diagnostics::new();
    if !dtype.is_float() {
        problems.push(
            Diagnostic::new("dtype", "not a type of weights").expected("f32, bf16 or f16").found(dtype),
        );
    }
    problems_of_place(into, &mut problems);
    let path = model.join(CONFIG);
    let config: Result<String, Diagnostics> = file::read_text(&path).map_err(|error| {
        let help = "name the folder that the model came from";
        Diagnostic::new(path.display().to_string(), "cannot be read").found(error).help(help).into()
    });
    let config = config.and_then(|text| ModelConfig::text_alone(CONFIG, &text));
    let tensors = config.clone().and_then(|text| tensors(&text));
    let (config, (shapes, biases)) = match (config, tensors) {
        (Ok(config), Ok(tensors)) => (config, tensors),
        (_, Err(found)) | (Err(found), _) => {
            problems.append(found);
            return Err(problems.into());
        }
    };
    let dtype_of = |name: &str| if biases.contains(name) { DType::F32 } else { dtype };
    let (weights, base) = match lora {
        None => (weights(checkpoint, &shapes, &dtype_of, &mut problems), None),
        Some(lora) => {
            let folder = tempfile::tempdir().map_err(|error| Error::write(into, "cannot be made", &error))?;
            let adapter = folder.path().join("adapter");
            export_adapter(checkpoint, model, lora, &adapter)?;
            let base = Model::open(model).and_then(|base| base.with_adapter(&adapter));
            let base = base.map(|base| base.checkpoint);
            let weights = shapes
                .iter()
                .map(|(name, shape)| ExportedWeight {
                    name,
                    shape,
                    dtype: dtype_of(name),
                    pieces: Vec::new(),
                })
                .collect();
            (weights, base.map_err(|found| problems.append(found)).ok())
        }
    };
    problems.into_result(())?;
    let numbers = |weight: &ExportedWeight<'_>| match &base {
        None => numbers(checkpoint, weight),
        Some(base) => match base.read_whole(weight.name, weight.dtype) {
            Ok((_, bytes)) => Ok(bytes),
            Err(error) => Err(Diagnostic::new(model.display().to_string(), error.to_string()).into()),
        },
    };
    let (bytes, files) = publish(into, |folder| {
        let tensors: Vec<NewTensor> = weights.iter().map(ExportedWeight::tensor).collect();
        let names = FileNames { file_bytes, ..FileNames::TRANSFORMERS };
        let bytes = write_tensors(&tensors, folder, names, weights.iter().map(&numbers))?;
        copy_files(model, &config, dtype, folder).map(|()| bytes)
    })?;
    Ok(Exported { path: into.to_path_buf(), tensors: weights.len(), bytes, files })
}

/// Returns the shapes of a model's tensors, and the biases of choices of experts. A rounded bias
/// would change choices, so published files store it in f32.
fn tensors(config: &str) -> Result<(BTreeMap<String, Shape>, BTreeSet<String>), Diagnostics> {
    let config = ModelConfig::from_json(config)?;
    let run = RunShape::new(1, 1, 1);
    let shapes = checkpoint_tensors(&decoder(&config, run, DType::F32, Head::AllLogits)?);
    Ok((shapes, choice_biases(&config).into_iter().map(|(_, name)| name).collect()))
}

/// Returns the pieces of each weight. Missing and surplus tensors are problems.
fn weights<'a>(
    checkpoint: &'a Checkpoint,
    shapes: &'a BTreeMap<String, Shape>,
    dtype_of: &dyn Fn(&str) -> DType,
    problems: &mut Diagnostics,
) -> Vec<ExportedWeight<'a>> {
    let mut pieces: BTreeMap<&str, Vec<WeightPiece<'_>>> = BTreeMap::new();
    for (name, record) in &checkpoint.index().tensors {
        let Some(source) = record.source() else { continue };
        let place = || format!("{}: {name}", checkpoint.path().display());
        let shape = record.shape();
        let stack = match source.stack(&shape) {
            Ok(stack) => stack,
            Err(reason) => {
                problems.push(Diagnostic::new(place(), NOT_THE_SOURCE).found(reason));
                continue;
            }
        };
        let mut surplus = Vec::new();
        for (tensor, of_tensor) in stack.names.iter().zip(WeightPiece::all(name, &source, &shape, &stack)) {
            match shapes.get_key_value(&tensor) {
                Some((weight, _)) => pieces.entry(weight.as_str()).or_default().extend(of_tensor),
                None => surplus.push(tensor),
            }
        }
        match surplus.as_slice() {
            [] if record.dtype().is_none_or(|dtype| !dtype.is_float()) => {
                problems.push(Diagnostic::new(place(), "not a floating-point weight").found(&record.dtype));
            }
            [] => {}
            [first, others @ ..] => {
                let found = match others.len() {
                    0 => first.clone(),
                    count => format!("{first} and {count} more"),
                };
                problems.push(
                    Diagnostic::new(place(), "a weight that the model does not have")
                        .found(found)
                        .help("name the folder that the model came from"),
                );
            }
        }
    }
    let mut weights = Vec::new();
    for (name, shape) in shapes {
        let mut pieces = pieces.remove(name.as_str()).unwrap_or_default();
        pieces.sort_by_key(|piece| piece.offset);
        let mut end = 0;
        for piece in &pieces {
            if piece.offset != end {
                problems.push(
                    Diagnostic::new(
                        format!("{}: {}", checkpoint.path().display(), piece.tensor),
                        "not the next piece of the weight",
                    )
                    .expected(format!("element {end} of {name}"))
                    .found(format!("element {}", piece.offset)),
                );
            }
            end = piece.offset + piece.elems;
        }
        if end != shape.elems() {
            problems.push(
                Diagnostic::new(format!("{}: {name}", checkpoint.path().display()), "not all of the weight")
                    .expected(format!("{} elements, {shape}", shape.elems()))
                    .found(format!("{end} elements")),
            );
        }
        weights.push(ExportedWeight { name, shape, dtype: dtype_of(name), pieces });
    }
    weights
}

fn numbers(checkpoint: &Checkpoint, weight: &ExportedWeight<'_>) -> Result<Vec<u8>, Error> {
    let dtype = weight.dtype;
    let mut out = vec![0; weight.shape.elems() * dtype.size_bytes()];
    for piece in &weight.pieces {
        let (from, bytes) = checkpoint.read_stored(piece.tensor, &piece.ranges)?;
        let place = || format!("{}: {}", checkpoint.path().display(), piece.tensor);
        if let Some((index, value)) = first_not_finite(from, &bytes) {
            return Err(Diagnostic::new(place(), "a weight that is NaN or infinite: the run had diverged")
                .found(format!("element {} is {value}", piece.first + index))
                .help("export an earlier checkpoint")
                .into());
        }
        let size = dtype.size_bytes();
        let out = &mut out[piece.offset * size..(piece.offset + piece.elems) * size];
        convert(from, dtype, &bytes, out).map_err(|overflow| {
            Diagnostic::new(place(), format!("a number too large for {dtype}"))
                .found(format!("element {} is {}", piece.first + overflow.index, overflow.value))
                .help("choose a type with a larger range, such as bf16")
        })?;
        if let Some(dims) = &piece.dims {
            let shape: Shape = piece.ranges.iter().map(ExactSizeIterator::len).collect();
            let stored = dims.stored(&shape, size, out);
            out.copy_from_slice(&stored);
        }
    }
    Ok(out)
}

/// Writes the configuration with the new type, and copies other files.
fn copy_files(model: &Path, config: &str, dtype: DType, folder: &Path) -> Result<(), Error> {
    let path = folder.join(CONFIG);
    let failed = |error: io::Error| Error::write(&path, "cannot be written", &error);
    let mut config: Value = serde_json::from_str(config).map_err(|error| failed(error.into()))?;
    let name = match dtype {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        _ => "float32",
    };
    // Since transformers 5, the key is `dtype`.
    let mut keys = vec!["torch_dtype", "dtype"];
    keys.retain(|key| config.get(key).is_some());
    if keys.is_empty() {
        keys.push("torch_dtype");
    }
    for key in keys {
        config[key] = Value::String(name.to_owned());
    }
    write_json(&path, &config)?;
    Ok(copy_along(model, folder)?)
}

#[cfg(test)]
mod tests;
