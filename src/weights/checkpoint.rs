//! The files of a checkpoint as one set of named tensors.
//!
//! Input → output: a folder or a file → [`Checkpoint`]. Invariants: each name has one tensor; the
//! index, where there is one, and the files agree. It holds the open files and decides nothing
//! about models.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::adapter::{self, Delta};
use super::json::Entries;
use super::slice::{Error, Stored, View};
use super::{file, header};
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Name of the head's tensor in every family.
const HEAD: &str = "lm_head.weight";

/// One stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Type of its elements.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Shape,
    /// Index of the file it is in.
    file: usize,
    /// Where its bytes are in the file.
    bytes: Range<usize>,
}

/// A tensor that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// The name in the checkpoint.
    pub name: String,
    /// The shape in the checkpoint.
    pub shape: Shape,
}

/// An opened checkpoint. Cheap to share between ranks: reading takes `&self`.
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<NamedFile>,
    tensors: BTreeMap<String, TensorInfo>,
    /// What is added to tensors as they are read.
    deltas: BTreeMap<String, Delta>,
}

struct NamedFile {
    name: String,
    file: File,
}

impl Checkpoint {
    /// Opens the checkpoint in the folder `dir`: `model.safetensors`, or else the files that
    /// `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// Every problem of the files: neither file is there, a named file is absent, a file is
    /// truncated or its header is wrong, the index names tensors that no file has or the reverse, a
    /// name occurs twice, an element type is not supported.
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
        match file::read(&dir.join(INDEX)) {
            Ok(index) => open_indexed(dir, &index),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(no_checkpoint(dir).into()),
            Err(error) => Err(Diagnostic::new(INDEX, "cannot be read").found(error).into()),
        }
    }

    /// Opens one safetensors file, such as one with reference outputs.
    ///
    /// # Errors
    /// Every problem of the file.
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
        Ok(Self {
            path: path.to_path_buf(),
            files: vec![NamedFile { name, file }],
            tensors,
            deltas: BTreeMap::new(),
        })
    }

    /// The checkpoint with low-rank adapters added to its weights as they are read: those of a
    /// folder with `adapter_config.json` and `adapter_model.safetensors`, as peft writes it.
    ///
    /// # Errors
    /// Every problem of the folder's files, and every tensor of theirs that does not fit this
    /// checkpoint.
    pub fn with_adapter(mut self, folder: &Path) -> Result<Self, Diagnostics> {
        self.deltas = adapter::read(folder, &self)?;
        Ok(self)
    }

    /// Returns the checkpoint of a model with tied embeddings, whose one table may be stored as
    /// `lm_head.weight` alone: it has the name `embedding` from now on.
    #[must_use]
    pub fn with_tied_embedding(mut self, embedding: &str) -> Self {
        if !self.tensors.contains_key(embedding)
            && let Some(head) = self.tensors.remove(HEAD)
        {
            self.tensors.insert(embedding.to_owned(), head);
        }
        self
    }

    /// Returns the element type that most floating-point elements have; none if there are none.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        let mut elems: BTreeMap<DType, usize> = BTreeMap::new();
        for tensor in self.tensors.values().filter(|tensor| tensor.dtype.is_float()) {
            *elems.entry(tensor.dtype).or_default() += tensor.shape.elems();
        }
        elems.into_iter().max_by_key(|(_, elems)| *elems).map(|(dtype, _)| dtype)
    }

    /// The tensor of this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// The file that holds the tensor, for messages.
    #[must_use]
    pub fn file_of(&self, tensor: &TensorInfo) -> &str {
        self.files.get(tensor.file).map_or("", |file| file.name.as_str())
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.tensors.values().map(|tensor| Bytes(tensor.bytes.len() as u64)).sum()
    }

    /// Checks that the tensors a model needs are there, with their shapes and floating-point
    /// elements, and that there is no other, which a wrong `config.json` would leave unread.
    ///
    /// A tensor whose name ends with one of `ignorable` may be there without being expected:
    /// `lm_head.weight` in the checkpoint of a model with tied embeddings.
    ///
    /// # Errors
    /// Every missing, unexpected or different tensor.
    pub fn check(&self, expected: &[ExpectedTensor], ignorable: &[&str]) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut unexpected: BTreeMap<&str, &TensorInfo> = self.tensors().collect();
        for ExpectedTensor { name, shape } in expected {
            unexpected.remove(name.as_str());
            let Some(found) = self.tensor(name) else {
                problems.push(
                    Diagnostic::new(format!("{}: {name}", self.path.display()), "missing tensor")
                        .expected(shape)
                        .help("config.json and the weights are of different models, or files are missing"),
                );
                continue;
            };
            let place = || format!("{}: {name}", self.file_of(found));
            if found.shape != *shape {
                problems.push(
                    Diagnostic::new(place(), "wrong shape")
                        .expected(shape)
                        .found(&found.shape)
                        .help("config.json and the weights are of different models"),
                );
            }
            if !found.dtype.is_float() {
                problems.push(
                    Diagnostic::new(place(), "wrong element type")
                        .expected("f32, f16 or bf16")
                        .found(found.dtype),
                );
            }
        }
        for (name, found) in unexpected {
            if !ignorable.iter().any(|suffix| name.ends_with(suffix)) {
                problems.push(
                    Diagnostic::new(format!("{}: {name}", self.file_of(found)), "unexpected tensor")
                        .found(format!("{} {}", found.dtype, found.shape))
                        .help("the model that config.json describes has no such weight"),
                );
            }
        }
        problems.into_result(())
    }

    /// Reads a part of a tensor: its elements from `element_offset` on, seen as a row-major tensor
    /// of shape `logical_shape`, cut to `ranges` (one per dim), converted to `to`, contiguous, into
    /// `out`.
    ///
    /// The offset and shape let one stored tensor be seen as several, or as heads and dims. Only
    /// the bytes inside the ranges are read.
    ///
    /// # Units
    /// Offset and ranges count elements; `out` is bytes, little-endian.
    ///
    /// # Errors
    /// See [`Error`]; after one, `out` may hold a part of the slice.
    pub fn read_slice(
        &self,
        name: &str,
        element_offset: usize,
        logical_shape: &Shape,
        ranges: &[Range<usize>],
        to: DType,
        out: &mut [u8],
    ) -> Result<(), Error> {
        View::new(self.stored(name)?, element_offset, logical_shape, to)?.read_slice(ranges, out)
    }

    /// A whole floating-point tensor.
    ///
    /// # Errors
    /// No such tensor, or it holds other numbers.
    pub fn read_f32(&self, name: &str) -> Result<(Shape, Vec<f32>), Error> {
        let (shape, bytes) = self.read_whole(name, DType::F32)?;
        Ok((shape, bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()))
    }

    /// A whole tensor of 64-bit integers, such as token ids.
    ///
    /// # Errors
    /// No such tensor, or it holds other numbers.
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

    /// The tensor of this name, to be read.
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

