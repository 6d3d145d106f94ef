//! Writes a model with quantised linear layers, as published checkpoints have them.
//!
//! Input: a checkpoint with float weights, and a format. Output: a folder with safetensors files,
//! `config.json` and the other files of the model, and the error of each layer.
//!
//! Invariants: numbers are rounded to nearest, by the scale as it is stored. All other tensors are
//! copied bit for bit. Rows are read in pieces, and the result of one layer is in memory at a time.
//! Nothing is written if a layer cannot be quantised.
//!
//! Not here: which layers a format has (`config`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::checkpoint::Checkpoint;
use super::folder::{
    FileNames, FolderError, NewTensor, copy_along, problems_of_place, publish, write_json, write_tensors,
};
use super::{convert, file, slice};
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape, WORD, round};
use crate::config::{DESCRIPTIONS, ModelConfig, QuantisedFormat, WeightFormat};
use crate::program::models::{Head, RunShape, checkpoint_tensors, decoder, layer_of_weight};

const CONFIG: &str = "config.json";

/// Number of elements that are read and quantised at once, in whole rows.
const ELEMS_AT_ONCE: usize = 1 << 20;

/// Summary of a written model.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// Folder of the model.
    pub path: PathBuf,
    /// Number of tensors in the files.
    pub tensors: usize,
    /// Size of the tensors before and after, without file headers.
    pub bytes: [Bytes; 2],
    /// Names of all files, sorted.
    pub files: Vec<String>,
    /// Errors of the quantised layers, sorted by name.
    pub layers: Vec<LayerError>,
}

/// Difference between the weight of a layer and its quantised weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerError {
    /// Name of the layer in the checkpoint.
    pub layer: String,
    /// Outputs and inputs.
    pub shape: [usize; 2],
    /// Sum of the squares of the weights.
    pub squares: f64,
    /// Sum of the squares of the differences.
    pub error_squares: f64,
    /// Largest magnitude of a weight.
    pub largest: f64,
    /// Largest magnitude of a difference.
    pub largest_error: f64,
}

impl LayerError {
    /// Returns the root mean square of the differences, relative to the weights.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.error_squares == 0.0 { 0.0 } else { (self.error_squares / self.squares).sqrt() }
    }

    fn add(&mut self, weight: f32, quantised: f32) {
        let (weight, difference) = (f64::from(weight), f64::from(weight) - f64::from(quantised));
        self.squares += weight * weight;
        self.error_squares += difference * difference;
        self.largest = self.largest.max(weight.abs());
        self.largest_error = self.largest_error.max(difference.abs());
    }
}

/// A tensor of the new files, and its bytes.
struct Planned {
    tensor: NewTensor,
    from: From,
}

/// Origin of the bytes of a tensor.
enum From {
    Copied,
    /// A part of a quantised layer: the index in the list of layers, and the part.
    Layer(usize, Part),
}

#[derive(Clone, Copy)]
enum Part {
    Integers,
    Scales,
    /// Zeros of the type of the scales.
    Offsets,
    /// Outputs and inputs.
    Sizes,
}

/// A linear layer to quantise.
struct LinearLayer {
    /// Name of the weight.
    weight: String,
    /// Outputs and inputs.
    shape: [usize; 2],
    /// Element type of the weight, and of the scales.
    dtype: DType,
}

/// The stored numbers of a layer.
#[derive(Default)]
struct Numbers {
    /// Integers of 8 bits, or words of eight integers of 4 bits.
    integers: Vec<u8>,
    scales: Vec<u8>,
}

