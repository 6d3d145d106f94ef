//! A summary of indexed data.
//!
//! Input: a prefix. Output: a [`Summary`] of counts, lengths, the range of ids and the first
//! documents. All tokens are read once.

use std::path::Path;

use serde::Serialize;

use super::Error;
use super::indexed::{IndexedFile, TokenType};
use crate::base::{Bytes, Diagnostic, Diagnostics};

/// Number of tokens that are read at a time.
const CHUNK: u64 = 1 << 20;

/// Number of tokens of a document that are shown.
const SHOWN_TOKENS: u64 = 16;

/// The summary of indexed data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of documents, including empty ones.
    pub documents: u64,
    /// Number of sequences. A document of Megatron may have several.
    pub sequences: u64,
    /// Number of tokens of all documents.
    pub tokens: u64,
    /// Element type of the tokens.
    pub dtype: TokenType,
    /// Size of the `.bin` file.
    pub bytes: Bytes,
    /// Number of tokens with a label of weight zero; `None` without label flags.
    pub ignored: Option<u64>,
    /// Ids below 0, which no model has; `None` if all ids are valid.
    pub negative: Option<NegativeIds>,
    /// Smallest id; `None` for empty data.
    pub smallest_id: Option<i64>,
    /// Largest id, which must be below the model's vocabulary size; `None` for empty data.
    pub largest_id: Option<i64>,
    /// Lengths of the documents; `None` for empty data.
    pub lengths: Option<Lengths>,
    /// First documents of the data.
    pub first: Vec<FirstDocument>,
}

/// The tokens with ids below 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NegativeIds {
    /// Number of tokens with an id below 0.
    pub tokens: u64,
    /// Number of the first document with an id below 0, counted from 0.
    pub document: u64,
    /// Position of the first id below 0 within its document, from 0.
    pub token: u64,
}

/// The distribution of document lengths, in tokens. Of 100 documents, 90 are at most `p90` tokens
/// long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lengths {
    /// Tokens of the shortest document.
    pub shortest: u64,
    /// Length that 10 % of the documents do not exceed.
    pub p10: u64,
    /// Length that half of the documents do not exceed.
    pub median: u64,
    /// Length that 90 % of the documents do not exceed.
    pub p90: u64,
    /// Length that 99 % of the documents do not exceed.
    pub p99: u64,
    /// Tokens of the longest document.
    pub longest: u64,
    /// Mean number of tokens per document.
    pub mean: f64,
}

/// One of the first documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstDocument {
    /// Number of tokens of the document.
    pub tokens: u64,
    /// First ids of the document.
    pub ids: Vec<i64>,
}

/// Summarizes the data of a prefix, with the first `documents` documents.
///
/// # Errors
/// Every problem of the files, or a file cannot be read to its end.
pub fn inspect(prefix: &Path, documents: usize) -> Result<Summary, Error> {
    let file = IndexedFile::open(prefix)?;
    let starts = file.index.starts();
    let tokens = starts[starts.len() - 1];
    let unreadable =
        |error| Error::Refused(Diagnostics::from(Diagnostic::new(&file.name, "cannot be read").found(error)));
    let (mut smallest_id, mut largest_id, mut ignored) = (None, None, 0);
    let (mut ids, mut flags) = (Vec::new(), Vec::new());
    let mut negative = NegativeTokens::default();
    for start in (0..tokens).step_by(CHUNK as usize) {
        let range = start..tokens.min(start + CHUNK);
        ids.clear();
        flags.clear();
        file.read(range.clone(), &mut ids).map_err(unreadable)?;
        file.read_ignored(range, &mut flags).map_err(unreadable)?;
        negative.add(start, &ids);
        smallest_id = smallest_id.into_iter().chain(ids.iter().copied()).min();
        largest_id = largest_id.max(ids.iter().copied().max());
        ignored += flags.iter().map(|flag| u64::from(*flag)).sum::<u64>();
    }
    let first = starts.windows(2).take(documents).map(|ends| {
        let mut ids = Vec::new();
        file.read(ends[0]..ends[1].min(ends[0] + SHOWN_TOKENS), &mut ids)?;
        Ok(FirstDocument { tokens: ends[1] - ends[0], ids })
    });
    let first = first.collect::<Result<Vec<_>, std::io::Error>>().map_err(unreadable)?;
    Ok(Summary {
        documents: starts.len() as u64 - 1,
        sequences: file.index.lengths.len() as u64,
        tokens,
        dtype: file.index.dtype,
        bytes: file.bin_bytes,
        ignored: file.has_ignored().then_some(ignored),
        negative: negative.placed(&starts),
        smallest_id,
        largest_id,
        lengths: lengths(&starts),
        first,
    })
}

