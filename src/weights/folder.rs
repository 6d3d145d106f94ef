//! Writes folders of models.
//!
//! Input: tensors with their bytes, one after the other. Output: a folder with safetensors files
//! and an index.
//!
//! Invariants: a folder appears when it is complete, and never replaces a folder with files. One
//! tensor is in memory at a time.
//!
//! Not here: which tensors a model has.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Value, json};

use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};

const FOLDER_MODE: u32 = 0o777;

/// Size of the length field.
const LENGTH_BYTES: usize = 8;

/// Limit of safetensors, in bytes.
const LONGEST_HEADER: usize = 100_000_000;

/// Files of a model folder that are copied next to new weights.
const ALONG: [&str; 13] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "qwen.tiktoken",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "LICENSE",
];

/// Extension of code that `auto_map` names.
const CODE: &str = "py";

/// Reasons why a folder cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Every invalid argument or file. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Diagnostics),
    /// Failed write. Earlier files are unchanged.
    #[error("{0}")]
    Write(Diagnostic),
}

impl FolderError {
    fn of(path: &Path, what: &str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self::Write(Diagnostic::new(path.display().to_string(), what).found(error))
    }
}

/// A tensor to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl NewTensor {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of(self.shape.elems(), self.dtype.size_bytes())
    }
}

/// Names and sizes of the files of the weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileNames {
    /// Start of the names.
    pub(crate) stem: &'static str,
    /// A single file has no number and no index.
    pub(crate) is_plain_alone: bool,
    /// Largest file, unless one tensor is larger.
    pub(crate) file_bytes: u64,
}

impl FileNames {
    /// The names of transformers, with the largest file that the Hub accepts.
    pub(crate) const TRANSFORMERS: Self =
        Self { stem: "model", is_plain_alone: true, file_bytes: 5_000_000_000 };
    /// The names of msModelSlim.
    pub(crate) const MODEL_SLIM: Self =
        Self { stem: "quant_model_weights", is_plain_alone: false, ..Self::TRANSFORMERS };
}

/// Reports a folder with files, and a file, at the place of a new folder.
pub(crate) fn problems_of_place(into: &Path, problems: &mut Diagnostics) {
    if fs::read_dir(into).is_ok_and(|mut entries| entries.next().is_some()) || into.is_file() {
        let problem = Diagnostic::new(into.display().to_string(), "something is there already");
        problems.push(problem.expected("a new or an empty folder"));
    }
}

/// Writes a folder under a temporary name and renames it, so that it appears in one step. Returns
/// the result of `write` and the names of the files, sorted.
pub(crate) fn publish<T, E: From<FolderError>>(
    into: &Path,
    write: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<(T, Vec<String>), E> {
    let parent = into.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: io::Error| FolderError::of(into, "cannot be written", error);
    fs::create_dir_all(parent).map_err(failed)?;
    let mode = fs::Permissions::from_mode(FOLDER_MODE);
    let partial = tempfile::Builder::new()
        .prefix(".ascend-tp-")
        .permissions(mode)
        .tempdir_in(parent)
        .map_err(failed)?;
    let written = write(partial.path())?;
    let mut files = Vec::new();
    for entry in fs::read_dir(partial.path()).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        File::open(entry.path()).and_then(|file| file.sync_all()).map_err(failed)?;
        files.push(entry.file_name().to_string_lossy().into_owned());
    }
    files.sort_unstable();
    fs::rename(partial.path(), into).map_err(failed)?;
    // The renamed folder must not be deleted.
    let _renamed = partial.keep();
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    Ok((written, files))
}

