//! Texts → indexed data.
//!
//! Input → output: files of texts and an encoder → the tokens of all documents, written as they
//! come, and their [`TokenIndex`]. Invariant: memory holds some MiB of text and one number a
//! document, never the corpus.

use std::io::{self, Write};

use super::encoder::{Document, Encoder};
use super::indexed::{TokenIndex, TokenType};
use super::source::TextFile;
use super::{Error, reader};
use crate::base::{Bytes, Diagnostic, Diagnostics};

/// What was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedCorpus {
    /// What goes into the `.idx`.
    pub index: TokenIndex,
    /// What goes into the `.ignore.idx`, if some labels count nothing.
    pub ignore: Option<TokenIndex>,
    /// Tokens in all.
    pub tokens: u64,
    /// Tokens that count nothing as labels.
    pub ignored: u64,
}

/// Writes the documents of texts: their tokens to `tokens`, and to `ignore` for each a byte, 1
/// where it counts nothing as a label, but nothing at all if all count.
///
/// # Errors
/// Everything that is wrong with the files, and what writing fails with.
pub fn prepare(
    from: &[TextFile],
    encoder: &Encoder,
    tokens: &mut dyn Write,
    ignore: &mut dyn Write,
    progress: &dyn Fn(Bytes),
) -> Result<PreparedCorpus, Error> {
    let dtype = TokenType::of_vocabulary(encoder.tokenizer().size());
    let mut problems = Diagnostics::new();
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
                // All before count.
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
    if lengths.is_empty() && problems.is_empty() {
        problems.push(Diagnostic::new("all texts", "there is no document in them"));
    }
    problems.into_result(())?;
    let index = TokenIndex::of_documents(dtype, lengths);
    let ignore = has_ignored.then(|| TokenIndex { dtype: TokenType::U8, ..index.clone() });
    Ok(PreparedCorpus { index, ignore, tokens: count, ignored })
}

fn zeros(count: u64, out: &mut dyn Write) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), count), out).map(drop)
}

#[cfg(test)]
mod tests;
