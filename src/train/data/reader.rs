//! Files of texts, document by document.
//!
//! Input → output: a [`TextFile`] → its documents in order, some at a time, each with its place;
//! and their token ids, made on all cores. Invariants: a document's place is its line of a `.jsonl`
//! or its number in a `.txt`, both from 1; a line that is no document is a problem, and reading
//! goes on behind it.
//!
//! JSON lines are read piece by piece, a `.txt` is in memory while it is read.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use serde::Deserialize;

use super::MOST_PROBLEMS;
use super::encoder::{Document, Encoder};
use super::source::{TextFile, TextFormat};
use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::generate::chat::Message;
use crate::weights::file;

/// Bytes of text that are made into ids at a time: enough for all cores, little beside the file.
const CHUNK: usize = 4 << 20;

/// A document as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WrittenDocument {
    /// All of it is to be learned.
    Text(String),
    /// What assistants say is to be learned.
    Messages(Vec<Message>),
}

/// A document and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) place: String,
    pub(super) written: WrittenDocument,
}

/// A file that is being read.
pub(super) struct Reader {
    name: String,
    /// Documents or lines so far.
    number: u64,
    /// Lines so far that are no documents.
    failed: usize,
    read: Bytes,
    rest: Rest,
}

/// What has not been read.
enum Rest {
    Whole(String),
    Separated { text: String, at: usize, separator: String },
    Lines(BufReader<File>),
    Nothing,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub(super) fn open(of: &TextFile) -> Result<Self, Diagnostic> {
        let name = of.name();
        let unreadable = |error| Diagnostic::new(&name, "cannot be read").found(error);
        let rest = match &of.format {
            TextFormat::JsonLines => Rest::Lines(BufReader::new(file::open(&of.path).map_err(unreadable)?)),
            TextFormat::Whole => Rest::Whole(text_of(&of.path, &name)?),
            TextFormat::Separated(separator) if separator.is_empty() => {
                return Err(Diagnostic::new(&name, "nothing separates its documents")
                    .expected("a separator, or none"));
            }
            TextFormat::Separated(separator) => {
                Rest::Separated { text: text_of(&of.path, &name)?, at: 0, separator: separator.clone() }
            }
        };
        Ok(Self { name, number: 0, failed: 0, read: Bytes(0), rest })
    }

    /// Bytes of the file behind which reading goes on.
    pub(super) const fn read(&self) -> Bytes {
        self.read
    }

    /// The next documents, about [`CHUNK`] bytes of them; none at the end. An empty text is no
    /// document.
    pub(super) fn next_chunk(&mut self, problems: &mut Diagnostics) -> Vec<Placed> {
        let mut chunk = Vec::new();
        let start = self.read.0;
        while chunk.is_empty() || self.read.0 - start < CHUNK as u64 {
            match self.next_document(problems) {
                Some(Placed { written: WrittenDocument::Text(text), .. }) if text.is_empty() => {}
                Some(document) => chunk.push(document),
                None if matches!(self.rest, Rest::Nothing) => break,
                None => {}
            }
        }
        chunk
    }

    /// The next document, if what comes next is one.
    fn next_document(&mut self, problems: &mut Diagnostics) -> Option<Placed> {
        let next = match &mut self.rest {
            Rest::Nothing => return None,
            Rest::Whole(text) => {
                let text = std::mem::take(text);
                (self.read, self.rest) = (Bytes(text.len() as u64), Rest::Nothing);
                return Some(Placed { place: self.name.clone(), written: WrittenDocument::Text(text) });
            }
            Rest::Separated { text, at, separator } => {
                let rest = &text[*at..];
                let found = rest.find(separator.as_str());
                let document = rest[..found.unwrap_or(rest.len())].to_owned();
                *at += document.len() + found.map_or(0, |_| separator.len());
                self.read = Bytes(*at as u64);
                self.number += 1;
                if found.is_none() {
                    self.rest = Rest::Nothing;
                }
                let place = format!("{}: document {}", self.name, self.number);
                return Some(Placed { place, written: WrittenDocument::Text(document) });
            }
            Rest::Lines(lines) => {
                let mut line = Vec::new();
                lines.read_until(b'\n', &mut line).map(|_| line)
            }
        };
        let problem = match next {
            Err(error) => {
                self.rest = Rest::Nothing;
                Diagnostic::new(format!("{}: after line {}", self.name, self.number), "cannot be read")
                    .found(error)
            }
            Ok(line) if line.is_empty() => {
                self.rest = Rest::Nothing;
                return None;
            }
            Ok(line) => {
                self.number += 1;
                self.read += Bytes(line.len() as u64);
                let place = format!("{}: line {}", self.name, self.number);
                match parse(line.trim_ascii()) {
                    Ok(written) => return Some(Placed { place, written: written? }),
                    Err(found) => Diagnostic::new(place, "no document").expected(LINE).found(found),
                }
            }
        };
        problems.push(problem);
        self.failed += 1;
        if self.failed == MOST_PROBLEMS {
            problems.push(Diagnostic::new(
                &self.name,
                format!("{MOST_PROBLEMS} lines are no documents; the rest is not read"),
            ));
            self.rest = Rest::Nothing;
        }
        None
    }
}

