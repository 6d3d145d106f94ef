//! Combines the files of a checkpoint into one set of named tensors.
//!
//! Input: a folder or a file. Output: a [`Checkpoint`] with the open files.
//!
//! Invariants: each name has one tensor. An index file, if present, agrees with the files.
//!
//! Not here: the tensors that a model needs.

mod names;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, IntoInnerError, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

pub(super) use self::names::text_name;
use self::names::{Named, TensorTally};
use super::adapter::{self, Delta};
use super::json::Entries;
use super::slice::{Error, Stored, StoredView, check_slice};
use super::weight::{Scratch, Weight};
use super::{file, header};
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};
use crate::config::{AdapterSet, ModelConfig};
use crate::exec;
use crate::program::Source;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Start of the names of files that msModelSlim writes, such as
/// `quant_model_weights.safetensors.index.json`.
const QUANTISED: &str = "quant_model_weight";
const INDEX_SUFFIX: &str = ".safetensors.index.json";
/// Name of the output projection in every model family.
const HEAD: &str = "lm_head.weight";

/// Metadata of one stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type of the tensor.
    pub dtype: DType,
    /// Sizes, outermost dim first.
    pub shape: Shape,
    file: usize,
    bytes: Range<usize>,
}

/// A tensor that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// Tensor name in the checkpoint.
    pub name: String,
    /// Tensor shape in the checkpoint.
    pub shape: Shape,
    /// Element types that the tensor can have.
    pub dtypes: &'static [DType],
}

/// An open checkpoint. Ranks can share it, because reads take `&self`.
///
/// Tensors have the names of a text model. In files of models of images and text, the text tensors
/// have longer names, and tensors of images are left out. The weights of an expert are separate
/// tensors, also if files have all experts in one tensor.
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<NamedFile>,
    tensors: BTreeMap<String, TensorInfo>,
    /// Tensors of images.
    images: TensorTally,
    /// Low-rank updates that are added when tensors are read.
    deltas: BTreeMap<String, Delta>,
}

struct NamedFile {
    name: String,
    file: File,
}