#[derive(Default)]
struct NegativeTokens {
    first: Option<u64>,
    count: u64,
}

impl NegativeTokens {
    /// Adds the ids of a range of tokens that starts at token `start`.
    fn add(&mut self, start: u64, ids: &[i64]) {
        for (at, _) in ids.iter().enumerate().filter(|(_, id)| **id < 0) {
            self.first.get_or_insert(start + at as u64);
            self.count += 1;
        }
    }

    fn placed(&self, starts: &[u64]) -> Option<NegativeIds> {
        let first = self.first?;
        let document = starts.partition_point(|start| *start <= first) - 1;
        Some(NegativeIds { tokens: self.count, document: document as u64, token: first - starts[document] })
    }
}

/// Returns the distribution of lengths. `starts` has the start of each document and the number of
/// tokens.
fn lengths(starts: &[u64]) -> Option<Lengths> {
    let mut lengths: Vec<u64> = starts.windows(2).map(|ends| ends[1] - ends[0]).collect();
    lengths.sort_unstable();
    let (shortest, longest) = (*lengths.first()?, *lengths.last()?);
    // The smallest length that the given percentage of the documents does not exceed.
    let share = |percent: usize| lengths[(lengths.len() * percent).div_ceil(100).max(1) - 1];
    Some(Lengths {
        shortest,
        p10: share(10),
        median: share(50),
        p90: share(90),
        p99: share(99),
        longest,
        mean: lengths.iter().sum::<u64>() as f64 / lengths.len() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::super::indexed::{TokenIndex, bin_path, idx_path};
    use super::*;

    #[test]
    fn counts_lengths_and_beginnings() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("a");
        // The data has 100 documents of 1 to 100 tokens.
        let index = TokenIndex::of_documents(TokenType::I32, (1..=100).collect());
        let mut idx = Vec::new();
        index.write(&mut idx).unwrap();
        std::fs::write(idx_path(&prefix), idx).unwrap();
        std::fs::write(bin_path(&prefix), (7_i32..5057).flat_map(i32::to_le_bytes).collect::<Vec<_>>())
            .unwrap();
        let found = inspect(&prefix, 2).unwrap();
        let lengths =
            Lengths { shortest: 1, p10: 10, median: 50, p90: 90, p99: 99, longest: 100, mean: 50.5 };
        assert_eq!(found.lengths, Some(lengths));
        assert_eq!(
            (found.documents, found.sequences, found.tokens, found.bytes),
            (100, 100, 5050, Bytes(20_200))
        );
        assert_eq!((found.smallest_id, found.largest_id, found.ignored), (Some(7), Some(5056), None));
        assert_eq!(found.first[1], FirstDocument { tokens: 2, ids: vec![8, 9] });
        assert_eq!(found.first.len(), 2);
    }

    #[test]
    fn ids_below_zero_are_placed() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("a");
        let mut idx = Vec::new();
        TokenIndex::of_documents(TokenType::I16, vec![2, 0, 3]).write(&mut idx).unwrap();
        std::fs::write(idx_path(&prefix), idx).unwrap();
        let write =
            |ids: [i16; 5]| std::fs::write(bin_path(&prefix), ids.map(i16::to_le_bytes).concat()).unwrap();
        write([1, 2, 3, -4, -5]);
        assert_eq!(
            inspect(&prefix, 0).unwrap().negative,
            Some(NegativeIds { tokens: 2, document: 2, token: 1 })
        );
        write([1, 2, 3, 4, 0]);
        assert_eq!(inspect(&prefix, 0).unwrap().negative, None);
    }

    #[test]
    fn nothing_has_no_lengths() {
        assert_eq!(lengths(&[0]), None);
        let one = lengths(&[0, 3]).unwrap();
        assert_eq!((one.shortest, one.p10, one.p99, one.longest), (3, 3, 3, 3));
    }
}
