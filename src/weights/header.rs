//! Parses the header of one safetensors file.
//!
//! Input: the first bytes of a file and its length. Output: the tensors of the file, or all its
//! problems.
//!
//! Invariant: the bytes of a returned tensor are inside the file, overlap no other tensor and match
//! its shape and element type.
//!
//! A file starts with the header length, as a little-endian `u64`. The header is a JSON object of
//! `name: {dtype, shape, data_offsets}` with an optional `__metadata__`. The data follows; the
//! offsets count from its start and cover it without holes.
//!
//! This module parses each entry itself so that one pass can report all problems. The safetensors
//! crate only defines the element types.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use safetensors::Dtype;
use serde_json::Value;

use super::json::Entries;
use crate::base::{Bytes, DType, Diagnostic, Diagnostics, Shape};

const LENGTH_BYTES: usize = 8;
/// Enough bytes to recognise the kind of a file.
const FIRST_BYTES: usize = 16;
/// Largest header of the format, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;
const METADATA: &str = "__metadata__";

/// Suffixes of buffers that some publishers store, but every runtime computes itself.
const COMPUTED_BUFFERS: [&str; 4] =
    [".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attn.logn_tensor"];

pub(super) fn is_computed_buffer(name: &str) -> bool {
    COMPUTED_BUFFERS.iter().any(|suffix| name.ends_with(suffix))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) bytes: Range<usize>,
}

/// Reads the file length and the first bytes of a file, including the whole header if the file has
/// a valid one.
pub(super) fn read(file: &File) -> io::Result<(Vec<u8>, usize)> {
    let length = file.metadata()?.len();
    let mut head = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(FIRST_BYTES)];
    file.read_exact_at(&mut head, 0)?;
    if let Some((header, rest)) = head.split_first_chunk() {
        let header = u64::from_le_bytes(*header);
        let is_one = header <= LONGEST_HEADER && header <= length - LENGTH_BYTES as u64;
        // A header of at most 100 MB fits in `usize`.
        let missing = usize::try_from(header).unwrap_or(0).saturating_sub(rest.len());
        if is_one && missing > 0 {
            let at = head.len();
            head.resize(at + missing, 0);
            file.read_exact_at(&mut head[at..], at as u64)?;
        }
    }
    Ok((head, usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?))
}

/// Returns the tensors of a file of `length` bytes, without computed buffers. `head` must contain
/// the whole header. Problems name the file as `file`.
pub(super) fn parse(file: &str, head: &[u8], length: usize) -> Result<Vec<TensorEntry>, Diagnostics> {
    let (parsed, mut problems) = parse_any(file, head, length);
    let supported = parsed.into_iter().filter_map(|entry| entry.supported(file, &mut problems)).collect();
    problems.into_result(supported)
}

/// Returns all tensors of a file, sorted by offset, with any element type. Problems name the file
/// as `name`.
pub(crate) fn any_entries(name: &str, file: &File) -> Result<Vec<AnyEntry>, Diagnostics> {
    let (head, length) = read(file).map_err(|error| Diagnostic::new(name, "cannot be read").found(error))?;
    let (parsed, problems) = parse_any(name, &head, length);
    problems.into_result(parsed)
}

/// Returns the valid entries, and all problems of the other entries and of the file.
fn parse_any(file: &str, head: &[u8], length: usize) -> (Vec<AnyEntry>, Diagnostics) {
    let (header, data_start) = match split_header(file, head, length) {
        Ok(split) => split,
        Err(problems) => return (Vec::new(), problems),
    };
    let entries: Entries<Value> = match serde_json::from_slice(header) {
        Ok(entries) => entries,
        Err(error) => {
            let problem = Diagnostic::new(file, "the header is not a JSON object").found(error);
            return (Vec::new(), problem.help("download the file again").into());
        }
    };
    let mut problems = Diagnostics::new();
    for name in entries.repeated() {
        problems.push(
            Diagnostic::new(place(file, name), "more than one tensor has this name")
                .help("the file is not usable; get it again"),
        );
    }
    let data = data_start..length;
    let mut parsed = Vec::with_capacity(entries.0.len());
    for (name, value) in entries.0.into_iter().filter(|(name, _)| name != METADATA) {
        match parse_entry(file, name, value, &data) {
            Ok(entry) => parsed.push(entry),
            Err(found) => problems.append(found),
        }
    }
    if problems.is_empty() {
        parsed.sort_by_key(|entry| (entry.bytes.start, entry.bytes.end));
        check_cover(file, &parsed, &data, &mut problems);
    }
    (parsed, problems)
}

