//! What indexed data holds.
//!
//! Input → output: a prefix → [`Summary`]: counts, lengths, the largest id, the first documents. It
//! reads all tokens once.

use std::path::Path;

use serde::Serialize;

use super::Error;
use super::indexed::{IndexedFile, TokenType};
use crate::base::{Bytes, Diagnostic, Diagnostics};

/// Tokens that are read at a time.
const CHUNK: u64 = 1 << 20;

/// Tokens that are shown of a document.
const SHOWN_TOKENS: u64 = 16;

/// What indexed data holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Documents, the empty ones included.
    pub documents: u64,
    /// Sequences; Megatron can make a document of several.
    pub sequences: u64,
    /// Tokens of all documents together.
    pub tokens: u64,
    /// Element type of the tokens.
    pub dtype: TokenType,
    /// Size of the `.bin`.
    pub bytes: Bytes,
    /// Tokens that count nothing as labels, if the data says.
    pub ignored: Option<u64>,
    /// The smallest id; none of nothing.
    pub smallest_id: Option<i64>,
    /// The largest id: a model's vocabulary must be larger.
    pub largest_id: Option<i64>,
    /// How long documents are; none of nothing.
    pub lengths: Option<Lengths>,
    /// The documents at the beginning.
    pub first: Vec<FirstDocument>,
}

/// How long documents are, in tokens. Of 100 documents `p90` says that 90 are no longer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lengths {
    /// Tokens of the shortest document.
    pub shortest: u64,
    /// 10 in 100 are no longer.
    pub p10: u64,
    /// Half are no longer.
    pub median: u64,
    /// 90 in 100 are no longer.
    pub p90: u64,
    /// 99 in 100 are no longer.
    pub p99: u64,
    /// Tokens of the longest document.
    pub longest: u64,
    /// Tokens by documents.
    pub mean: f64,
}

/// A document at the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstDocument {
    /// Tokens of it.
    pub tokens: u64,
    /// The first of them.
    pub ids: Vec<i64>,
}

/// Reads what a prefix holds, and the beginnings of its first `documents` documents.
///
/// # Errors
/// Every problem of the files, or they cannot be read to their end.
pub fn inspect(prefix: &Path, documents: usize) -> Result<Summary, Error> {
    let file = IndexedFile::open(prefix)?;
    let starts = file.index.starts();
    let tokens = starts[starts.len() - 1];
    let unreadable =
        |error| Error::Refused(Diagnostics::from(Diagnostic::new(&file.name, "cannot be read").found(error)));
    let (mut smallest_id, mut largest_id, mut ignored) = (None, None, 0);
    let (mut ids, mut flags) = (Vec::new(), Vec::new());
    for start in (0..tokens).step_by(CHUNK as usize) {
        let range = start..tokens.min(start + CHUNK);
        ids.clear();
        flags.clear();
        file.read(range.clone(), &mut ids).map_err(unreadable)?;
        file.read_ignored(range, &mut flags).map_err(unreadable)?;
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
        smallest_id,
        largest_id,
        lengths: lengths(&starts),
        first,
    })
}

/// `starts` are those of the documents, and the number of tokens.
fn lengths(starts: &[u64]) -> Option<Lengths> {
    let mut lengths: Vec<u64> = starts.windows(2).map(|ends| ends[1] - ends[0]).collect();
    lengths.sort_unstable();
    let (shortest, longest) = (*lengths.first()?, *lengths.last()?);
    // The smallest of which so many in 100 are no longer.
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
        // 100 documents of 1 to 100 tokens.
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
    fn nothing_has_no_lengths() {
        assert_eq!(lengths(&[0]), None);
        let one = lengths(&[0, 3]).unwrap();
        assert_eq!((one.shortest, one.p10, one.p99, one.longest), (3, 3, 3, 3));
    }
}
