//! Megatron's indexed data: `PREFIX.bin` holds the tokens, and `PREFIX.idx` holds the ends of
//! sequences and documents.
//!
//! Input and output: lengths and an element type ↔ the bytes of an `.idx`; a prefix → an
//! [`IndexedFile`], which reads any range of tokens. Invariants: a parsed [`TokenIndex`] fits its
//! `.bin` to the byte. Its sequences are contiguous, so the byte offset of a token is its number
//! times its size.
//!
//! The `.idx` is little-endian: `MMIDIDX\0\0`, u64 version 1, u8 element type, u64 number of
//! sequences, u64 length of the document index (number of documents plus one), i32 lengths of the
//! sequences in tokens, i64 byte offsets of the sequences, i64 document index. The document index
//! holds the first sequence of each document, followed by the number of sequences.
//!
//! `PREFIX.ignore.bin` and `PREFIX.ignore.idx` have the same form. They hold one u8 per token: 1
//! where the label has weight zero. Files are read by positioned reads instead of being mapped. If
//! a file is truncated during a run, the result is an error with its place, not a signal.
//!
//! # Source
//! The layout is defined by `megatron.core.datasets.indexed_dataset`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::MOST_PROBLEMS;
use super::digest::Digest;
use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::weights::file;

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;
/// Bytes of the magic, version, element type and both counts.
const HEADER_BYTES: usize = 9 + 8 + 1 + 8 + 8;

/// Suffix of the prefix of the files that hold label flags.
pub const IGNORE: &str = ".ignore";

/// Megatron stores the ids of vocabularies below this size in 16 bits.
const VOCABULARY_OF_U16: usize = 65_500;

/// Number of bytes of a `.bin` that its digest covers.
const DIGESTED: usize = 64 << 10;

/// Returns the path of the tokens of a prefix.
#[must_use]
pub fn bin_path(prefix: &Path) -> PathBuf {
    appended(prefix, ".bin")
}

/// Returns the path of the index of a prefix.
#[must_use]
pub fn idx_path(prefix: &Path) -> PathBuf {
    appended(prefix, ".idx")
}

/// Returns the prefix of a path, which may be the path of one of the two files.
#[must_use]
pub fn prefix_of(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("bin" | "idx") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

fn appended(prefix: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(prefix);
    name.push(end);
    name.into()
}

/// The element type of stored tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenType {
    /// Elements are unsigned 8-bit integers.
    U8,
    /// Elements are signed 8-bit integers.
    I8,
    /// Elements are signed 16-bit integers.
    I16,
    /// Elements are signed 32-bit integers.
    I32,
    /// Elements are signed 64-bit integers.
    I64,
    /// Elements are unsigned 16-bit integers.
    U16,
}

/// Each type with its code in the file, its name and its size in bytes.
const TYPES: [(TokenType, u8, &str, usize); 6] = [
    (TokenType::U8, 1, "u8", 1),
    (TokenType::I8, 2, "i8", 1),
    (TokenType::I16, 3, "i16", 2),
    (TokenType::I32, 4, "i32", 4),
    (TokenType::I64, 5, "i64", 8),
    (TokenType::U16, 8, "u16", 2),
];

impl TokenType {
    /// Returns the type of the stored ids of a vocabulary.
    #[must_use]
    pub const fn of_vocabulary(vocabulary: usize) -> Self {
        if vocabulary < VOCABULARY_OF_U16 { Self::U16 } else { Self::I32 }
    }

    const fn row(self) -> (Self, u8, &'static str, usize) {
        let mut at = 0;
        while TYPES[at].0 as u8 != self as u8 {
            at += 1;
        }
        TYPES[at]
    }

