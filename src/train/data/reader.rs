//! Files of texts, read document by document.
//!
//! Input: a [`TextFile`]. Output: its documents in order, in chunks, each with its place; their
//! token ids, computed on all cores.
//!
//! Invariants:
//! - The place of a document is its line in a `.jsonl` or its number in a `.txt`, both from 1.
//! - A line without a document is a problem. Reading continues after it.
//! - JSON lines are read in chunks. A `.txt` is in memory while it is read.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use super::encoder::{Document, Encoder};
use super::problems::TextProblems;
use super::record::{self, LINE, WrittenDocument};
use super::source::{TextFile, TextFormat};
use crate::base::{Bytes, Diagnostic, Diagnostics};
use crate::weights::file;

/// Bytes of text that are encoded at a time: enough work for all cores, and small compared with a
/// large file.
const CHUNK: usize = 4 << 20;

/// The byte order mark of UTF-8, which some programs write at the start of a file. It belongs to no
/// document.
const UTF8_MARK: &[u8] = &[0xEF, 0xBB, 0xBF];

/// First bytes of files that are not text, with the format and the help of the message.
const NO_TEXTS: [(&[u8], &str, &str); 5] = [
    (&[0x1F, 0x8B], "gzip", "decompress it with `gunzip`"),
    (&[0x28, 0xB5, 0x2F, 0xFD], "zstd", "decompress it with `unzstd`"),
    (b"PAR1", "Parquet", "write it as JSON lines, such as with `to_json(lines=True)` of datasets"),
    (&[0xFF, 0xFE], "UTF-16", "convert it with `iconv -f UTF-16 -t UTF-8`"),
    (&[0xFE, 0xFF], "UTF-16", "convert it with `iconv -f UTF-16 -t UTF-8`"),
];

/// A document with its place, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedDocument {
    pub(super) place: String,
    pub(super) written: WrittenDocument,
}

pub(super) struct Reader {
    name: String,
    /// Number of documents or lines read so far.
    number: u64,
    /// Number of lines read so far that have no document.
    failed: usize,
    read: Bytes,
    rest: UnreadText,
}

/// The part of the file that has not been read.
enum UnreadText {
    Whole(String),
    Separated { text: String, at: usize, separator: String },
    Lines(BufReader<File>),
    Nothing,
}

impl Reader {
    pub(super) fn open(of: &TextFile) -> Result<Self, Diagnostic> {
        let name = of.name();
        let unreadable = |error| Diagnostic::new(&name, "cannot be read").found(error);
        let rest = match &of.format {
            TextFormat::JsonLines => {
                let mut lines = BufReader::new(file::open(&of.path).map_err(unreadable)?);
                let beginning = lines.fill_buf().map_err(unreadable)?;
                check_beginning(&name, beginning)?;
                let mark = if beginning.starts_with(UTF8_MARK) { UTF8_MARK.len() } else { 0 };
                lines.consume(mark);
                UnreadText::Lines(lines)
            }
            TextFormat::Whole => UnreadText::Whole(text_of(&of.path, &name)?),
            TextFormat::Separated(separator) if separator.is_empty() => {
                return Err(Diagnostic::new(&name, "nothing separates its documents")
                    .expected("a separator, or none"));
            }
            TextFormat::Separated(separator) => {
                let text = text_of(&of.path, &name)?;
                let separator = separator_in(&text, separator);
                UnreadText::Separated { text, at: 0, separator }
            }
        };
        Ok(Self { name, number: 0, failed: 0, read: Bytes(0), rest })
    }

    pub(super) const fn read(&self) -> Bytes {
        self.read
    }

    /// Returns the next documents, about [`CHUNK`] bytes; an empty list at the end of the file.
    /// Empty texts are left out.
    pub(super) fn next_chunk(&mut self, problems: &mut TextProblems) -> Vec<PlacedDocument> {
        let mut chunk = Vec::new();
        let start = self.read.0;
        while chunk.is_empty() || self.read.0 - start < CHUNK as u64 {
            match self.next_document(problems) {
                Some(PlacedDocument { written: WrittenDocument::Text(text), .. }) if text.is_empty() => {}
                Some(document) => chunk.push(document),
                None if matches!(self.rest, UnreadText::Nothing) => break,
                None => {}
            }
        }
        chunk
    }