/// Writes a model with linear layers in `format` into `into`, a new or empty folder. The checkpoint
/// and its configuration are those of the folder `model`.
///
/// # Errors
/// All problems at once: `into` is not empty, the weights are quantised already, the layers whose
/// last group would be partial, and the layers that no program reads in this format. Then: a
/// tensor that cannot be read, and a folder that cannot be written.
pub fn quantise(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    model: &Path,
    format: QuantisedFormat,
    into: &Path,
) -> Result<Quantised, FolderError> {
    let _span = tracing::info_span!("quantise").entered();
    let mut problems = Diagnostics::new();
    problems_of_place(into, &mut problems);
    let mut keep = |found: Diagnostics| problems.append(found);
    let text = written_config(config, model, format).map_err(&mut keep).ok();
    let target = config.quantised(format).map_err(&mut keep).ok();
    let run = RunShape::new(1, 1, 1);
    // The programs of the new model must read its weights.
    if let Some(target) = &target {
        decoder(target, run, DType::F32, Head::AllLogits).map_or_else(&mut keep, drop);
    }
    let float = decoder(config, run, DType::F32, Head::AllLogits).map_err(&mut keep).ok();
    let (Some(text), Some(target), Some(float)) = (text, target, float) else {
        return Err(problems.into());
    };
    let (layers, planned) = plan(checkpoint, &target, format, &checkpoint_tensors(&float), &mut problems);
    problems.into_result(())?;

    let mut errors: Vec<LayerError> = Vec::new();
    let (written, files) = publish(into, |folder| {
        // The tensors of a layer follow each other.
        let mut last: Option<(usize, Numbers)> = None;
        let mut bytes = |Planned { tensor, from }: &Planned| {
            let From::Layer(at, part) = *from else { return copied(checkpoint, model, tensor) };
            if last.as_ref().is_none_or(|(layer, _)| *layer != at) {
                let (numbers, error) =
                    numbers(checkpoint, &layers[at], format).map_err(|error| unreadable(model, &error))?;
                errors.push(error);
                last = Some((at, numbers));
            }
            let Some((_, numbers)) = &mut last else { return Ok(Vec::new()) };
            Ok(match part {
                Part::Integers => std::mem::take(&mut numbers.integers),
                Part::Scales => std::mem::take(&mut numbers.scales),
                // All types have zeros of zero bits.
                Part::Offsets => vec![0; tensor.shape.elems() * tensor.dtype.size_bytes()],
                Part::Sizes => {
                    layers[at].shape.iter().flat_map(|size| (*size as i64).to_le_bytes()).collect()
                }
            })
        };
        let names = match format {
            QuantisedFormat::W8A8Dynamic => FileNames::MODEL_SLIM,
            QuantisedFormat::W4A16 { .. } => FileNames::TRANSFORMERS,
        };
        let tensors: Vec<NewTensor> = planned.iter().map(|planned| planned.tensor.clone()).collect();
        let size = write_tensors(&tensors, folder, names, planned.iter().map(&mut bytes))?;
        if format == QuantisedFormat::W8A8Dynamic {
            let names = tensors.iter().map(|tensor| tensor.name.as_str());
            let description = Value::Object(target.formats.description(names));
            write_json(&folder.join(DESCRIPTIONS[0]), &description)?;
        }
        write_json(&folder.join(CONFIG), &text)?;
        copy_along(model, folder)?;
        Ok::<_, FolderError>(size)
    })?;
    errors.sort_by(|a, b| a.layer.cmp(&b.layer));
    Ok(Quantised {
        path: into.to_path_buf(),
        tensors: planned.len(),
        bytes: [checkpoint.bytes(), written],
        files,
        layers: errors,
    })
}

/// Returns the `config.json` of the text model, with the keys of the format.
fn written_config(config: &ModelConfig, model: &Path, format: QuantisedFormat) -> Result<Value, Diagnostics> {
    let path = model.join(CONFIG);
    let invalid = |error: &dyn std::fmt::Display| {
        Diagnostics::from(Diagnostic::new(path.display().to_string(), "cannot be read").found(error))
    };
    let text = file::read_text(&path).map_err(|error| invalid(&error))?;
    let text = ModelConfig::text_alone(CONFIG, &text)?;
    let mut text: Value = serde_json::from_str(&text).map_err(|error| invalid(&error))?;
    if let Some(keys) = text.as_object_mut() {
        keys.extend(config.quantised_keys(format));
    }
    Ok(text)
}

/// Returns the layers to quantise, and the tensors of the new files in order.
fn plan(
    checkpoint: &Checkpoint,
    target: &ModelConfig,
    format: QuantisedFormat,
    shapes: &BTreeMap<String, Shape>,
    problems: &mut Diagnostics,
) -> (Vec<LinearLayer>, Vec<Planned>) {
    let (mut layers, mut planned) = (Vec::new(), Vec::new());
    for (name, shape) in shapes {
        let Some(stored) = checkpoint.tensor(name) else {
            problems.push(Diagnostic::new(name, "missing tensor").expected(shape));
            continue;
        };
        let layer = layer_of_weight(name);
        if target.formats.of(layer) == WeightFormat::Float || layer == name {
            let tensor = NewTensor { name: name.clone(), dtype: stored.dtype, shape: stored.shape.clone() };
            planned.push(Planned { tensor, from: From::Copied });
            continue;
        }
        let [outputs, inputs] = [shape[0], shape[1]];
        let mut part = |suffix: &str, dtype: DType, shape: [usize; 2], part: Part| {
            let name = format!("{layer}.{suffix}");
            let shape = if let Part::Sizes = part { Shape::from([2]) } else { Shape::from(shape) };
            let from = From::Layer(layers.len(), part);
            planned.push(Planned { tensor: NewTensor { name, dtype, shape }, from });
        };
        match format {
            QuantisedFormat::W8A8Dynamic => {
                part("weight", DType::I8, [outputs, inputs], Part::Integers);
                part("weight_offset", stored.dtype, [outputs, 1], Part::Offsets);
                part("weight_scale", stored.dtype, [outputs, 1], Part::Scales);
            }
            QuantisedFormat::W4A16 { group } => {
                part("weight_packed", DType::I32, [outputs, inputs / WORD], Part::Integers);
                part("weight_scale", stored.dtype, [outputs, inputs / group], Part::Scales);
                part("weight_shape", DType::I64, [outputs, inputs], Part::Sizes);
            }
        }
        layers.push(LinearLayer { weight: name.clone(), shape: [outputs, inputs], dtype: stored.dtype });
    }
    (layers, planned)
}

