//! Ready batches: a safetensors file of tokens.
//!
//! Input: a file with `tokens` i32 `[steps, global_batch, sequence + 1]` and optionally `ignore` u8
//! `[steps, global_batch, sequence]`. Output: the stored batch of any step. Invariant: an opened
//! file has every step of the run, with the sizes of the run, and every token id is below the
//! vocabulary size. Each sample is one document.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::Dtype;

use super::digest::Digest;
use super::{Batch, DataOptions, Error, MOST_PROBLEMS};
use crate::base::{Diagnostic, Diagnostics, Shape};
use crate::weights::{any_entries, file};

const TOKENS: &str = "tokens";
const IGNORE: &str = "ignore";

/// Number of bytes of the file that its digest covers: the header and the first tokens.
const DIGESTED: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ReadyBatches {
    name: String,
    file: File,
    /// Byte offset of the tensor `tokens` in the file.
    tokens_at: u64,
    ignore_at: Option<u64>,
    global_batch: usize,
    sequence: usize,
    vocabulary: usize,
    digest: Digest,
}

impl ReadyBatches {
    pub(super) fn open(path: &Path, options: &DataOptions) -> Result<Self, Diagnostics> {
        let name = path.display().to_string();
        let unreadable = |error| Diagnostic::new(&name, "cannot be read").found(error);
        let file = file::open(path).map_err(unreadable)?;
        let digest = digest(path, &file).map_err(unreadable)?;
        let entries = any_entries(&name, &file)?;
        let mut problems = Diagnostics::new();
        let (mut tokens, mut ignore) = (None, None);
        for entry in entries {
            match entry.name.as_str() {
                TOKENS => tokens = Some(entry),
                IGNORE => ignore = Some(entry),
                other => problems.push(
                    Diagnostic::new(format!("{name}: {other}"), "unexpected tensor")
                        .expected(format!("{TOKENS}, and perhaps {IGNORE}")),
                ),
            }
        }
        let Some(tokens) = tokens else {
            let shape = "i32 [steps, global_batch, sequence + 1]";
            problems.push(Diagnostic::new(format!("{name}: {TOKENS}"), "missing tensor").expected(shape));
            return Err(problems);
        };
        let place = format!("{name}: {TOKENS}");
        check_type(&place, tokens.dtype, Dtype::I32, &mut problems);
        check_sizes(&place, &tokens.shape, options, &mut problems);
        if let Some(ignore) = &ignore {
            let place = format!("{name}: {IGNORE}");
            check_type(&place, ignore.dtype, Dtype::U8, &mut problems);
            if let [steps, samples, length] = tokens.shape[..] {
                let expected = Shape::new([steps, samples, length.saturating_sub(1)]);
                if ignore.shape != expected {
                    problems.push(
                        Diagnostic::new(place, "does not fit the tokens")
                            .expected(expected)
                            .found(&ignore.shape),
                    );
                }
            }
        }
        let opened = Self {
            tokens_at: tokens.bytes.start as u64,
            ignore_at: ignore.map(|ignore| ignore.bytes.start as u64),
            global_batch: options.global_batch,
            sequence: options.sequence,
            vocabulary: options.vocabulary,
            name,
            file,
            digest,
        };
        if problems.is_empty() {
            opened.check_tokens(options.steps, &mut problems);
        }
        problems.into_result(opened)
    }

    pub(super) const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns whether some labels may have weight zero.
    pub(super) const fn has_ignored(&self) -> bool {
        self.ignore_at.is_some()
    }