    /// Returns the short name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().2
    }

    /// Returns the size of a token in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        self.row().3
    }

    /// Appends a token. The token must fit the type.
    pub(super) fn write(self, id: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&u64::from(id).to_le_bytes()[..self.size_bytes()]);
    }

    /// Appends the tokens of `bytes`, which must be a whole number of tokens.
    pub(super) fn read(self, bytes: &[u8], into: &mut Vec<i64>) {
        fn each<const N: usize>(bytes: &[u8], into: &mut Vec<i64>, number: impl Fn([u8; N]) -> i64) {
            into.extend(bytes.as_chunks().0.iter().map(|token| number(*token)));
        }
        match self {
            Self::U8 => each(bytes, into, |token| u8::from_le_bytes(token).into()),
            Self::I8 => each(bytes, into, |token| i8::from_le_bytes(token).into()),
            Self::I16 => each(bytes, into, |token| i16::from_le_bytes(token).into()),
            Self::I32 => each(bytes, into, |token| i32::from_le_bytes(token).into()),
            Self::I64 => each(bytes, into, i64::from_le_bytes),
            Self::U16 => each(bytes, into, |token| u16::from_le_bytes(token).into()),
        }
    }
}

/// The content of an `.idx` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIndex {
    /// Element type of the tokens.
    pub dtype: TokenType,
    /// Number of tokens of each sequence.
    pub lengths: Vec<i32>,
    /// First sequence of each document, followed by the number of sequences.
    pub documents: Vec<i64>,
}

impl TokenIndex {
    /// Returns an index with one sequence per document.
    #[must_use]
    pub fn of_documents(dtype: TokenType, lengths: Vec<i32>) -> Self {
        let documents = (0..=lengths.len() as i64).collect();
        Self { dtype, lengths, documents }
    }

    /// Returns the first token of each document, followed by the number of tokens.
    #[must_use]
    pub fn starts(&self) -> Vec<u64> {
        let mut starts = Vec::with_capacity(self.documents.len());
        let (mut sequence, mut token) = (0, 0);
        for first in &self.documents {
            while (sequence as i64) < *first {
                token += u64::from(self.lengths[sequence].unsigned_abs());
                sequence += 1;
            }
            starts.push(token);
        }
        starts
    }