fn split_header<'a>(
    file: &str,
    bytes: &'a [u8],
    file_bytes: usize,
) -> Result<(&'a [u8], usize), Diagnostics> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Diagnostic::new(file, "truncated")
            .expected(format!("at least {LENGTH_BYTES} bytes"))
            .found(format!("{} bytes", bytes.len()))
            .help("download the file again")
            .into());
    };
    if bytes.starts_with(b"version ht") {
        return Err(Diagnostic::new(file, "a Git LFS pointer, not the file itself")
            .help("run `git lfs pull` in its folder")
            .into());
    }
    let length = u64::from_le_bytes(*length);
    let limit = LONGEST_HEADER.min((file_bytes - LENGTH_BYTES) as u64);
    if length > limit {
        return Err(Diagnostic::new(
            file,
            "truncated, or not a safetensors file: the header goes beyond the end",
        )
        .expected(format!("a header of at most {limit} bytes"))
        .found(format!("{length} bytes"))
        .help("download the file again")
        .into());
    }
    // The length is at most the file length, so it fits in `usize`.
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Ok((&rest[..length], LENGTH_BYTES + length))
}

fn place(file: &str, name: &str) -> String {
    format!("{file}: {name}")
}

#[derive(Debug)]
pub(crate) struct AnyEntry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    pub(crate) bytes: Range<usize>,
}

impl AnyEntry {
    /// Returns the entry if its element type is supported and it is not a computed buffer.
    /// Unsupported types are added to `problems`.
    fn supported(self, file: &str, problems: &mut Diagnostics) -> Option<TensorEntry> {
        if is_computed_buffer(&self.name) {
            return None;
        }
        let dtype = match self.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::I32 => DType::I32,
            Dtype::I64 => DType::I64,
            Dtype::I8 => DType::I8,
            Dtype::U8 => DType::U8,
            Dtype::F8_E4M3 => DType::F8E4M3,
            Dtype::BOOL => DType::Bool,
            other => {
                problems.push(
                    Diagnostic::new(place(file, &self.name), "unsupported element type")
                        .expected("F32, F16 or BF16 (I8, I32, U8 and F8_E4M3 for quantised weights; I64 and BOOL for others)")
                        .found(other)
                        .help("convert the checkpoint to one of these"),
                );
                return None;
            }
        };
        Some(TensorEntry { name: self.name, dtype, shape: self.shape, bytes: self.bytes })
    }
}

#[derive(serde::Deserialize)]
struct WrittenEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

