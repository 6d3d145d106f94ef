//! Samples of one length from documents of any length.
//!
//! Input: a [`Corpus`], a length and a seed. Output: the batch of any step. Invariants: an epoch
//! has enough samples for every token to be a label once. Sample `i` of the corpus reads tokens `i
//! · sequence` to `(i + 1) · sequence`. Its last label is the first input token of sample `i + 1`.
//! The last sample is padded with a document of zeros, whose labels have weight zero.
//!
//! A label has weight zero if the token before it belongs to another document, because the first
//! token of a text has no context.

use super::corpus::{Corpus, is_below};
use super::order::shuffled;
use super::{Batch, DataOptions, Error};
use crate::base::Diagnostic;

#[derive(Debug)]
pub(super) struct PackedCorpus {
    pub(super) corpus: Corpus,
    sequence: usize,
    global_batch: usize,
    vocabulary: usize,
    seed: u64,
    /// Number of samples of an epoch.
    samples: u64,
}

impl PackedCorpus {
    /// Divides a corpus into the samples of a run.
    pub(super) fn new(corpus: Corpus, options: &DataOptions) -> Result<Self, Diagnostic> {
        let (tokens, sequence) = (corpus.tokens(), options.sequence as u64);
        if tokens <= sequence {
            return Err(Diagnostic::new("all data", "shorter than a sequence")
                .expected(format!("at least {} tokens, the sequence and one more", sequence + 1))
                .found(format!("{tokens} in {} documents", corpus.documents()))
                .help("train with a shorter sequence or more data"));
        }
        Ok(Self {
            samples: (tokens - 1).div_ceil(sequence),
            sequence: options.sequence,
            global_batch: options.global_batch,
            vocabulary: options.vocabulary,
            seed: options.seed,
            corpus,
        })
    }

    pub(super) fn batch(&self, step: u64) -> Result<Batch, Error> {
        let mut batch = Batch::with_room(step, self.global_batch, self.sequence);
        for k in 0..self.global_batch as u64 {
            self.add_sample(self.sample(step, k), &mut batch)?;
        }
        Ok(batch)
    }

    /// Returns the sample of the corpus for sample `k` of step `n`. A step may contain the end of
    /// one epoch and the start of the next.
    fn sample(&self, n: u64, k: u64) -> u64 {
        let drawn = u128::from(n) * self.global_batch as u128 + u128::from(k);
        let samples = u128::from(self.samples);
        // The position is below the number of samples. Epochs from 2⁶⁴ on repeat the first ones.
        let (epoch, at) = ((drawn / samples) as u64, (drawn % samples) as u64);
        shuffled(self.seed, epoch, self.samples, at)
    }

    fn add_sample(&self, sample: u64, batch: &mut Batch) -> Result<(), Error> {
        let start = sample * self.sequence as u64;
        let end = self.corpus.tokens().min(start + self.sequence as u64 + 1);
        let step = batch.step;
        let (mut ids, mut ignore) =
            (Vec::with_capacity(self.sequence + 1), Vec::with_capacity(self.sequence + 1));
        self.corpus.read(start..end, &mut ids, &mut ignore).map_err(|unread| Error::Read {
            step,
            place: unread.place,
            source: unread.source,
        })?;
        if let Some(at) = ids.iter().position(|id| !is_below(*id, self.vocabulary)) {
            let place = self.corpus.place(start + at as u64);
            return Err(Error::Token { step, place, token: ids[at], vocabulary: self.vocabulary });
        }
        ids.resize(self.sequence + 1, 0);
        ignore.resize(self.sequence + 1, 1);
        // The vocabulary of a model fits 31 bits.
        batch.tokens.extend(ids.iter().map(|id| *id as i32));

        let mut document = self.corpus.document_at(start);
        let (mut number, mut position) = (0, 0);
        for offset in 0..self.sequence {
            batch.documents.push(number);
            batch.positions.push(position);
            // The next token continues the document, starts another document, or is padding.
            let next = start + offset as u64 + 1;
            let is_border = next == end || (next < end && next == self.corpus.end_of(document));
            if is_border {
                (number, position) = (number + 1, 0);
                if next < end {
                    document = self.corpus.document_at(next);
                }
            } else {
                position += 1;
            }
            batch.ignore.push(u8::from(is_border) | ignore[offset + 1]);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
