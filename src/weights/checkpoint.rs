//! The files of a checkpoint as one set of named tensors.
//!
//! Input → output: a folder or a file → [`Checkpoint`]. Invariants: each name has one tensor; the index, where there is
//! one, and the files agree. It holds the maps and decides nothing about models.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::header;
use super::json::Entries;
use super::load::PIECE_BYTES;
use super::slice::{Error, Request};
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};
use crate::device::file;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// One stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
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
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, TensorInfo>,
}

struct MappedFile {
    name: String,
    map: Mmap,
}

impl Checkpoint {
    /// Opens the checkpoint in the folder `dir`: `model.safetensors`, or else the files that
    /// `model.safetensors.index.json` names.
    ///
    /// # Errors
    /// Every problem of the files: neither file is there, a named file is absent, a file is truncated or its header is
    /// wrong, the index names tensors that no file has or the reverse, a name occurs twice, an element type is not
    /// supported.
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
        match fs::read(dir.join(INDEX)) {
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
        let (map, entries) = open_mapped(&name, path)?;
        let tensors = entries
            .into_iter()
            .map(|entry| {
                (entry.name, TensorInfo { dtype: entry.dtype, shape: entry.shape, file: 0, bytes: entry.bytes })
            })
            .collect();
        Ok(Self { path: path.to_path_buf(), files: vec![MappedFile { name, map }], tensors })
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

    /// Checks that the tensors a model needs are there, with their shapes and floating-point elements, and that there
    /// is no other, which a wrong `config.json` would leave unread.
    ///
    /// A tensor whose name ends with one of `ignorable` may be there without being expected: `lm_head.weight` in the
    /// checkpoint of a model with tied embeddings.
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
                    Diagnostic::new(place(), "wrong element type").expected("f32, f16 or bf16").found(found.dtype),
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

    /// Reads a part of a tensor: its elements from `element_offset` on, seen as a row-major tensor of shape
    /// `logical_shape`, cut to `ranges` (one per dim), converted to `to`, contiguous, into `out`.
    ///
    /// The offset and shape let one stored tensor be seen as several, or as heads and dims. Only the bytes inside the
    /// ranges are read, and the pages they were mapped to are given back.
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
        let (tensor, stored) = self.stored(name)?;
        let (dtype, offset, view) = (tensor.dtype, element_offset, logical_shape);
        let request = Request { tensor: name, dtype, stored, offset, view, ranges, to };
        request.read(out)?;
        self.release(tensor, request.span());
        Ok(())
    }

    /// Hands over the slice that [`Checkpoint::read_slice`] would read, in pieces of at most [`PIECE_BYTES`], in order, if its
    /// elements lie together in the file as they are wanted; no byte is copied. False if they do not, and then nothing was
    /// handed over.
    ///
    /// # Errors
    /// See [`Error`], and what `visit` refuses.
    pub(super) fn visit_slice<E: From<Error>>(
        &self,
        name: &str,
        element_offset: usize,
        logical_shape: &Shape,
        ranges: &[Range<usize>],
        to: DType,
        mut visit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (tensor, stored) = self.stored(name)?;
        let (dtype, offset, view) = (tensor.dtype, element_offset, logical_shape);
        let request = Request { tensor: name, dtype, stored, offset, view, ranges, to };
        let Some(span) = request.as_it_lies()? else { return Ok(false) };
        let mut start = span.start;
        while start < span.end {
            // The system maps a whole aligned block of pages around one that is touched. Pieces end where such blocks do, so
            // that none of it is what was given back before.
            let end = span.end.min(start + PIECE_BYTES - stored[start..].as_ptr().addr() % PIECE_BYTES);
            visit(&stored[start..end])?;
            self.release(tensor, start..end);
            start = end;
        }
        Ok(true)
    }