/// What a line is to be.
const LINE: &str = r#"{"text": "…"} or {"messages": [{"role": "…", "content": "…"}, …]}"#;

#[derive(Deserialize)]
struct LineKind {
    text: Option<String>,
    messages: Option<Vec<WrittenMessage>>,
}

/// A key that the chat template is not given would change what is said.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMessage {
    role: String,
    content: String,
}

/// The document of a line; none of an empty one.
fn parse(line: &[u8]) -> Result<Option<WrittenDocument>, String> {
    if line.is_empty() {
        return Ok(None);
    }
    // A list would be taken for the fields in their order.
    if !line.starts_with(b"{") {
        return Err("no JSON object".to_owned());
    }
    let parsed: LineKind = serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        // The line it counts is always the first.
        let what = text.rsplit_once(" at line").map_or(text.as_str(), |(what, _)| what);
        format!("{what} at column {}", error.column())
    })?;
    match (parsed.text, parsed.messages) {
        (Some(text), None) => Ok(Some(WrittenDocument::Text(text))),
        (None, Some(messages)) => {
            let message = |WrittenMessage { role, content }| Message::new(role, content);
            Ok(Some(WrittenDocument::Messages(messages.into_iter().map(message).collect())))
        }
        (Some(_), Some(_)) => Err("both `text` and `messages`".to_owned()),
        (None, None) => Err("neither `text` nor `messages`".to_owned()),
    }
}

fn text_of(path: &Path, name: &str) -> Result<String, Diagnostic> {
    let bytes = file::read(path).map_err(|error| Diagnostic::new(name, "cannot be read").found(error))?;
    String::from_utf8(bytes).map_err(|error| {
        Diagnostic::new(format!("{name}: byte {}", error.utf8_error().valid_up_to()), "no text")
            .expected("UTF-8")
    })
}

/// Gives `take` the documents of a file in order, as ids, and tells `progress` how many more bytes
/// of it have been read. Where there are problems, not all documents come.
///
/// # Errors
/// What `take` fails with.
pub(super) fn encode(
    of: &TextFile,
    encoder: &Encoder,
    problems: &mut Diagnostics,
    progress: &dyn Fn(Bytes),
    take: &mut dyn FnMut(Document) -> io::Result<()>,
) -> io::Result<()> {
    let mut reader = match Reader::open(of) {
        Ok(reader) => reader,
        Err(problem) => {
            problems.push(problem);
            return Ok(());
        }
    };
    let mut failed = 0;
    loop {
        let before = reader.read();
        let chunk = reader.next_chunk(problems);
        if chunk.is_empty() {
            return Ok(());
        }
        for (placed, encoded) in chunk.iter().zip(encode_all(encoder, &chunk)) {
            match encoded {
                Ok(document) => take(document)?,
                Err(found) => {
                    failed += 1;
                    for problem in found.items() {
                        let place = format!("{}: {}", placed.place, problem.place);
                        problems.push(Diagnostic { place, ..problem.clone() });
                    }
                }
            }
        }
        progress(Bytes(reader.read().0 - before.0));
        if failed >= MOST_PROBLEMS {
            problems.push(Diagnostic::new(
                of.name(),
                format!("{failed} documents cannot be encoded; the rest is not read"),
            ));
            return Ok(());
        }
    }
}