    /// Writes the bytes of the `.idx` file.
    ///
    /// # Errors
    /// A write to `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&[self.dtype.row().1])?;
        out.write_all(&(self.lengths.len() as u64).to_le_bytes())?;
        out.write_all(&(self.documents.len() as u64).to_le_bytes())?;
        for length in &self.lengths {
            out.write_all(&length.to_le_bytes())?;
        }
        let mut place = 0_i64;
        for length in &self.lengths {
            out.write_all(&place.to_le_bytes())?;
            place += i64::from(*length) * self.dtype.size_bytes() as i64;
        }
        for document in &self.documents {
            out.write_all(&document.to_le_bytes())?;
        }
        Ok(())
    }

    /// Parses the bytes of the file `name`. `bin_bytes` is the size of the `.bin`.
    ///
    /// # Errors
    /// Every contradiction in the file, and between the file and its `.bin`.
    pub fn parse(name: &str, bytes: &[u8], bin_bytes: u64) -> Result<Self, Diagnostics> {
        let refused = |message: &str| Diagnostic::new(name, message);
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(refused("cut off")
                .expected(format!("at least {HEADER_BYTES} bytes"))
                .found(format!("{} bytes", bytes.len()))
                .into());
        };
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if !header.starts_with(MAGIC) {
            return Err(refused("no index of Megatron")
                .expected("it to begin with MMIDIDX")
                .found(String::from_utf8_lossy(&header[..MAGIC.len()]).escape_debug())
                .into());
        }
        let mut problems = Diagnostics::new();
        if number(9) != VERSION {
            problems.push(refused("another version of the format").expected(VERSION).found(number(9)));
        }
        let dtype = TYPES.iter().find(|row| row.1 == header[17]).map(|row| row.0);
        if dtype.is_none() {
            let known: Vec<String> =
                TYPES.iter().map(|(_, code, name, _)| format!("{code} ({name})")).collect();
            let type_found = match header[17] {
                6 => "6 (f64)".to_owned(),
                7 => "7 (f32)".to_owned(),
                other => other.to_string(),
            };
            problems.push(
                refused("token ids are whole numbers")
                    .expected(format!("one of {}", known.join(", ")))
                    .found(type_found),
            );
        }
        let (sequences, documents) = (number(18), number(26));
        let expected = HEADER_BYTES as u128 + 12 * u128::from(sequences) + 8 * u128::from(documents);
        if expected != bytes.len() as u128 {
            let problem = refused("its counts do not fit its length")
                .expected(format!(
                    "{expected} bytes for {sequences} sequences and {documents} entries of the document index"
                ))
                .found(format!("{} bytes", bytes.len()));
            problems.push(if expected + u128::from(sequences) == bytes.len() as u128 {
                problem.help("it has a mode for each sequence: data of several modes cannot be read")
            } else {
                problem.help("the file is cut off, or was written by something else; prepare the data again")
            });
        }
        let Some(dtype) = dtype.filter(|_| problems.is_empty()) else { return Err(problems) };
        // Both counts fit `usize`, because they were checked against the length of the file.
        let sequences = usize::try_from(sequences).unwrap_or(usize::MAX);
        let (lengths, rest) = rest.split_at(4 * sequences);
        let (places, documents) = rest.split_at(8 * sequences);
        let index = Self {
            dtype,
            lengths: lengths.as_chunks().0.iter().map(|length| i32::from_le_bytes(*length)).collect(),
            documents: numbers(documents).collect(),
        };
        index.check(name, numbers(places), bin_bytes, &mut problems);
        problems.into_result(index)
    }

    fn check(
        &self,
        name: &str,
        places: impl Iterator<Item = i64>,
        bin_bytes: u64,
        problems: &mut Diagnostics,
    ) {
        let (mut end, mut are_placed) = (0_i128, true);
        let most = |problems: &Diagnostics| problems.items().len() >= MOST_PROBLEMS;
        for (sequence, (length, place)) in self.lengths.iter().zip(places).enumerate() {
            let refused = |message: &str| Diagnostic::new(format!("{name}: sequence {sequence}"), message);
            if *length < 0 {
                problems.push(refused("a length below 0").found(length));
                // The offsets of later sequences are unknown.
                are_placed = false;
            } else if are_placed && i128::from(place) != end {
                problems.push(refused("does not begin where the one before ends").expected(end).found(place));
            }
            end += i128::from(*length) * self.dtype.size_bytes() as i128;
            if most(problems) {
                return;
            }
        }
        if end != i128::from(bin_bytes) && problems.is_empty() {
            let size = self.dtype.size_bytes();
            let tokens = end / size as i128;
            problems.push(
                Diagnostic::new(name, "its lengths do not fit the .bin")
                    .expected(format!("a .bin of {end} bytes for {tokens} tokens in {}", self.dtype.name()))
                    .found(format!("{bin_bytes} bytes"))
                    .help("the two are of different data, or the .bin is cut off; prepare the data again"),
            );
        }
        let sequences = self.lengths.len() as i64;
        let ends = [("begins", self.documents.first(), 0), ("ends", self.documents.last(), sequences)];
        for (what, found, expected) in ends {
            if found != Some(&expected) {
                let found = found.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                problems.push(
                    Diagnostic::new(
                        format!("{name}: document index"),
                        format!("{what} with another sequence"),
                    )
                    .expected(expected)
                    .found(found),
                );
            }
        }
        for (document, pair) in self.documents.windows(2).enumerate() {
            if pair[0] > pair[1] && !most(problems) {
                problems.push(
                    Diagnostic::new(format!("{name}: document {document}"), "ends before it begins")
                        .expected(format!("an end from sequence {} on", pair[0]))
                        .found(pair[1]),
                );
            }
        }
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = i64> {
    bytes.as_chunks().0.iter().map(|number| i64::from_le_bytes(*number))
}

/// An opened pair of `.bin` and `.idx`, with label flags if they exist.
#[derive(Debug)]
pub(super) struct IndexedFile {
    /// Name of the file in messages.
    pub(super) name: String,
    pub(super) index: TokenIndex,
    pub(super) bin_bytes: Bytes,
    bin: File,
    /// One byte per token, if there is such a file.
    ignore: Option<File>,
    digest: Digest,
}

impl IndexedFile {
    /// Opens `PREFIX.bin` and `PREFIX.idx`, and the files of the label flags if one exists.
    pub(super) fn open(prefix: &Path) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let ignored = appended(prefix, IGNORE);
        let has_ignored = idx_path(&ignored).exists() || bin_path(&ignored).exists();
        let mut digest = Digest::new();
        digest.add(prefix.file_name().unwrap_or_default().as_encoded_bytes());
        let mut open =
            |prefix: &Path| open_pair(prefix, &mut digest).map_err(|found| problems.append(found)).ok();
        let tokens = open(prefix);
        let ignore = if has_ignored { open(&ignored) } else { None };
        let (Some((index, bin, bin_bytes)), true) = (tokens, ignore.is_some() == has_ignored) else {
            return Err(problems);
        };
        let name = bin_path(prefix).display().to_string();
        if let Some((found, ..)) = &ignore {
            let expected = TokenIndex { dtype: TokenType::U8, ..index.clone() };
            if *found != expected {
                problems.push(
                    Diagnostic::new(
                        idx_path(&ignored).display().to_string(),
                        "is not of the same documents as the tokens",
                    )
                    .expected(described(&expected))
                    .found(described(found))
                    .help("prepare the data again, or remove it if all labels are to count"),
                );
            }
        }
        let ignore = ignore.map(|(_, file, _)| file);
        problems.into_result(Self { name, index, bin_bytes, bin, ignore, digest })
    }

    pub(super) const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns whether some labels may have weight zero.
    pub(super) const fn has_ignored(&self) -> bool {
        self.ignore.is_some()
    }

    pub(super) fn read(&self, range: Range<u64>, into: &mut Vec<i64>) -> io::Result<()> {
        let size = self.index.dtype.size_bytes();
        self.index.dtype.read(&read_at(&self.bin, &range, size)?, into);
        Ok(())
    }

    /// Appends for each token of a range 1 if its label has weight zero, else 0.
    pub(super) fn read_ignored(&self, range: Range<u64>, into: &mut Vec<u8>) -> io::Result<()> {
        match &self.ignore {
            Some(file) => into.extend(read_at(file, &range, 1)?.into_iter().map(|byte| u8::from(byte != 0))),
            None => {
                into.resize(into.len() + usize::try_from(range.end - range.start).unwrap_or(usize::MAX), 0);
            }
        }
        Ok(())
    }
}

