//! A step plan as bytes.
//!
//! - Input → output: a plan → a version byte and little-endian base-128 numbers, and back.
//! - Invariants: each plan has one encoding. Bytes that are no plan are an error, and no count
//!   reserves more memory than the buffer is long.
//! - Not here: whether a plan agrees with the receiver's tables. [`Tables`](super::Tables) checks.

use smallvec::SmallVec;

use super::{
    Change, Chunk, DecodeRow, DecodeRun, ResultRef, ResultRow, SlotCopy, StepPlan, StepToken, TableId,
    TokenForm, len,
};
use crate::base::Id;

const VERSION: u8 = 1;

/// Flags of a row.
const SAMPLES: u8 = 1;
const FROM_DECODE: u8 = 2;
const FROM_CHUNK: u8 = 4;
const HAS_LISTS: u8 = 8;

/// Flag of a chunk, next to [`SAMPLES`].
const IS_GENERATED: u8 = 2;

/// First byte of a change.
const RELEASE: u8 = 0;
const ADMIT: u8 = 1;
const ADMIT_WITH_SLOT: u8 = 2;
const EXTEND: u8 = 3;

/// The reason why bytes are no step plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The sender uses another version of the format.
    #[error(
        "step plan: unknown version: expected {VERSION}, found {found}; run the same release on all ranks"
    )]
    Version {
        /// The version in the buffer.
        found: u8,
    },
    /// The buffer ends inside the plan.
    #[error("step plan: the buffer ends at byte {at}, inside the plan")]
    Truncated {
        /// Length of the buffer in bytes.
        at: usize,
    },
    /// A field has no legal value.
    #[error("step plan: byte {at}: illegal {field}")]
    Illegal {
        /// Position after the field, in bytes.
        at: usize,
        /// Name of the illegal field.
        field: &'static str,
    },
    /// The buffer continues after the plan.
    #[error("step plan: {bytes} bytes after the plan")]
    Trailing {
        /// Number of bytes after the plan.
        bytes: usize,
    },
}