/// What is in a folder that has no checkpoint this runtime reads.
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

/// An index file as written.
#[derive(serde::Deserialize)]
struct Index {
    weight_map: Entries<String>,
}

fn open_indexed(dir: &Path, index: &[u8]) -> Result<Checkpoint, Diagnostics> {
    let Index { weight_map } = serde_json::from_slice(index).map_err(|error| {
        Diagnostic::new(INDEX, "not an index of safetensors files")
            .expected("an object with a weight_map")
            .found(error)
    })?;
    let mut problems = Diagnostics::new();
    for name in weight_map.repeated() {
        problems.push(Diagnostic::new(format!("{INDEX}: {name}"), "more than one entry has this name"));
    }
    let mut indexed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in &weight_map.0 {
        indexed.entry(file).or_default().push(tensor);
    }
    let mut opened = OpenedFiles::default();
    for (file, tensors) in indexed {
        if Path::new(file).file_name().is_none_or(|name| name != file) {
            problems.push(
                Diagnostic::new(
                    format!("{INDEX}: {}", tensors[0]),
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
                        "{} that {INDEX} says it holds, {} first",
                        count_tensors(tensors.len()),
                        tensors[0]
                    ))
                    .help("download the file"),
            );
        }
    }
    let OpenedFiles { files, tensors } = opened;
    problems.into_result(Checkpoint { path: dir.to_path_buf(), files, tensors, deltas: BTreeMap::new() })
}

/// The files of an index so far.
#[derive(Default)]
struct OpenedFiles {
    files: Vec<NamedFile>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl OpenedFiles {
    /// Adds a file, of which the index says that it holds `indexed`.
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
                        format!("{INDEX} does not say that the tensor is here"),
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
                    format!("{INDEX} names the tensor, the file has none"),
                )
                .help("download the file again"),
            );
        }
        self.files.push(NamedFile { name: name.to_owned(), file });
    }
}

fn count_tensors(count: usize) -> String {
    if count == 1 { "1 tensor".to_owned() } else { format!("{count} tensors") }
}

#[cfg(test)]
mod tests;
