//! Indexed data made from texts.
//!
//! Input: files of texts and an encoder. Output: the tokens of all documents, written while they
//! are encoded, and their [`TokenIndex`]. Invariant: memory holds some MiB of text and one number
//! per document, never the whole corpus.

use std::io::{self, Write};

use super::encoder::{Document, Encoder};
use super::indexed::{TokenIndex, TokenType};
use super::problems::{SkippedLines, TextProblems};
use super::source::TextFile;
use super::{Error, reader};
use crate::base::{Bytes, Diagnostic};

/// The result of preparing texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedCorpus {
    /// Content of the `.idx` file.
    pub index: TokenIndex,
    /// Content of the `.ignore.idx` file, if some labels have weight zero.
    pub ignore: Option<TokenIndex>,
    /// Number of tokens of all documents.
    pub tokens: u64,
    /// Number of tokens with a label of weight zero.
    pub ignored: u64,
    /// Bad lines that were skipped.
    pub skipped: SkippedLines,
}

/// Encodes the documents of texts, and writes their tokens to `tokens` and their label flags to
/// `ignore`.
///
/// A flag is one byte per token: 1 if its label has weight zero, else 0. If all labels count, no
/// flags are written. Up to `skip_bad_lines` lines are skipped that have no document or cannot be
/// encoded.
///
/// # Errors
/// Every problem of the files, or a failed write.
pub fn prepare(
    from: &[TextFile],
    encoder: &Encoder,
    skip_bad_lines: usize,
    tokens: &mut dyn Write,
    ignore: &mut dyn Write,
    progress: &dyn Fn(Bytes),
) -> Result<PreparedCorpus, Error> {
    let dtype = TokenType::of_vocabulary(encoder.tokenizer().size());
    let mut problems = TextProblems::with_limit(skip_bad_lines);
    let mut lengths = Vec::new();
    let (mut count, mut ignored) = (0, 0);
    let mut has_ignored = false;
    let mut bytes = Vec::new();
    for file in from {
        let mut take = |Document { ids, ignore: flags }: Document| {
            bytes.clear();
            ids.iter().for_each(|id| dtype.write(*id, &mut bytes));
            tokens.write_all(&bytes)?;
            if !flags.is_empty() && !has_ignored {
                // All earlier labels count.
                zeros(count, ignore)?;
                has_ignored = true;
            }
            if has_ignored && flags.is_empty() {
                zeros(ids.len() as u64, ignore)?;
            }
            ignore.write_all(&flags)?;
            let length =
                i32::try_from(ids.len()).map_err(|_| io::Error::other("a document of 2³¹ tokens or more"))?;
            ignored += flags.iter().map(|flag| u64::from(*flag)).sum::<u64>();
            count += ids.len() as u64;
            lengths.push(length);
            Ok(())
        };
        reader::encode(file, encoder, &mut problems, progress, &mut take)?;
    }
    let skipped = problems.into_result()?;
    if lengths.is_empty() {
        return Err(Error::Refused(Diagnostic::new("all texts", "the texts have no document").into()));
    }
    let index = TokenIndex::of_documents(dtype, lengths);
    let ignore = has_ignored.then(|| TokenIndex { dtype: TokenType::U8, ..index.clone() });
    Ok(PreparedCorpus { index, ignore, tokens: count, ignored, skipped })
}

fn zeros(count: u64, out: &mut dyn Write) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), count), out).map(drop)
}

#[cfg(test)]
mod tests;