fn parse_entry(file: &str, name: String, value: Value, data: &Range<usize>) -> Result<AnyEntry, Diagnostics> {
    let written: WrittenEntry = serde_json::from_value(value)
        .map_err(|error| Diagnostic::new(place(file, &name), "malformed header entry").found(error))?;
    let mut problems = Diagnostics::new();
    let dtype = serde_json::from_value::<Dtype>(Value::String(written.dtype.clone())).ok();
    if dtype.is_none() {
        problems.push(
            Diagnostic::new(place(file, &name), "unknown element type")
                .expected("a safetensors type such as BF16")
                .found(written.dtype),
        );
    }
    let (begin, end) = written.data_offsets;
    let length = data.len() as u64;
    let shape = Shape::new(
        written.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect::<Vec<_>>(),
    );
    if begin > end {
        problems.push(
            Diagnostic::new(place(file, &name), "data_offsets run backwards")
                .expected("begin ≤ end")
                .found(format!("{begin} > {end}")),
        );
    } else if end > length {
        problems.push(
            Diagnostic::new(place(file, &name), "the data lies beyond the end of the file")
                .expected(format!("data_offsets up to {length}, the bytes of data in the file"))
                .found(format!("[{begin}, {end}]"))
                .help("the file is truncated or its header is wrong; download it again"),
        );
    } else if let Some(dtype) = dtype {
        match needed_bytes(dtype, &written.shape) {
            Some(needed) if needed == end - begin => {}
            needed => problems.push(
                Diagnostic::new(place(file, &name), "shape and data_offsets disagree")
                    .expected(match needed {
                        Some(needed) => format!("{needed} bytes for {dtype} {shape}"),
                        None => {
                            format!("a shape with a size in {dtype} of whole bytes below 2^64")
                        }
                    })
                    .found(match needed {
                        Some(_) => format!("{} bytes, [{begin}, {end}]", end - begin),
                        None => format!("{shape}"),
                    }),
            ),
        }
    }
    let offset = |bytes: u64| data.start + usize::try_from(bytes).unwrap_or(usize::MAX - data.start);
    match dtype {
        Some(dtype) if problems.is_empty() => {
            Ok(AnyEntry { name, dtype, shape, bytes: offset(begin)..offset(end) })
        }
        _ => Err(problems),
    }
}