    /// Returns the next document; `None` at the end of the file, and after an empty or bad line.
    fn next_document(&mut self, problems: &mut TextProblems) -> Option<PlacedDocument> {
        let next = match &mut self.rest {
            UnreadText::Nothing => return None,
            UnreadText::Whole(text) => {
                let text = std::mem::take(text);
                (self.read, self.rest) = (Bytes(text.len() as u64), UnreadText::Nothing);
                return Some(PlacedDocument {
                    place: self.name.clone(),
                    written: WrittenDocument::Text(text),
                });
            }
            UnreadText::Separated { text, at, separator } => {
                let rest = &text[*at..];
                let found = rest.find(separator.as_str());
                let document = rest[..found.unwrap_or(rest.len())].to_owned();
                *at += document.len() + found.map_or(0, |_| separator.len());
                self.read = Bytes(*at as u64);
                self.number += 1;
                if found.is_none() {
                    self.rest = UnreadText::Nothing;
                }
                let place = format!("{}: document {}", self.name, self.number);
                return Some(PlacedDocument { place, written: WrittenDocument::Text(document) });
            }
            UnreadText::Lines(lines) => {
                let mut line = Vec::new();
                lines.read_until(b'\n', &mut line).map(|_| line)
            }
        };
        let line = match next {
            Ok(line) => line,
            Err(error) => {
                self.rest = UnreadText::Nothing;
                let place = format!("{}: after line {}", self.name, self.number);
                problems.push(Diagnostic::new(place, "cannot be read").found(error));
                return None;
            }
        };
        if line.is_empty() {
            self.rest = UnreadText::Nothing;
            return None;
        }
        self.number += 1;
        self.read += Bytes(line.len() as u64);
        let place = format!("{}: line {}", self.name, self.number);
        match record::parse(line.trim_ascii()) {
            Ok(written) => return Some(PlacedDocument { place, written: written? }),
            Err(found) => {
                problems.push_line([Diagnostic::new(place, "not a document").expected(LINE).found(found)]);
            }
        }
        self.failed += 1;
        if problems.are_too_many(self.failed) {
            let message = format!("{} lines are not documents; the rest was not read", self.failed);
            problems.push(Diagnostic::new(&self.name, message));
            self.rest = UnreadText::Nothing;
        }
        None
    }
}

/// Refuses a file that starts with the first bytes of a format that is not text.
fn check_beginning(name: &str, bytes: &[u8]) -> Result<(), Diagnostic> {
    match NO_TEXTS.iter().find(|(beginning, ..)| bytes.starts_with(beginning)) {
        None => Ok(()),
        Some((_, format, help)) => {
            Err(Diagnostic::new(name, "not a text").expected("UTF-8").found(format).help(help))
        }
    }
}

/// Returns the separator with the line ends of Windows, if the text has the separator only in this
/// form.
fn separator_in(text: &str, separator: &str) -> String {
    let windows = separator.replace("\r\n", "\n").replace('\n', "\r\n");
    if !text.contains(separator) && text.contains(&windows) { windows } else { separator.to_owned() }
}

fn text_of(path: &Path, name: &str) -> Result<String, Diagnostic> {
    let mut bytes = file::read(path).map_err(|error| Diagnostic::new(name, "cannot be read").found(error))?;
    check_beginning(name, &bytes)?;
    if bytes.starts_with(UTF8_MARK) {
        bytes.drain(..UTF8_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + valid.iter().rev().take_while(|byte| **byte != b'\n').count();
        Diagnostic::new(format!("{name}: line {line}, byte {column}"), "not a text")
            .expected("UTF-8")
            .found(format!("the byte {:#04x}", error.as_bytes()[valid.len()]))
    })
}

/// Passes the encoded documents of a file to `take` in order, and the number of bytes read to
/// `progress`. Documents with problems are left out.
pub(super) fn encode(
    of: &TextFile,
    encoder: &Encoder,
    problems: &mut TextProblems,
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
                    problems.push_line(found.items().iter().map(|problem| {
                        let place = format!("{}: {}", placed.place, problem.place);
                        Diagnostic { place, ..problem.clone() }
                    }));
                }
            }
        }
        progress(Bytes(reader.read().0 - before.0));
        if problems.are_too_many(failed) {
            problems.push(Diagnostic::new(
                of.name(),
                format!("{failed} documents cannot be encoded; the rest was not read"),
            ));
            return Ok(());
        }
    }
}