/// Writes tensors into files of limited size. `bytes` has the bytes of each tensor in order.
pub(crate) fn write_tensors<E: From<FolderError>>(
    tensors: &[NewTensor],
    folder: &Path,
    names: FileNames,
    mut bytes: impl Iterator<Item = Result<Vec<u8>, E>>,
) -> Result<Bytes, E> {
    let mut files: Vec<&[NewTensor]> = Vec::new();
    let mut rest = tensors;
    while !rest.is_empty() {
        let mut size = 0;
        let fitting = rest.iter().take_while(|tensor| {
            size += tensor.bytes().0;
            size <= names.file_bytes
        });
        let (file, others) = rest.split_at(fitting.count().max(1));
        files.push(file);
        rest = others;
    }
    let is_plain = files.len() == 1 && names.is_plain_alone;
    let (stem, count) = (names.stem, files.len());
    let mut places = serde_json::Map::new();
    for (number, tensors) in files.iter().enumerate() {
        let name = match is_plain {
            true => format!("{stem}.safetensors"),
            false => format!("{stem}-{:05}-of-{count:05}.safetensors", number + 1),
        };
        write_file(&folder.join(&name), tensors, &mut bytes)?;
        places.extend(tensors.iter().map(|tensor| (tensor.name.clone(), Value::String(name.clone()))));
    }
    let size: Bytes = tensors.iter().map(NewTensor::bytes).sum();
    if !is_plain {
        let index = json!({ "metadata": { "total_size": size.0 }, "weight_map": places });
        write_json(&folder.join(format!("{stem}.safetensors.index.json")), &index)?;
    }
    Ok(size)
}

/// Writes one safetensors file with the next tensors of `bytes`.
pub(crate) fn write_file<E: From<FolderError>>(
    path: &Path,
    tensors: &[NewTensor],
    bytes: &mut impl Iterator<Item = Result<Vec<u8>, E>>,
) -> Result<(), E> {
    let failed = |error: io::Error| FolderError::of(path, "cannot be written", error);
    let mut end = 0;
    let entries = tensors.iter().map(|tensor| {
        let begin = end;
        end += tensor.shape.elems() * tensor.dtype.size_bytes();
        let dtype = stored(tensor.dtype);
        let info = TensorInfo { dtype, shape: tensor.shape.to_vec(), data_offsets: (begin, end) };
        (tensor.name.clone(), info)
    });
    let header = header("format", "pt".to_owned(), entries.collect())
        .map_err(|error| failed(io::Error::other(error)))?;
    let mut file = File::create_new(path).map_err(failed)?;
    file.write_all(&header).map_err(failed)?;
    for tensor in tensors {
        let bytes = bytes.next().unwrap_or_else(|| Ok(Vec::new()))?;
        if bytes.len() as u64 != tensor.bytes().0 {
            let problem = Diagnostic::new(&tensor.name, "the bytes do not have the size of the tensor");
            let problem = problem.expected(tensor.bytes()).found(Bytes(bytes.len() as u64));
            return Err(FolderError::Write(problem).into());
        }
        file.write_all(&bytes).map_err(failed)?;
    }
    Ok(())
}

/// Writes a JSON file.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), FolderError> {
    let failed = |error: io::Error| FolderError::of(path, "cannot be written", error);
    let text = serde_json::to_string_pretty(value).map_err(|error| failed(error.into()))?;
    fs::write(path, text + "\n").map_err(failed)
}

/// Copies tokenizer, generation settings, template, licence and code of a model.
pub(crate) fn copy_along(model: &Path, folder: &Path) -> Result<(), FolderError> {
    let unreadable = |error: io::Error| FolderError::of(model, "cannot be read", error);
    for entry in fs::read_dir(model).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let is_code = Path::new(&name).extension().is_some_and(|extension| extension == CODE);
        if entry.path().is_file() && (is_code || ALONG.iter().any(|along| name == *along)) {
            fs::copy(entry.path(), folder.join(&name))
                .map_err(|error| FolderError::of(&entry.path(), "cannot be copied", error))?;
        }
    }
    Ok(())
}

/// Returns the length field and the padded header, with `description` under `key`.
pub(crate) fn header(
    key: &str,
    description: String,
    entries: Vec<(String, TensorInfo)>,
) -> Result<Vec<u8>, HeaderError> {
    // Several keys would have no fixed order.
    let metadata = Metadata::new(Some(HashMap::from([(key.to_owned(), description)])), entries)?;
    let mut text = serde_json::to_vec(&metadata)?;
    text.resize(text.len().next_multiple_of(LENGTH_BYTES), b' ');
    if text.len() > LONGEST_HEADER {
        return Err(HeaderError::TooLong(text.len()));
    }
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error(transparent)]
    Entries(#[from] safetensors::SafeTensorError),
    #[error(transparent)]
    Text(#[from] serde_json::Error),
    #[error("a header of {0} bytes, where the format allows {LONGEST_HEADER}")]
    TooLong(usize),
}

pub(crate) const fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::Bool => Dtype::BOOL,
    }
}
