//! The documents of all files, as one sequence of tokens.
//!
//! Input: sources. Output: a [`Corpus`], which returns the ids and label flags of any range of
//! tokens. Invariant: when the corpus is opened, every token id is below the vocabulary size. Texts
//! are held in memory as ids. For indexed data, only the starts of documents are in memory.

use std::io;
use std::ops::Range;

use super::digest::Digest;
use super::encoder::Document;
use super::indexed::IndexedFile;
use super::problems::{SkippedLines, TextProblems};
use super::source::CorpusSource;
use super::{DataOptions, MOST_PROBLEMS, reader};
use crate::base::{Bytes, Diagnostic, Diagnostics};

/// Number of tokens that are checked at a time.
const CHUNK: u64 = 1 << 20;

/// The concatenated documents of all sources.
#[derive(Debug)]
pub(super) struct Corpus {
    parts: Vec<SourceDocuments>,
    /// First token of each document, followed by the number of tokens.
    starts: Vec<u64>,
    skipped: SkippedLines,
}

#[derive(Debug)]
struct SourceDocuments {
    name: String,
    first_document: usize,
    first_token: u64,
    tokens: u64,
    store: CorpusStore,
}

#[derive(Debug)]
enum CorpusStore {
    /// Ids in memory. `ignore` is empty if all labels count.
    Memory {
        ids: Vec<u32>,
        ignore: Vec<u8>,
    },
    File(IndexedFile),
}

/// The error of a range of tokens that could not be read.
#[derive(Debug)]
pub(super) struct Unread {
    /// The file and the range of tokens.
    pub(super) place: String,
    pub(super) source: io::Error,
}

impl Corpus {
    /// Opens all sources in their order. Problems of all sources are collected.
    pub(super) fn open(options: &DataOptions) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut texts = TextProblems::with_limit(options.skip_bad_lines);
        let mut corpus = Self { parts: Vec::new(), starts: vec![0], skipped: SkippedLines::default() };
        for source in &options.sources {
            match open(source, &mut texts) {
                Ok((name, starts, store)) => corpus.add(name, &starts, store),
                Err(found) => problems.append(found),
            }
        }
        match texts.into_result() {
            Ok(skipped) => corpus.skipped = skipped,
            Err(found) => problems.append(found),
        }
        for part in &corpus.parts {
            corpus.check(part, options.vocabulary, &mut problems);
        }
        problems.into_result(corpus)
    }

    /// Adds a source. `starts` counts from the source's own first token.
    fn add(&mut self, name: String, starts: &[u64], store: CorpusStore) {
        let (first_token, first_document) = (self.tokens(), self.documents());
        self.starts.extend(starts[1..].iter().map(|start| first_token + start));
        self.parts.push(SourceDocuments {
            name,
            first_document,
            first_token,
            tokens: self.tokens() - first_token,
            store,
        });
    }

    pub(super) const fn skipped(&self) -> &SkippedLines {
        &self.skipped
    }

    pub(super) fn tokens(&self) -> u64 {
        self.starts[self.documents()]
    }

    pub(super) const fn documents(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the document that has the token. An empty document has no token.
    pub(super) fn document_at(&self, token: u64) -> usize {
        self.starts.partition_point(|start| *start <= token) - 1
    }

    /// Returns the token after the last token of a document.
    pub(super) fn end_of(&self, document: usize) -> u64 {
        self.starts[document + 1]
    }

    /// Returns the place of a token for messages: its file, its document and its position, from 0.
    pub(super) fn place(&self, token: u64) -> String {
        let document = self.document_at(token);
        let part = self.parts.partition_point(|part| part.first_token <= token) - 1;
        let SourceDocuments { name, first_document, .. } = &self.parts[part];
        format!("{name}: document {}, token {}", document - first_document, token - self.starts[document])
    }

    /// Returns whether the data itself gives some labels weight zero.
    pub(super) fn has_ignored(&self) -> bool {
        self.parts.iter().any(|part| match &part.store {
            CorpusStore::Memory { ignore, .. } => !ignore.is_empty(),
            CorpusStore::File(file) => file.has_ignored(),
        })
    }

    /// Adds the content of the documents to a digest.
    pub(super) fn add_to(&self, digest: &mut Digest) {
        for part in &self.parts {
            match &part.store {
                CorpusStore::Memory { ids, ignore } => {
                    digest.add(part.name.rsplit('/').next().unwrap_or_default().as_bytes());
                    digest.add_number(part.tokens);
                    ids.iter().for_each(|id| digest.add_number(u64::from(*id)));
                    digest.add(ignore);
                }
                CorpusStore::File(file) => digest.add(file.digest().text().as_bytes()),
            }
        }
        self.starts.iter().for_each(|start| digest.add_number(*start));
    }

    /// Appends the ids of a range, and for each id 1 if its label has weight zero, else 0.
    pub(super) fn read(
        &self,
        range: Range<u64>,
        ids: &mut Vec<i64>,
        ignore: &mut Vec<u8>,
    ) -> Result<(), Unread> {
        let first = self.parts.partition_point(|part| part.first_token + part.tokens <= range.start);
        for part in self.parts[first..].iter().take_while(|part| part.first_token < range.end) {
            let start = range.start.max(part.first_token) - part.first_token;
            let end = range.end.min(part.first_token + part.tokens) - part.first_token;
            part.read(start..end, ids, ignore).map_err(|source| Unread {
                place: format!("{}: tokens {start} to {end}", part.name),
                source,
            })?;
        }
        Ok(())
    }

    /// Reports the tokens of a source that are beyond the vocabulary.
    fn check(&self, part: &SourceDocuments, vocabulary: usize, problems: &mut Diagnostics) {
        let (mut problem_count, mut position) = (0, 0);
        while position < part.tokens {
            let end = part.tokens.min(position + CHUNK);
            let mut ids = Vec::new();
            if let Err(source) = part.read_ids(position..end, &mut ids) {
                let place = format!("{}: tokens {position} to {end}", part.name);
                problems.push(Diagnostic::new(place, "cannot be read").found(source));
                return;
            }
            for (index, id) in ids.iter().enumerate().filter(|(_, id)| !is_below(**id, vocabulary)) {
                problem_count += 1;
                let place = self.place(part.first_token + position + index as u64);
                problems.push(
                    Diagnostic::new(place, "token beyond the vocabulary")
                        .expected(format!("ids below {vocabulary}"))
                        .found(id),
                );
                if problem_count == MOST_PROBLEMS {
                    let many =
                        format!("{problem_count} tokens are beyond the vocabulary; the rest was not read");
                    let help = "the data was made with another tokenizer";
                    problems.push(Diagnostic::new(&part.name, many).help(help));
                    return;
                }
            }
            position = end;
        }
    }
}