/// The ids of documents, made on all cores.
fn encode_all(encoder: &Encoder, documents: &[Placed]) -> Vec<Result<Document, Diagnostics>> {
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let share = documents.len().div_ceil(threads);
    thread::scope(|scope| {
        let encode = |placed: &Placed| encoder.encode(&placed.written);
        let spawn = |part| {
            let part: &[Placed] = part;
            scope.spawn(move || part.iter().map(encode).collect::<Vec<_>>())
        };
        let parts: Vec<_> = documents.chunks(share).map(spawn).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &[u8], format: TextFormat) -> (Vec<Placed>, Diagnostics) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut problems = Diagnostics::new();
        let mut reader = match Reader::open(&TextFile { path, format }) {
            Ok(reader) => reader,
            Err(problem) => return (Vec::new(), problem.into()),
        };
        reader.name = name.to_owned();
        let mut found = Vec::new();
        loop {
            let chunk = reader.next_chunk(&mut problems);
            if chunk.is_empty() {
                return (found, problems);
            }
            found.extend(chunk);
        }
    }

    fn text(place: &str, text: &str) -> Placed {
        Placed { place: place.to_owned(), written: WrittenDocument::Text(text.to_owned()) }
    }

    #[test]
    fn a_text_is_one_document_or_several() {
        assert_eq!(read("a.txt", b"x\n\ny\n", TextFormat::Whole).0, [text("a.txt", "x\n\ny\n")]);
        let between = TextFormat::Separated("\n\n".to_owned());
        assert_eq!(
            read("a.txt", "é\nb\n\nc\n\n\n\nd\n".as_bytes(), between.clone()).0,
            [
                text("a.txt: document 1", "é\nb"),
                text("a.txt: document 2", "c"),
                text("a.txt: document 4", "d\n")
            ]
        );
        assert_eq!(read("a.txt", b"", TextFormat::Whole).0, []);
        assert_eq!(read("a.txt", b"a\n\n", between).0, [text("a.txt: document 1", "a")]);
    }

    #[test]
    fn files_that_are_no_text_say_where() {
        let message = read("a.txt", b"ab\xffc", TextFormat::Whole).1.to_string();
        assert!(message.ends_with("a.txt: byte 2: no text: expected UTF-8"), "{message}");
        let message = read("a.txt", b"ab", TextFormat::Separated(String::new())).1.to_string();
        assert!(message.contains("nothing separates its documents"), "{message}");
        let absent = TextFile { path: "absent.jsonl".into(), format: TextFormat::JsonLines };
        assert!(Reader::open(&absent).err().unwrap().to_string().starts_with("absent.jsonl: cannot be read"));
    }

    #[test]
    fn lines_are_texts_and_messages() {
        let lines = concat!(
            "{\"id\": 7, \"text\": \"a\\nb\"}\n",
            "\n",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}\r\n",
            "{\"text\": \"last\"}",
        );
        let (found, problems) = read("a.jsonl", lines.as_bytes(), TextFormat::JsonLines);
        assert!(problems.is_empty(), "{problems}");
        let message = WrittenDocument::Messages(vec![Message::new("user", "q")]);
        let asked = Placed { place: "a.jsonl: line 3".to_owned(), written: message };
        assert_eq!(found, [text("a.jsonl: line 1", "a\nb"), asked, text("a.jsonl: line 4", "last")]);
    }

    #[test]
    fn each_bad_line_is_named() {
        let lines = concat!(
            "{\"text\": 5}\n",
            "{\"text\": \"good\"}\n",
            "{\"text\": \"torn\n",
            "{\"other\": \"x\"}\n",
            "{\"text\": \"x\", \"messages\": []}\n",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"q\", \"tool_calls\": []}]}\n",
            "{\"messages\": [{\"role\": \"user\"}]}\n",
            "[\"text\"]\n",
            "{\"text\": \"a\", \"text\": \"b\"}\n",
        );
        let (found, problems) = read("a.jsonl", lines.as_bytes(), TextFormat::JsonLines);
        assert_eq!(found, [text("a.jsonl: line 2", "good")]);
        let lines = problems.lines();
        for (line, (number, what)) in lines.iter().zip([
            (1, "invalid type: integer `5`, expected a string at column 10"),
            (3, "EOF while parsing a string at column"),
            (4, "neither `text` nor `messages`"),
            (5, "both `text` and `messages`"),
            (6, "unknown field `tool_calls`, expected `role` or `content` at column"),
            (7, "missing field `content` at column"),
            (8, "found no JSON object"),
            (9, "duplicate field `text` at column"),
        ]) {
            assert!(
                line.starts_with(&format!("a.jsonl: line {number}: no document: expected {{\"text\"")),
                "{line}"
            );
            assert!(line.contains(what), "{line}");
        }
        assert_eq!(lines.len(), 8, "{lines:?}");
    }

    #[test]
    fn a_file_of_another_kind_is_not_read_to_its_end() {
        let (_, problems) = read("a.jsonl", &b"a,b\n".repeat(5000), TextFormat::JsonLines);
        assert_eq!(problems.items().len(), MOST_PROBLEMS + 1);
        let lines = problems.lines();
        assert_eq!(lines.len(), 12, "{lines:?}");
        assert!(lines[10].ends_with("990 more of these, the last at a.jsonl: line 1000"), "{}", lines[10]);
        assert!(lines[11].ends_with("1000 lines are no documents; the rest is not read"), "{}", lines[11]);
    }
}