/// Returns the size of a tensor in bytes. Returns `None` if it is not a whole number or does not
/// fit in `u64`.
fn needed_bytes(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    let elems = shape.iter().try_fold(1u64, |elems, &size| elems.checked_mul(size))?;
    let bits = elems.checked_mul(dtype.bitsize() as u64)?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// Reports overlaps, holes and bytes after the last tensor. `entries` must be sorted by their first
/// byte.
fn check_cover(file: &str, entries: &[AnyEntry], data: &Range<usize>, problems: &mut Diagnostics) {
    let mut covered = data.start;
    let mut last = "the header";
    for entry in entries {
        let bytes = &entry.bytes;
        if bytes.start < covered && !bytes.is_empty() {
            problems.push(
                Diagnostic::new(place(file, &entry.name), format!("shares bytes with {last}"))
                    .expected(format!("data_offsets from {} on", covered - data.start))
                    .found(bytes.start - data.start),
            );
        } else if bytes.start > covered {
            problems.push(
                Diagnostic::new(place(file, &entry.name), format!("unused bytes after {last}"))
                    .expected(format!("data_offsets from {}", covered - data.start))
                    .found(bytes.start - data.start),
            );
        }
        if bytes.end > covered {
            (covered, last) = (bytes.end, &entry.name);
        }
    }
    if covered < data.end {
        problems.push(
            Diagnostic::new(file, format!("unused bytes after {last}"))
                .expected("the end of the file")
                .found(Bytes((data.end - covered) as u64)),
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::any;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::{TensorEntry, parse};
    use crate::base::{DType, Shape};

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<Vec<TensorEntry>, crate::base::Diagnostics> {
        parse("m.safetensors", bytes, bytes.len())
    }

    fn refused(bytes: &[u8], expected: &[&str]) {
        let message = parsed(bytes).unwrap_err().to_string();
        assert_eq!(message.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_good_file() {
        let header = r#"{"__metadata__": {"format": "pt"}, "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
            "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
            "e": {"dtype": "I64", "shape": [0, 4], "data_offsets": [16, 16]},
            "model.rotary_emb.inv_freq": {"dtype": "F64", "shape": [1], "data_offsets": [16, 24]}}"#;
        let start = 8 + header.len();
        let entry = |name: &str, dtype, shape: &[usize], bytes: std::ops::Range<usize>| TensorEntry {
            name: name.to_owned(),
            dtype,
            shape: Shape::from(shape),
            bytes: start + bytes.start..start + bytes.end,
        };
        let expected = [
            entry("a", DType::BF16, &[2, 3], 0..12),
            entry("b", DType::F32, &[], 12..16),
            entry("e", DType::I64, &[0, 4], 16..16),
        ];
        assert_eq!(parsed(&file(header, 24)).unwrap(), expected);
    }

    #[test]
    fn files_that_are_none() {
        let again = "download the file again";
        refused(
            b"",
            &[&format!("m.safetensors: truncated: expected at least 8 bytes, found 0 bytes; {again}")],
        );
        let mut lying = file("{}", 0);
        lying[0] = 3;
        let message = "m.safetensors: truncated, or not a safetensors file: the header goes beyond the end: \
                       expected a header of at most";
        refused(&lying, &[&format!("{message} 2 bytes, found 3 bytes; {again}")]);
        refused(&[0xff; 64], &[&format!("{message} 56 bytes, found 18446744073709551615 bytes; {again}")]);
        assert!(parsed(&file("[1]", 0)).unwrap_err().to_string().contains("the header is not a JSON object"));
        assert!(parsed(&file("{\"a\": \u{0}", 0)).is_err());
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
        refused(
            pointer,
            &["m.safetensors: a Git LFS pointer, not the file itself; run `git lfs pull` in its folder"],
        );
    }

    #[test]
    fn every_lie_of_a_header_comes_at_once() {
        let header = r#"{"past": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]},
            "back": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]},
            "shape": {"dtype": "F16", "shape": [3], "data_offsets": [0, 4]},
            "huge": {"dtype": "F16", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]},
            "type": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]},
            "form": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
            "half": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}"#;
        refused(
            &file(header, 16),
            &[
                "m.safetensors: past: the data lies beyond the end of the file: expected data_offsets up to 16, \
                 the bytes of data in the file, found [0, 32]; \
                 the file is truncated or its header is wrong; download it again",
                "m.safetensors: back: data_offsets run backwards: expected begin ≤ end, found 8 > 4",
                "m.safetensors: shape: shape and data_offsets disagree: \
                 expected 6 bytes for F16 [3], found 4 bytes, [0, 4]",
                "m.safetensors: huge: shape and data_offsets disagree: expected a shape with a size in F16 of whole \
                 bytes below 2^64, found [4294967296,4294967296]",
                "m.safetensors: type: unknown element type: expected a safetensors type such as BF16, found F33",
                "m.safetensors: form: malformed header entry: found invalid value: integer `-1`, expected u64",
                "m.safetensors: half: shape and data_offsets disagree: expected a shape with a size in F4 of whole \
                 bytes below 2^64, found [1]",
            ],
        );
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_refused_or_stays_inside_its_bounds(
            at in 0..400usize,
            byte in any::<u8>(),
            length in 0..400usize,
        ) {
            let header = r#"{"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
                "c": {"dtype": "I64", "shape": [0, 4], "data_offsets": [16, 16]}}"#;
            let mut bytes = file(header, 16);
            bytes.truncate(length.max(bytes.len() - 20));
            if let Some(damaged) = bytes.get_mut(at) {
                *damaged = byte;
            }
            for entry in parsed(&bytes).into_iter().flatten() {
                prop_assert!(entry.bytes.end <= bytes.len());
                prop_assert_eq!(entry.bytes.len(), entry.shape.elems() * entry.dtype.size_bytes());
            }
        }
    }

    #[test]
    fn overlaps_holes_and_rests() {
        let header = r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
            "c": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]}}"#;
        refused(
            &file(header, 20),
            &[
                "m.safetensors: b: shares bytes with a: expected data_offsets from 8 on, found 4",
                "m.safetensors: c: unused bytes after a: expected data_offsets from 8, found 12",
                "m.safetensors: unused bytes after c: expected the end of the file, found 4 B",
            ],
        );
    }

    #[test]
    fn repeated_names_and_unsupported_types() {
        let entry = r#"{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}"#;
        let message =
            parsed(&file(&format!(r#"{{"a": {entry}, "a": {entry}}}"#), 4)).unwrap_err().to_string();
        assert!(message.starts_with("m.safetensors: a: more than one tensor has this name"), "{message}");
        let header = r#"{"a": {"dtype": "I16", "shape": [2], "data_offsets": [0, 4]}}"#;
        let message = parsed(&file(header, 4)).unwrap_err().to_string();
        assert!(
            message.starts_with("m.safetensors: a: unsupported element type: expected F32, F16 or BF16"),
            "{message}"
        );
    }
}