    /// Reports the tokens of all steps that are beyond the vocabulary.
    fn check_tokens(&self, steps: u64, problems: &mut Diagnostics) {
        for step in 0..steps {
            let tokens = match self.read_tokens(step) {
                Ok(tokens) => tokens,
                Err(error) => {
                    let place = format!("{}: step {step}", self.name);
                    problems.push(Diagnostic::new(place, "cannot be read").found(error));
                    return;
                }
            };
            for (at, token) in tokens.iter().enumerate().filter(|(_, token)| !self.has(**token)) {
                problems.push(
                    Diagnostic::new(self.place(step, at), "token beyond the vocabulary")
                        .expected(format!("ids below {}", self.vocabulary))
                        .found(token),
                );
                if problems.items().len() == MOST_PROBLEMS {
                    let many =
                        format!("{MOST_PROBLEMS} tokens are beyond the vocabulary; the rest was not read");
                    problems.push(Diagnostic::new(&self.name, many));
                    return;
                }
            }
        }
    }

    fn has(&self, token: i32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.vocabulary)
    }

    fn place(&self, step: u64, at: usize) -> String {
        let length = self.sequence + 1;
        format!("{}: step {step}, sample {}, token {}", self.name, at / length, at % length)
    }

    fn read_tokens(&self, step: u64) -> io::Result<Vec<i32>> {
        let tokens = self.global_batch * (self.sequence + 1);
        let mut bytes = vec![0; 4 * tokens];
        let start = self.tokens_at + step * bytes.len() as u64;
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.as_chunks().0.iter().map(|token| i32::from_le_bytes(*token)).collect())
    }

    /// Returns the batch of a step.
    ///
    /// # Errors
    /// The file has changed since it was opened.
    pub(super) fn batch(&self, step: u64) -> Result<Batch, Error> {
        let labels = self.global_batch * self.sequence;
        let unreadable = |source| Error::Read { step, place: format!("{}: its batch", self.name), source };
        let tokens = self.read_tokens(step).map_err(unreadable)?;
        if let Some((at, token)) = tokens.iter().enumerate().find(|(_, token)| !self.has(**token)) {
            let (place, token) = (self.place(step, at), i64::from(*token));
            return Err(Error::Token { step, place, token, vocabulary: self.vocabulary });
        }
        let mut ignore = vec![0; labels];
        if let Some(start) = self.ignore_at {
            self.file.read_exact_at(&mut ignore, start + step * labels as u64).map_err(unreadable)?;
            ignore.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        let sequence = i32::try_from(self.sequence).unwrap_or(i32::MAX);
        Ok(Batch {
            step,
            global_batch: self.global_batch,
            sequence: self.sequence,
            tokens,
            ignore,
            positions: (0..self.global_batch).flat_map(|_| 0..sequence).collect(),
            documents: vec![0; labels],
        })
    }
}

fn digest(path: &Path, file: &File) -> io::Result<Digest> {
    let length = file.metadata()?.len();
    let mut first = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(DIGESTED)];
    file.read_exact_at(&mut first, 0)?;
    let mut digest = Digest::new();
    digest.add(path.file_name().unwrap_or_default().as_encoded_bytes());
    digest.add_number(length);
    digest.add(&first);
    Ok(digest)
}

fn check_type(place: &str, found: Dtype, expected: Dtype, problems: &mut Diagnostics) {
    if found != expected {
        problems.push(Diagnostic::new(place, "wrong element type").expected(expected).found(found));
    }
}

/// Checks that the sizes of the tokens match the run.
fn check_sizes(place: &str, shape: &Shape, options: &DataOptions, problems: &mut Diagnostics) {
    let [steps, samples, length] = shape[..] else {
        let expected = "three dims: steps, global_batch, sequence + 1";
        problems.push(Diagnostic::new(place, "wrong shape").expected(expected).found(shape));
        return;
    };
    let mut differ = |what: &str, expected: String, found: usize| {
        problems.push(
            Diagnostic::new(place, what)
                .expected(expected)
                .found(found)
                .help("its batches are taken as they stand"),
        );
    };
    if (steps as u64) < options.steps {
        differ("fewer steps than the run has", format!("at least {}", options.steps), steps);
    }
    if samples != options.global_batch {
        differ("another global batch than the run's", options.global_batch.to_string(), samples);
    }
    if length != options.sequence + 1 {
        differ("another length than the run's", format!("sequence + 1 = {}", options.sequence + 1), length);
    }
}
