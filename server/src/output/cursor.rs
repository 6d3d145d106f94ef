//! Scanning of text that is still being received.
//!
//! Each function decides by the text before its position alone, so that more text never changes a
//! decision.

/// Maximum length of a name, in bytes.
const NAME: usize = 256;

/// The reason why a rule does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text may match when more text is received.
    More,
    /// The text does not match, whatever follows.
    Never {
        /// Position of the first unexpected text, in bytes.
        at: usize,
    },
}

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the position, in bytes.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn never<T>(&self) -> Result<T, Stop> {
        Err(Stop::Never { at: self.at })
    }

    /// Takes `literal` if it is next. Returns whether it is.
    pub(super) fn optional(&mut self, literal: &str) -> Result<bool, Stop> {
        let rest = self.rest();
        if rest.starts_with(literal) {
            self.at += literal.len();
            Ok(true)
        } else if literal.starts_with(rest) {
            Err(Stop::More)
        } else {
            Ok(false)
        }
    }

    /// Takes `literal`.
    pub(super) fn literal(&mut self, literal: &str) -> Result<(), Stop> {
        if self.optional(literal)? { Ok(()) } else { self.never() }
    }

    /// Takes whitespace. A character follows it.
    pub(super) fn spaces(&mut self) -> Result<(), Stop> {
        let rest = self.rest().trim_start();
        self.at = self.text.len() - rest.len();
        if rest.is_empty() { Err(Stop::More) } else { Ok(()) }
    }

    /// Returns whether `character` is next.
    pub(super) fn sees(&self, character: char) -> Result<bool, Stop> {
        self.rest().chars().next().map(|next| next == character).ok_or(Stop::More)
    }

    /// Takes a name without quotes.
    pub(super) fn name(&mut self) -> Result<&'a str, Stop> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
        let rest = self.rest();
        match rest.find(|c| !is_part(c)) {
            Some(length) if (1..=NAME).contains(&length) => {
                self.at += length;
                Ok(&rest[..length])
            }
            None if rest.len() <= NAME => Err(Stop::More),
            _ => self.never(),
        }
    }

    /// Takes a JSON string. Returns its value.
    pub(super) fn string(&mut self) -> Result<String, Stop> {
        if !self.sees('"')? {
            return self.never();
        }
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let Some(end) = end.map(|end| end + 2) else { return Err(Stop::More) };
        let Ok(value) = serde_json::from_str(&rest[..end]) else { return self.never() };
        self.at += end;
        Ok(value)
    }

    /// Takes a JSON string that is a name.
    pub(super) fn quoted_name(&mut self) -> Result<String, Stop> {
        let mut after = *self;
        match after.string() {
            Ok(name) if !name.is_empty() && after.at - self.at <= NAME => {
                self.at = after.at;
                Ok(name)
            }
            Err(Stop::More) if self.rest().len() <= NAME => Err(Stop::More),
            _ => self.never(),
        }
    }

    /// Takes a JSON object. Returns its text.
    pub(super) fn object(&mut self) -> Result<&'a str, Stop> {
        if !self.sees('{')? {
            return self.never();
        }
        let rest = self.rest();
        match ObjectScanner::default().scan(rest) {
            Scan::Inside => Err(Stop::More),
            Scan::Broken(_) => self.never(),
            Scan::End(length) => {
                self.at += length;
                Ok(&rest[..length])
            }
        }
    }
}

/// The result of scanning a piece of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The whole piece belongs to the object, which continues.
    Inside,
    /// The object ends after this many bytes.
    End(usize),
    /// The bracket at this position closes another kind of bracket.
    Broken(usize),
}

/// A scanner that finds the end of a JSON object by its brackets and strings.
#[derive(Debug, Default)]
pub(super) struct ObjectScanner {
    /// Closing brackets of the open brackets.
    closing: Vec<u8>,
    in_string: bool,
    escaped: bool,
}

impl ObjectScanner {
    /// Scans the next piece. The first piece begins with the object's bracket.
    pub(super) fn scan(&mut self, text: &str) -> Scan {
        for (at, byte) in text.bytes().enumerate() {
            if self.in_string {
                self.in_string = byte != b'"' || self.escaped;
                self.escaped = byte == b'\\' && !self.escaped;
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' => self.closing.push(b'}'),
                b'[' => self.closing.push(b']'),
                b'}' | b']' if self.closing.last() != Some(&byte) => return Scan::Broken(at),
                b'}' | b']' => {
                    self.closing.pop();
                    if self.closing.is_empty() {
                        return Scan::End(at + 1);
                    }
                }
                _ => {}
            }
        }
        Scan::Inside
    }
}

/// The first place of a text where a marker is, or where it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkerPlace {
    /// Start of the whitespace before the marker, in bytes.
    pub(super) start: usize,
    /// Start of the marker, in bytes. If no marker begins, the end of the text.
    pub(super) marker: usize,
}

/// Returns the first place of one of `markers`.
pub(super) fn find(text: &str, markers: &[&str]) -> MarkerPlace {
    let begins =
        |rest: &str| markers.iter().any(|marker| rest.starts_with(marker) || marker.starts_with(rest));
    let marker = text.char_indices().map(|(at, _)| at).find(|&at| begins(&text[at..])).unwrap_or(text.len());
    MarkerPlace { start: text[..marker].trim_end().len(), marker }
}