/// Returns the ids of documents, computed on all cores.
fn encode_all(encoder: &Encoder, documents: &[PlacedDocument]) -> Vec<Result<Document, Diagnostics>> {
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let share = documents.len().div_ceil(threads);
    thread::scope(|scope| {
        let encode = |placed: &PlacedDocument| encoder.encode(&placed.written);
        let spawn = |part| {
            let part: &[PlacedDocument] = part;
            scope.spawn(move || part.iter().map(encode).collect::<Vec<_>>())
        };
        let parts: Vec<_> = documents.chunks(share).map(spawn).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::MOST_PROBLEMS;
    use super::super::record::{Turn, WrittenConversation};
    use super::*;

    fn read(name: &str, bytes: &[u8], format: TextFormat) -> (Vec<PlacedDocument>, Diagnostics) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut problems = TextProblems::with_limit(0);
        let mut reader = match Reader::open(&TextFile { path, format }) {
            Ok(reader) => reader,
            Err(problem) => return (Vec::new(), problem.into()),
        };
        reader.name = name.to_owned();
        let mut found = Vec::new();
        loop {
            let chunk = reader.next_chunk(&mut problems);
            if chunk.is_empty() {
                return (found, problems.into_result().err().unwrap_or_default());
            }
            found.extend(chunk);
        }
    }

    fn text(place: &str, text: &str) -> PlacedDocument {
        PlacedDocument { place: place.to_owned(), written: WrittenDocument::Text(text.to_owned()) }
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
        assert!(
            message.ends_with("a.txt: line 1, byte 3: not a text: expected UTF-8, found the byte 0xff"),
            "{message}"
        );
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
        let message = WrittenDocument::Messages(WrittenConversation::new(vec![Turn::new("user", "q")]));
        let asked = PlacedDocument { place: "a.jsonl: line 3".to_owned(), written: message };
        assert_eq!(found, [text("a.jsonl: line 1", "a\nb"), asked, text("a.jsonl: line 4", "last")]);
    }

    #[test]
    fn a_mark_before_the_text_belongs_to_no_document() {
        let lines = b"\xEF\xBB\xBF{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\"}\r\n\n \n";
        let (found, problems) = read("a.jsonl", lines, TextFormat::JsonLines);
        assert!(problems.is_empty(), "{problems}");
        assert_eq!(found, [text("a.jsonl: line 1", "a"), text("a.jsonl: line 3", "b")]);
        assert_eq!(read("a.txt", b"\xEF\xBB\xBFx", TextFormat::Whole).0, [text("a.txt", "x")]);
        assert_eq!(read("a.jsonl", b"\xEF\xBB\xBF", TextFormat::JsonLines).0, []);
        let between = TextFormat::Separated("\n\n".to_owned());
        let found = read("a.txt", b"\xEF\xBB\xBFa\r\nb\r\n\r\nc", between).0;
        assert_eq!(found, [text("a.txt: document 1", "a\r\nb"), text("a.txt: document 2", "c")]);
    }

    #[test]
    fn files_of_other_formats_are_named() {
        for (bytes, format) in [
            (&b"\x1f\x8b\x08\0"[..], "found gzip; decompress it with `gunzip`"),
            (&b"PAR1\x15"[..], "found Parquet; write it as JSON lines"),
            (&b"\xff\xfe{\0"[..], "found UTF-16; convert it with `iconv"),
        ] {
            for (name, how) in [("a.jsonl", TextFormat::JsonLines), ("a.txt", TextFormat::Whole)] {
                let message = read(name, bytes, how).1.to_string();
                assert!(
                    message.contains("not a text: expected UTF-8") && message.contains(format),
                    "{message}"
                );
            }
        }
        let (found, problems) =
            read("a.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n", TextFormat::JsonLines);
        assert_eq!(found.len(), 1);
        assert!(problems.to_string().starts_with("a.jsonl: line 2: not a document"), "{problems}");
        assert!(problems.to_string().ends_with("found bytes that are not UTF-8 at column 11"), "{problems}");
    }

    #[test]
    fn each_bad_line_is_named() {
        let lines = concat!(
            "{\"text\": 5}\n",
            "{\"text\": \"good\"}\n",
            "{\"text\": \"torn\n",
            "{\"other\": \"x\"}\n",
            "{\"text\": \"x\", \"messages\": []}\n",
            "{\"prompt\": \"q\"}\n",
            "{\"messages\": [{\"role\": \"user\"}]}\n",
            "[\"text\"]\n",
            "{\"text\": \"a\", \"text\": \"b\"}\n",
        );
        let (found, problems) = read("a.jsonl", lines.as_bytes(), TextFormat::JsonLines);
        assert_eq!(found, [text("a.jsonl: line 2", "good")]);
        let lines = problems.lines();
        for (line, (number, what)) in lines.iter().zip([
            (1, "`text`: expected a string, found 5"),
            (3, "EOF while parsing a string at column"),
            (4, "neither `text` nor `messages`"),
            (5, "both `text` and `messages`"),
            (6, "missing key `completion`"),
            (7, "messages: message 1: missing key `content`"),
            (8, "found no JSON object"),
            (9, "duplicate key `text`"),
        ]) {
            assert!(
                line.starts_with(&format!("a.jsonl: line {number}: not a document: expected {{\"text\"")),
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
        assert!(lines[11].ends_with("1000 lines are not documents; the rest was not read"), "{}", lines[11]);
    }
}