impl StepPlan {
    /// Returns the bytes of the plan.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(64 + 12 * self.rows().len()));
        out.0.push(VERSION);
        out.number(self.number);
        out.list(&self.changes, Writer::change);
        out.list(&self.loads, Writer::copy);
        out.0.push(u8::from(self.chunk.is_some()));
        if let Some(chunk) = &self.chunk {
            out.chunk(chunk);
        }
        out.0.push(u8::from(self.decode.is_some()));
        if let Some(run) = &self.decode {
            out.small(run.padded);
            out.small(run.width);
            out.list(&run.rows, |out, row| out.row(row, self.number));
        }
        out.list(&self.saves, Writer::copy);
        out.0
    }

    /// Reads the bytes of one plan.
    ///
    /// # Errors
    /// The bytes are not exactly one plan of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader { bytes, at: 0 };
        let found = input.byte()?;
        if found != VERSION {
            return Err(DecodeError::Version { found });
        }
        let number = input.number()?;
        let changes = input.list(Reader::change)?;
        let loads = input.list(Reader::copy)?;
        let chunk = if input.flag("presence of a chunk")? { Some(input.chunk()?) } else { None };
        let decode = if input.flag("presence of a decode run")? {
            let (padded, width) = (input.small()?, input.small()?);
            Some(DecodeRun { padded, width, rows: input.list(|input| input.row(number))? })
        } else {
            None
        };
        let saves = input.list(Reader::copy)?;
        match bytes.len() - input.at {
            0 => Ok(Self { number, changes, loads, chunk, decode, saves }),
            bytes => Err(DecodeError::Trailing { bytes }),
        }
    }

    fn rows(&self) -> &[DecodeRow] {
        self.decode.as_ref().map_or(&[], |run| &run.rows)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn small(&mut self, number: u32) {
        self.number(u64::from(number));
    }

    fn id(&mut self, id: impl Id) {
        self.number(id.index() as u64);
    }

    fn list<T>(&mut self, list: &[T], write: impl Fn(&mut Self, &T)) {
        self.small(len(list));
        for item in list {
            write(self, item);
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Release { table } => {
                self.0.push(RELEASE);
                self.id(*table);
            }
            Change::Admit { table, slot } => {
                self.0.push(if slot.is_some() { ADMIT_WITH_SLOT } else { ADMIT });
                self.id(*table);
                if let Some(slot) = slot {
                    self.id(*slot);
                }
            }
            Change::Extend { table, group, dropped, appended } => {
                self.0.push(EXTEND);
                self.id(*table);
                self.small(*group);
                self.small(*dropped);
                self.list(appended, |out, block| out.id(*block));
            }
        }
    }

    fn copy(&mut self, copy: &SlotCopy) {
        self.id(copy.slot);
        self.id(copy.snapshot);
    }

    fn chunk(&mut self, chunk: &Chunk) {
        let generated = if chunk.form == TokenForm::Generated { IS_GENERATED } else { 0 };
        self.0.push(generated | if chunk.samples { SAMPLES } else { 0 });
        self.id(chunk.table);
        self.small(chunk.start);
        self.small(chunk.padded);
        self.list(&chunk.tokens, |out, token| out.small(*token));
    }

    fn row(&mut self, row: &DecodeRow, step: u64) {
        let mut flags = if row.samples { SAMPLES } else { 0 };
        if !row.known.is_empty() || !row.drafts.is_empty() {
            flags |= HAS_LISTS;
        }
        match row.first {
            StepToken::Id(_) => {}
            StepToken::Result(ResultRef { row: ResultRow::Chunk, .. }) => flags |= FROM_CHUNK,
            StepToken::Result(ResultRef { row: ResultRow::Decode(_), .. }) => flags |= FROM_DECODE,
        }
        self.0.push(flags);
        self.id(row.table);
        self.small(row.position);
        match row.first {
            StepToken::Id(id) => self.small(id),
            StepToken::Result(result) => {
                // Wraps if the plan refers to a later step, so that decoding restores the plan.
                self.number(step.wrapping_sub(result.step));
                if let ResultRow::Decode(row) = result.row {
                    self.small(row);
                }
            }
        }
        if flags & HAS_LISTS != 0 {
            self.list(&row.known, |out, token| out.small(*token));
            self.list(&row.drafts, |out, token| out.small(*token));
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated { at: self.bytes.len() })?;
        self.at += 1;
        Ok(byte)
    }

    const fn illegal(&self, field: &'static str) -> DecodeError {
        DecodeError::Illegal { at: self.at, field }
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if (part << shift) >> shift != part || (byte == 0 && shift > 0) {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.illegal("number"))
    }

    fn small(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| self.illegal("number of 32 bits"))
    }

    fn id<T: Id>(&mut self) -> Result<T, DecodeError> {
        Ok(T::from_index(self.small()? as usize))
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.illegal(field)),
        }
    }

    fn list<T, L: FromIterator<T>>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<L, DecodeError> {
        let length = self.small()? as usize;
        // Every item has at least one byte.
        if length > self.bytes.len() - self.at {
            return Err(DecodeError::Truncated { at: self.bytes.len() });
        }
        (0..length).map(|_| read(self)).collect()
    }

    fn change(&mut self) -> Result<Change, DecodeError> {
        let kind = self.byte()?;
        let table: TableId = match kind {
            RELEASE..=EXTEND => self.id()?,
            _ => return Err(self.illegal("change")),
        };
        Ok(match kind {
            RELEASE => Change::Release { table },
            ADMIT => Change::Admit { table, slot: None },
            ADMIT_WITH_SLOT => Change::Admit { table, slot: Some(self.id()?) },
            _ => Change::Extend {
                table,
                group: self.small()?,
                dropped: self.small()?,
                appended: self.list(Self::id)?,
            },
        })
    }

    fn copy(&mut self) -> Result<SlotCopy, DecodeError> {
        Ok(SlotCopy { slot: self.id()?, snapshot: self.id()? })
    }

    fn chunk(&mut self) -> Result<Chunk, DecodeError> {
        let flags = self.byte()?;
        if flags & !(SAMPLES | IS_GENERATED) != 0 {
            return Err(self.illegal("flags of a chunk"));
        }
        let (table, start, padded) = (self.id()?, self.small()?, self.small()?);
        let form = if flags & IS_GENERATED == 0 { TokenForm::Prompt } else { TokenForm::Generated };
        let tokens = self.list(Self::small)?;
        Ok(Chunk { table, start, tokens, padded, form, samples: flags & SAMPLES != 0 })
    }

    fn row(&mut self, step: u64) -> Result<DecodeRow, DecodeError> {
        let flags = self.byte()?;
        if flags & !(SAMPLES | FROM_DECODE | FROM_CHUNK | HAS_LISTS) != 0 {
            return Err(self.illegal("flags of a row"));
        }
        let (table, position) = (self.id()?, self.small()?);
        let first = match flags & (FROM_DECODE | FROM_CHUNK) {
            0 => StepToken::Id(self.small()?),
            from => {
                let step = step.wrapping_sub(self.number()?);
                let row = match from {
                    FROM_CHUNK => ResultRow::Chunk,
                    FROM_DECODE => ResultRow::Decode(self.small()?),
                    _ => return Err(self.illegal("source of a token")),
                };
                StepToken::Result(ResultRef { step, row })
            }
        };
        let (mut known, mut drafts) = (SmallVec::new(), SmallVec::new());
        if flags & HAS_LISTS != 0 {
            known = self.list(Self::small)?;
            drafts = self.list(Self::small)?;
            if known.is_empty() && drafts.is_empty() {
                return Err(self.illegal("empty lists of a row"));
            }
        }
        Ok(DecodeRow { table, position, first, known, drafts, samples: flags & SAMPLES != 0 })
    }
}