impl Checkpoint {
    /// Opens the checkpoint in folder `dir`. It consists of `model.safetensors`, or of the files
    /// that `model.safetensors.index.json` names, or of files as msModelSlim names them.
    ///
    /// # Errors
    /// All problems of the files:
    /// - The folder has no checkpoint, or a file of the index is missing.
    /// - A file is truncated or its header is invalid.
    /// - The index and the files list different tensors.
    /// - A name occurs twice, or an element type is not supported.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        if !dir.is_dir() {
            return Err(Diagnostic::new(dir.display().to_string(), "no such folder")
                .expected("a folder with a checkpoint")
                .found(if dir.exists() { "a file" } else { "nothing" })
                .into());
        }
        if dir.join(SINGLE).exists() {
            return Self::open_file(&dir.join(SINGLE));
        }
        let open_index = |name: &str| match file::read(&dir.join(name)) {
            Ok(index) => open_indexed(dir, name, &index),
            Err(error) => Err(Diagnostic::new(name, "cannot be read").found(error).into()),
        };
        if dir.join(INDEX).exists() {
            return open_index(INDEX);
        }
        let quantised = quantised_files(dir);
        let (indexes, files): (Vec<&String>, Vec<&String>) =
            quantised.iter().partition(|name| name.ends_with(INDEX_SUFFIX));
        match (&indexes[..], &files[..]) {
            ([index], _) => open_index(index),
            ([], [file]) => Self::open_file(&dir.join(file)),
            _ => Err(no_checkpoint(dir).into()),
        }
    }

    /// Opens one safetensors file, such as a file with reference outputs.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn open_file(path: &Path) -> Result<Self, Diagnostics> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let (file, entries) = open_parsed(&name, path)?;
        let tensors = entries
            .into_iter()
            .map(|entry| {
                (
                    entry.name,
                    TensorInfo { dtype: entry.dtype, shape: entry.shape, file: 0, bytes: entry.bytes },
                )
            })
            .collect();
        Self::of(path, vec![NamedFile { name, file }], tensors)
    }

    fn of(
        path: &Path,
        files: Vec<NamedFile>,
        stored: BTreeMap<String, TensorInfo>,
    ) -> Result<Self, Diagnostics> {
        let Named { tensors, images, .. } = Named::of(stored, &files)?;
        Ok(Self { path: path.to_path_buf(), files, tensors, images, deltas: BTreeMap::new() })
    }

    /// Adds low-rank adapters to the weights when they are read. `folder` must have the layout of
    /// peft: `adapter_config.json` and `adapter_model.safetensors`.
    ///
    /// # Errors
    /// All problems of the files in the folder, and all tensors that do not fit this checkpoint.
    pub fn with_adapter(mut self, folder: &Path) -> Result<Self, Diagnostics> {
        self.deltas = adapter::read(folder, &self)?;
        Ok(self)
    }

    /// Adds the stacked factors of several adapters as tensors, and returns which rows belong to
    /// which adapter. Each adapter has a name and a folder as for [`Self::with_adapter`].
    ///
    /// The factors are in an unnamed temporary file, so that they are read like other tensors.
    ///
    /// # Errors
    /// All problems of the folders, and a temporary folder that cannot be written.
    pub fn with_adapters(mut self, named: &[(&str, &Path)]) -> Result<(Self, AdapterSet), Diagnostics> {
        let (set, factors) = adapter::stack(named, &self)?;
        let file = self.files.len();
        let (mut at, mut written) = (0, Vec::new());
        let store = || {
            let mut out = BufWriter::new(tempfile::tempfile()?);
            for factor in factors {
                for number in &factor.numbers {
                    out.write_all(&number.to_le_bytes())?;
                }
                let bytes = at..at + factor.numbers.len() * size_of::<f32>();
                at = bytes.end;
                let info = TensorInfo { dtype: DType::F32, shape: factor.shape, file, bytes };
                written.push((factor.name, info));
            }
            out.into_inner().map_err(IntoInnerError::into_error)
        };
        let stored: io::Result<File> = store();
        let stored = stored.map_err(|error| {
            let place = std::env::temp_dir().display().to_string();
            let problem = Diagnostic::new(place, "the factors of adapters cannot be stored");
            problem.found(error).help("set TMPDIR to a folder with space")
        })?;
        self.files.push(NamedFile { name: "adapters".to_owned(), file: stored });
        self.tensors.extend(written);
        Ok((self, set))
    }

    /// Renames `lm_head.weight` to `embedding` if the checkpoint has no tensor `embedding`. Models
    /// with tied embeddings may store their table under either name.
    #[must_use]
    pub fn with_tied_embedding(mut self, embedding: &str) -> Self {
        if !self.tensors.contains_key(embedding)
            && let Some(head) = self.tensors.remove(HEAD)
        {
            self.tensors.insert(embedding.to_owned(), head);
        }
        self
    }

    /// Returns the type of most floating-point elements, or `None` if there are no such elements.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        let mut elems: BTreeMap<DType, usize> = BTreeMap::new();
        for tensor in self.tensors.values().filter(|tensor| tensor.dtype.is_float()) {
            *elems.entry(tensor.dtype).or_default() += tensor.shape.elems();
        }
        elems.into_iter().max_by_key(|(_, elems)| *elems).map(|(dtype, _)| dtype)
    }

    /// Returns the tensor of this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// Returns all tensors, sorted by name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// Returns the name of the file that holds the tensor, for messages.
    #[must_use]
    pub fn file_of(&self, tensor: &TensorInfo) -> &str {
        self.files.get(tensor.file).map_or("", |file| file.name.as_str())
    }

    /// Returns the size of all tensors in bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.tensors.values().map(|tensor| Bytes(tensor.bytes.len() as u64)).sum()
    }

    /// Describes the tensors that no program reads: for images, and of layers for multi-token
    /// prediction, unless the model drafts by the first such layer (`predicts`).
    /// Returns `None` if there are none.
    #[must_use]
    pub fn skipped(&self, config: &ModelConfig, predicts: bool) -> Option<String> {
        let mut predictions = TensorTally::default();
        let is_skipped =
            |name: &str| config.is_prediction_tensor(name) && !(predicts && config.drafts_by(name));
        for (_, tensor) in self.tensors().filter(|(name, _)| is_skipped(name)) {
            predictions.add(tensor);
        }
        let kinds = [("images", self.images), ("layers for multi-token prediction", predictions)];
        let kinds = kinds.into_iter().filter(|(_, tally)| tally.tensors > 0);
        let texts: Vec<String> = kinds
            .map(|(of, TensorTally { tensors, bytes })| {
                format!("{} of {of} ({bytes})", count_tensors(tensors))
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join(" and "))
    }

    /// Checks that the checkpoint has exactly the tensors that a model needs, with their shapes and
    /// types. An unexpected tensor often means that `config.json` is wrong.
    ///
    /// Unexpected tensors are allowed if `is_ignored` returns true for their names. An example is
    /// `lm_head.weight` in a model with tied embeddings.
    ///
    /// # Errors
    /// All missing, unexpected or different tensors.
    pub fn check(
        &self,
        expected: &[ExpectedTensor],
        is_ignored: &dyn Fn(&str) -> bool,
    ) -> Result<(), Diagnostics> {
        let mut problems = TensorProblems::default();
        let mut unexpected: BTreeMap<&str, &TensorInfo> = self.tensors().collect();
        for ExpectedTensor { name, shape, dtypes } in expected {
            unexpected.remove(name.as_str());
            let Some(stored) = self.tensor(name) else {
                problems.push(
                    name,
                    "",
                    Diagnostic::new(format!("{}: {name}", self.path.display()), "missing tensor")
                        .expected(shape)
                        .help("config.json and the weights are of different models, or files are missing"),
                );
                continue;
            };
            let place = || format!("{}: {name}", self.file_of(stored));
            if sizes(&stored.shape) != sizes(shape) {
                problems.push(
                    name,
                    &format!("{shape} {}", stored.shape),
                    Diagnostic::new(place(), "wrong shape")
                        .expected(shape)
                        .found(&stored.shape)
                        .help("config.json and the weights are of different models"),
                );
            }
            if !dtypes.contains(&stored.dtype) {
                problems.push(
                    name,
                    stored.dtype.name(),
                    Diagnostic::new(place(), "wrong element type")
                        .expected(any_of(dtypes))
                        .found(stored.dtype),
                );
            }
        }
        for (name, found) in unexpected {
            if !is_ignored(name) {
                problems.push(
                    name,
                    "",
                    Diagnostic::new(format!("{}: {name}", self.file_of(found)), "unexpected tensor")
                        .found(format!("{} {}", found.dtype, found.shape))
                        .help("the model that config.json describes has no such weight"),
                );
            }
        }
        problems.counted().into_result(())
    }

    /// Reads a slice of a tensor into `out`, contiguous and converted to `to`. The elements from
    /// `element_offset` on are viewed as a row-major tensor of shape `logical_shape`. `ranges`
    /// selects one range per dim.
    ///
    /// A caller can thus view one stored tensor as several tensors, or split a dim into heads. Only
    /// the bytes inside the ranges are read.
    ///
    /// # Units
    /// The offset and the ranges count elements; `out` holds little-endian bytes.
    ///
    /// # Errors
    /// See [`Error`]. After an error, `out` may contain a part of the slice.
    pub fn read_slice(
        &self,
        name: &str,
        element_offset: usize,
        logical_shape: &Shape,
        ranges: &[Range<usize>],
        to: DType,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let view = StoredView::new(self.stored(name)?, element_offset, logical_shape, to)?;
        view.read_slice(logical_shape, ranges, out)
    }

    /// Reads a slice of a param into `out`, contiguous and of type `to`. `shape` is the shape of
    /// the param, and `ranges` selects one range per dim. Only the tensors and the bytes inside the
    /// ranges are read, apart from gaps smaller than a page.
    ///
    /// # Errors
    /// The source is not valid, or a tensor does not exist, does not fit or cannot be read.
    #[doc(hidden)]
    pub fn read_param(
        &self,
        source: &Source,
        shape: &Shape,
        ranges: &[Range<usize>],
        to: DType,
        out: &mut [u8],
    ) -> Result<(), exec::Error> {
        check_slice(&source.tensor, shape, ranges, to, out.len())?;
        let weight = Weight::new(self, source, shape, to, vec![ranges])?;
        let mut scratch = Scratch::default();
        (0..weight.pieces()).try_for_each(|piece| {
            weight.give(piece, &mut scratch, &mut |_, offset, len_bytes, write| {
                write(&mut out[offset..offset + len_bytes])
            })
        })
    }

    /// Reads a whole floating-point tensor as f32.
    ///
    /// # Errors
    /// The tensor does not exist or is not a float tensor.
    pub fn read_f32(&self, name: &str) -> Result<(Shape, Vec<f32>), Error> {
        let (shape, bytes) = self.read_whole(name, DType::F32)?;
        Ok((shape, bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
    }

    /// Reads a whole tensor of 64-bit integers, such as token ids.
    ///
    /// # Errors
    /// The tensor does not exist or has another type.
    pub fn read_i64(&self, name: &str) -> Result<(Shape, Vec<i64>), Error> {
        let (shape, bytes) = self.read_whole(name, DType::I64)?;
        Ok((shape, bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()))
    }

    pub(crate) fn read_whole(&self, name: &str, to: DType) -> Result<(Shape, Vec<u8>), Error> {
        let shape = &self.info(name)?.shape;
        let mut bytes = vec![0; shape.elems() * to.size_bytes()];
        let ranges: Vec<Range<usize>> = shape.iter().map(|&size| 0..size).collect();
        self.read_slice(name, 0, shape, &ranges, to, &mut bytes)?;
        Ok((shape.clone(), bytes))
    }

    pub(super) fn stored(&self, name: &str) -> Result<Stored<'_>, Error> {
        let (name, info) = self.tensors.get_key_value(name).ok_or_else(|| self.unknown(name))?;
        let file = &self.files[info.file].file;
        let (first_byte, elems) = (info.bytes.start, info.shape.elems());
        Ok(Stored { name, dtype: info.dtype, file, first_byte, elems, delta: self.deltas.get(name) })
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.tensor(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Error {
        Error::UnknownTensor { tensor: name.to_owned(), checkpoint: self.path.display().to_string() }
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        f.debug_struct("Checkpoint")
            .field("path", &self.path)
            .field("files", &files)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// Returns the names as `f32, f16 or bf16`.
fn any_of(dtypes: &[DType]) -> String {
    let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Returns the sizes without the last dims of size 1. Programs that write scales add such dims.
fn sizes(shape: &Shape) -> &[usize] {
    let ones = shape.iter().rev().take_while(|size| **size == 1).count();
    &shape[..shape.rank() - ones]
}

/// Returns the names of the weights, or of their index, that msModelSlim wrote, sorted.
fn quantised_files(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).into_iter().flatten();
    let names = names.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let is_one = |name: &String| {
        name.starts_with(QUANTISED) && (name.ends_with(".safetensors") || name.ends_with(INDEX_SUFFIX))
    };
    let mut names: Vec<String> = names.filter(is_one).collect();
    names.sort_unstable();
    names
}

/// Describes the content of a folder without a supported checkpoint.
fn no_checkpoint(dir: &Path) -> Diagnostic {
    let mut others: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| {
            [".safetensors", ".bin", ".pt", ".pth", ".gguf"].iter().any(|suffix| name.ends_with(suffix))
        })
        .collect();
    others.sort_unstable();
    others.truncate(4);
    let problem = Diagnostic::new(dir.display().to_string(), "no checkpoint in this folder")
        .expected(format!("{SINGLE} or {INDEX}"));
    if others.is_empty() {
        return problem.help("name the folder that config.json and the weights are in");
    }
    problem.found(others.join(", ")).help("convert the weights to safetensors, or download the index file")
}

fn open_parsed(name: &str, path: &Path) -> Result<(File, Vec<header::TensorEntry>), Diagnostics> {
    let unreadable = |error| Diagnostic::new(name, "cannot be read").found(error);
    let file = file::open(path).map_err(unreadable)?;
    let (head, length) = header::read(&file).map_err(unreadable)?;
    let entries = header::parse(name, &head, length)?;
    Ok((file, entries))
}

#[derive(serde::Deserialize)]
#[serde(rename = "Index")]
struct CheckpointIndex {
    weight_map: Entries<String>,
}

fn open_indexed(dir: &Path, index: &str, text: &[u8]) -> Result<Checkpoint, Diagnostics> {
    let CheckpointIndex { weight_map } = serde_json::from_slice(text).map_err(|error| {
        Diagnostic::new(index, "not an index of safetensors files")
            .expected("an object with a weight_map")
            .found(error)
    })?;
    let mut problems = Diagnostics::new();
    for name in weight_map.repeated() {
        problems.push(Diagnostic::new(format!("{index}: {name}"), "more than one entry has this name"));
    }
    let mut indexed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in &weight_map.0 {
        indexed.entry(file).or_default().push(tensor);
    }
    let mut opened = OpenedFiles { index, ..OpenedFiles::default() };
    for (file, tensors) in indexed {
        if Path::new(file).file_name().is_none_or(|name| name != file) {
            problems.push(
                Diagnostic::new(
                    format!("{index}: {}", tensors[0]),
                    "not the name of a file in the same folder",
                )
                .found(file),
            );
        } else if dir.join(file).exists() {
            match open_parsed(file, &dir.join(file)) {
                Ok((opened_file, entries)) => opened.add(file, opened_file, entries, &tensors, &mut problems),
                Err(found) => problems.append(found),
            }
        } else {
            problems.push(
                Diagnostic::new(file, "missing file")
                    .expected(format!(
                        "{} that {index} says it holds, {} first",
                        count_tensors(tensors.len()),
                        tensors[0]
                    ))
                    .help("download the file"),
            );
        }
    }
    let OpenedFiles { files, tensors, .. } = opened;
    problems.into_result(())?;
    Checkpoint::of(dir, files, tensors)
}

#[derive(Default)]
struct OpenedFiles<'a> {
    /// Name of the index.
    index: &'a str,
    files: Vec<NamedFile>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl OpenedFiles<'_> {
    /// Adds a file. `indexed` lists the tensors of this file in the index.
    fn add(
        &mut self,
        name: &str,
        file: File,
        entries: Vec<header::TensorEntry>,
        indexed: &[&str],
        problems: &mut Diagnostics,
    ) {
        let mut absent: Vec<&str> = indexed.to_vec();
        absent.sort_unstable();
        absent.dedup();
        for entry in entries {
            match absent.binary_search(&entry.name.as_str()) {
                Ok(at) => {
                    absent.remove(at);
                }
                Err(_) => problems.push(
                    Diagnostic::new(
                        format!("{name}: {}", entry.name),
                        format!("{} does not say that the tensor is here", self.index),
                    )
                    .help("the index and the file are of different checkpoints"),
                ),
            }
            let info = TensorInfo {
                dtype: entry.dtype,
                shape: entry.shape,
                file: self.files.len(),
                bytes: entry.bytes,
            };
            if let Some(first) = self.tensors.get(&entry.name) {
                let other = &self.files[first.file].name;
                problems.push(Diagnostic::new(
                    format!("{name}: {}", entry.name),
                    format!("the tensor is in {other} too"),
                ));
            } else {
                self.tensors.insert(entry.name, info);
            }
        }
        for tensor in absent.into_iter().filter(|tensor| !header::is_computed_buffer(tensor)) {
            problems.push(
                Diagnostic::new(
                    format!("{name}: {tensor}"),
                    format!("{} names the tensor, the file has none", self.index),
                )
                .help("download the file again"),
            );
        }
        self.files.push(NamedFile { name: name.to_owned(), file });
    }
}

/// Problems of tensors, in which the experts of one layer count as one.
#[derive(Default)]
struct TensorProblems<'a> {
    /// The first problem of each kind, with the number of problems.
    found: Vec<(Diagnostic, usize)>,
    /// Index of a kind: message, experts and details.
    kinds: BTreeMap<(String, &'a str, String), usize>,
}

impl<'a> TensorProblems<'a> {
    /// Adds a problem of the tensor `name`. Problems with other `details` are separate.
    fn push(&mut self, name: &'a str, details: &str, problem: Diagnostic) {
        if let Some(experts) = experts_of(name) {
            let kind = (problem.message.clone(), experts, details.to_owned());
            let next = self.found.len();
            let at = *self.kinds.entry(kind).or_insert(next);
            if at < next {
                self.found[at].1 += 1;
                return;
            }
        }
        self.found.push((problem, 1));
    }

    fn counted(self) -> Diagnostics {
        let mut problems = Diagnostics::new();
        for (mut problem, count) in self.found {
            if count > 1 {
                problem.message += &format!(" (and {} more of the experts of this layer)", count - 1);
            }
            problems.push(problem);
        }
        problems
    }
}

/// Returns the part of a name before the second number, such as `model.layers.3.mlp.experts` of
/// `model.layers.3.mlp.experts.17.up_proj.weight`. The first number is the layer.
fn experts_of(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut numbers = name.split('.').scan(0, |end, part| {
        let start = *end;
        *end += part.len() + 1;
        Some((start, part))
    });
    let (start, _) = numbers.by_ref().filter(|(_, part)| is_number(part)).nth(1)?;
    Some(&name[..start - 1])
}

fn count_tensors(count: usize) -> String {
    if count == 1 { "1 tensor".to_owned() } else { format!("{count} tensors") }
}

#[cfg(test)]
mod tests;