fn described(index: &TokenIndex) -> String {
    let tokens: i64 = index.lengths.iter().map(|length| i64::from(*length)).sum();
    let (sequences, documents) = (index.lengths.len(), index.documents.len() - 1);
    format!(
        "{} with {tokens} tokens in {sequences} sequences and {documents} documents of the same lengths",
        index.dtype.name()
    )
}

fn open_pair(prefix: &Path, digest: &mut Digest) -> Result<(TokenIndex, File, Bytes), Diagnostics> {
    let (idx, bin) = (idx_path(prefix), bin_path(prefix));
    let name = |path: &Path| path.display().to_string();
    let unreadable =
        |path: &Path, error: io::Error| Diagnostic::new(name(path), "cannot be read").found(error);
    let mut problems = Diagnostics::new();
    let mut keep = |problem| problems.push(problem);
    let bytes = file::read(&idx).map_err(|error| keep(unreadable(&idx, error))).ok();
    let opened = file::open(&bin).and_then(|file| {
        let length = file.metadata()?.len();
        let mut first = Vec::new();
        (&file).take(DIGESTED as u64).read_to_end(&mut first)?;
        Ok((file, length, first))
    });
    let opened = opened.map_err(|error| keep(unreadable(&bin, error))).ok();
    let (Some(bytes), Some((file, length, first))) = (bytes, opened) else { return Err(problems) };
    digest.add(&bytes);
    digest.add_number(length);
    digest.add(&first);
    Ok((TokenIndex::parse(&name(&idx), &bytes, length)?, file, Bytes(length)))
}

fn read_at(file: &File, range: &Range<u64>, size: usize) -> io::Result<Vec<u8>> {
    let tokens = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; tokens * size];
    file.read_exact_at(&mut bytes, range.start * size as u64)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