fn unreadable(model: &Path, error: &slice::Error) -> FolderError {
    Diagnostics::from(Diagnostic::new(model.display().to_string(), error.to_string())).into()
}

fn copied(checkpoint: &Checkpoint, model: &Path, tensor: &NewTensor) -> Result<Vec<u8>, FolderError> {
    let read = checkpoint.read_whole(&tensor.name, tensor.dtype);
    Ok(read.map_err(|error| unreadable(model, &error))?.1)
}

/// Reads the weight of a layer and quantises it.
fn numbers(
    checkpoint: &Checkpoint,
    layer: &LinearLayer,
    format: QuantisedFormat,
) -> Result<(Numbers, LayerError), slice::Error> {
    let LinearLayer { weight, shape: [outputs, inputs], dtype } = layer;
    let group = match format {
        QuantisedFormat::W8A8Dynamic => *inputs,
        QuantisedFormat::W4A16 { group } => group,
    };
    let mut numbers = Numbers::default();
    let name = layer_of_weight(weight).to_owned();
    let mut error = LayerError { layer: name, shape: layer.shape, ..LayerError::default() };
    let at_once = (ELEMS_AT_ONCE / inputs.max(&1)).max(1);
    let mut bytes = Vec::new();
    for first in (0..*outputs).step_by(at_once) {
        let rows = first..(first + at_once).min(*outputs);
        bytes.resize(rows.len() * inputs * 4, 0);
        let ranges = [rows, 0..*inputs];
        checkpoint.read_slice(weight, 0, &Shape::from(layer.shape), &ranges, DType::F32, &mut bytes)?;
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let mut scales = Vec::with_capacity(values.len() / group.max(1));
        for values in values.chunks(group.max(1)) {
            scales.push(add_group(values, format, *dtype, &mut numbers.integers, &mut error));
        }
        let wide: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let at = numbers.scales.len();
        numbers.scales.resize(at + scales.len() * dtype.size_bytes(), 0);
        convert::convert(DType::F32, *dtype, &wide, &mut numbers.scales[at..]).map_err(|overflow| {
            slice::Error::Overflow { tensor: weight.clone(), value: overflow.value, to: *dtype }
        })?;
    }
    Ok((numbers, error))
}

/// Quantises weights with one scale, and returns the scale as it is stored. Symmetric integers of 4
/// bits are from -8 to 7, so the largest weight is 7.5 scales, as in compressed-tensors.
fn add_group(
    weights: &[f32],
    format: QuantisedFormat,
    dtype: DType,
    out: &mut Vec<u8>,
    error: &mut LayerError,
) -> f32 {
    let (steps, least, most) = match format {
        QuantisedFormat::W8A8Dynamic => (127.0, -127.0, 127.0),
        QuantisedFormat::W4A16 { .. } => (7.5, -8.0, 7.0),
    };
    let largest = weights.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let scale = round(dtype, largest / steps);
    // Weights that are zero, or too small for a scale, become zeros.
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let integer = |x: f32| (x / scale).round_ties_even().clamp(least, most);
    for x in weights {
        error.add(*x, integer(*x) * scale);
    }
    match format {
        QuantisedFormat::W8A8Dynamic => {
            out.extend(weights.iter().map(|x| (integer(*x) as i8).to_le_bytes()[0]));
        }
        QuantisedFormat::W4A16 { .. } => {
            let half = |x: f32| (integer(x) - least) as u8;
            out.extend(weights.as_chunks::<2>().0.iter().map(|[low, high]| half(*low) | half(*high) << 4));
        }
    }
    scale
}