    /// Gives back the pages that some bytes of a tensor were mapped to.
    fn release(&self, tensor: &TensorInfo, bytes: Range<usize>) {
        let start = tensor.bytes.start;
        file::release(&self.files[tensor.file].map, start + bytes.start..start + bytes.end);
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

    fn read_whole(&self, name: &str, to: DType) -> Result<(Shape, Vec<u8>), Error> {
        let (tensor, _) = self.stored(name)?;
        let mut bytes = vec![0; tensor.shape.elems() * to.size_bytes()];
        let ranges: Vec<Range<usize>> = tensor.shape.iter().map(|&size| 0..size).collect();
        self.read_slice(name, 0, &tensor.shape, &ranges, to, &mut bytes)?;
        Ok((tensor.shape.clone(), bytes))
    }

    fn stored(&self, name: &str) -> Result<(&TensorInfo, &[u8]), Error> {
        let tensor = self.tensor(name).ok_or_else(|| Error::UnknownTensor {
            tensor: name.to_owned(),
            checkpoint: self.path.display().to_string(),
        })?;
        Ok((tensor, &self.files[tensor.file].map[tensor.bytes.clone()]))
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
        .filter(|name| [".safetensors", ".bin", ".pt", ".pth", ".gguf"].iter().any(|suffix| name.ends_with(suffix)))
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

fn open_mapped(name: &str, path: &Path) -> Result<(Mmap, Vec<header::Entry>), Diagnostics> {
    let map = file::map(path).map_err(|error| Diagnostic::new(name, "cannot be read").found(error))?;
    let entries = header::parse(name, &map)?;
    Ok((map, entries))
}

/// An index file as written.
#[derive(serde::Deserialize)]
struct Index {
    weight_map: Entries<String>,
}

fn open_indexed(dir: &Path, index: &[u8]) -> Result<Checkpoint, Diagnostics> {
    let Index { weight_map } = serde_json::from_slice(index).map_err(|error| {
        Diagnostic::new(INDEX, "not an index of safetensors files").expected("an object with a weight_map").found(error)
    })?;
    let mut problems = Diagnostics::new();
    for name in weight_map.repeated() {
        problems.push(Diagnostic::new(format!("{INDEX}: {name}"), "more than one entry has this name"));
    }
    let mut indexed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, file) in &weight_map.0 {
        indexed.entry(file).or_default().push(tensor);
    }
    let mut opened = Opened::default();
    for (file, tensors) in indexed {
        if Path::new(file).file_name().is_none_or(|name| name != file) {
            problems.push(
                Diagnostic::new(format!("{INDEX}: {}", tensors[0]), "not the name of a file in the same folder")
                    .found(file),
            );
        } else if dir.join(file).exists() {
            match open_mapped(file, &dir.join(file)) {
                Ok((map, entries)) => opened.add(file, map, entries, &tensors, &mut problems),
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
    let Opened { files, tensors } = opened;
    problems.into_result(Checkpoint { path: dir.to_path_buf(), files, tensors })
}

/// The files of an index so far.
#[derive(Default)]
struct Opened {
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl Opened {
    /// Adds a file, of which the index says that it holds `indexed`.
    fn add(
        &mut self,
        name: &str,
        map: Mmap,
        entries: Vec<header::Entry>,
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
            let info =
                TensorInfo { dtype: entry.dtype, shape: entry.shape, file: self.files.len(), bytes: entry.bytes };
            if let Some(first) = self.tensors.get(&entry.name) {
                let other = &self.files[first.file].name;
                problems
                    .push(Diagnostic::new(format!("{name}: {}", entry.name), format!("the tensor is in {other} too")));
            } else {
                self.tensors.insert(entry.name, info);
            }
        }
        for tensor in absent.into_iter().filter(|tensor| !header::is_computed_buffer(tensor)) {
            problems.push(
                Diagnostic::new(format!("{name}: {tensor}"), format!("{INDEX} names the tensor, the file has none"))
                    .help("download the file again"),
            );
        }
        self.files.push(MappedFile { name: name.to_owned(), map });
    }
}

fn count_tensors(count: usize) -> String {
    if count == 1 { "1 tensor".to_owned() } else { format!("{count} tensors") }
}

#[cfg(test)]
mod tests;