/// Returns whether the model has a row for an id.
pub(super) fn is_below(id: i64, vocabulary: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < vocabulary)
}

impl SourceDocuments {
    fn read(&self, range: Range<u64>, ids: &mut Vec<i64>, ignore: &mut Vec<u8>) -> io::Result<()> {
        self.read_ids(range.clone(), ids)?;
        match &self.store {
            CorpusStore::Memory { ignore: all, .. } if !all.is_empty() => {
                ignore.extend_from_slice(&all[indices(&range)]);
            }
            CorpusStore::Memory { .. } => ignore.resize(ignore.len() + indices(&range).len(), 0),
            CorpusStore::File(file) => file.read_ignored(range, ignore)?,
        }
        Ok(())
    }

    fn read_ids(&self, range: Range<u64>, into: &mut Vec<i64>) -> io::Result<()> {
        match &self.store {
            CorpusStore::Memory { ids, .. } => {
                into.extend(ids[indices(&range)].iter().map(|id| i64::from(*id)));
            }
            CorpusStore::File(file) => file.read(range, into)?,
        }
        Ok(())
    }
}

/// Converts a range of tokens to indices of an array in memory.
fn indices(range: &Range<u64>) -> Range<usize> {
    let index = |token| usize::try_from(token).unwrap_or(usize::MAX);
    index(range.start)..index(range.end)
}

/// Opens a source. Returns its name, the starts of its documents, and its tokens. Problems of texts
/// are added to `problems`.
fn open(
    source: &CorpusSource,
    problems: &mut TextProblems,
) -> Result<(String, Vec<u64>, CorpusStore), Diagnostics> {
    match source {
        CorpusSource::Indexed { prefix } => {
            let file = IndexedFile::open(prefix)?;
            Ok((file.name.clone(), file.index.starts(), CorpusStore::File(file)))
        }
        CorpusSource::Tokens { path } => {
            let problem = Diagnostic::new(
                path.display().to_string(),
                "batches that are ready are all the data of a run",
            );
            Err(problem.help("give this file alone").into())
        }
        CorpusSource::Text { file, encoder } => {
            let (mut starts, mut ids, mut ignore) = (vec![0], Vec::new(), Vec::new());
            let mut take = |document: Document| {
                append(&document, &mut ids, &mut ignore);
                starts.push(ids.len() as u64);
                Ok(())
            };
            let read = reader::encode(file, encoder, problems, &|_: Bytes| {}, &mut take);
            if let Err(error) = read {
                problems.push(Diagnostic::new(file.name(), "cannot be held in memory").found(error));
            }
            Ok((file.name(), starts, CorpusStore::Memory { ids, ignore }))
        }
    }
}

/// Appends a document to the arrays in memory.
fn append(document: &Document, ids: &mut Vec<u32>, ignore: &mut Vec<u8>) {
    if !document.ignore.is_empty() || !ignore.is_empty() {
        // All labels of the earlier documents, or of this document, count.
        ignore.resize(ids.len(), 0);
        ignore.extend_from_slice(&document.ignore);
    }
    ids.extend_from_slice(&document.ids);
    if !ignore.is_empty() {
        ignore.resize(ids.len(), 0);
    }
}
