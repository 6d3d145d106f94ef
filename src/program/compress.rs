//! Compressed sums: each rank sends less data than its partial sum and keeps the error for the next
//! step.
//!
//! A rank adds its previous error to its partial sum, sends a compressed form, and stores the
//! difference as the new error. No information is lost, only delayed. The errors of all ranks form
//! a partial sum, so the total stays correct if shards move to other ranks.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use ascend_tp_machine::kernel::{SIGN_ROW, SIGN_ROWS};
use serde::{Deserialize, Serialize};

/// The compressed form of a partial sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Compression {
    /// The sign of each element, and the mean magnitude of each row. Each rank reduces one share of
    /// the elements and sends the compressed result. A rank adds its own share uncompressed.
    OneBit,
    /// The elements of greatest magnitude, with their indices: the given share, but at least one.
    /// Each rank adds the elements of all ranks.
    TopK {
        /// Share of the elements, above 0 and at most 1.
        share: f64,
    },
}

/// Distribution of elements over ranks for one-bit compression: one share per rank, in records of
/// rows. A record contains the signs of the rows, followed by the mean magnitude of each row as
/// f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealt {
    elems: usize,
    /// Elements per row, a multiple of 32.
    pub row: usize,
    /// Number of rows per record.
    pub rows: usize,
    /// Records per share. The last one may be incomplete.
    pub records: usize,
}

impl Dealt {
    const SIGNS: usize = 32;
    /// Smallest share, in elements, that uses several rows per record. Padding is then at most an
    /// eighth.
    const LEAST_IN_ROWS: usize = 8 * SIGN_ROWS * SIGN_ROW;

    /// Distributes `elems` elements over `cards` ranks.
    #[must_use]
    pub const fn new(elems: usize, cards: usize) -> Self {
        let share = elems.div_ceil(cards);
        if share < Self::LEAST_IN_ROWS {
            return Self { elems, row: share.next_multiple_of(Self::SIGNS), rows: 1, records: 1 };
        }
        Self { elems, row: SIGN_ROW, rows: SIGN_ROWS, records: share.div_ceil(SIGN_ROWS * SIGN_ROW) }
    }

    /// Returns whether records have the format of `kernels/sign_compress.cpp`.
    #[must_use]
    pub const fn is_in_rows(&self) -> bool {
        self.rows == SIGN_ROWS
    }

    /// Returns the elements per share. The shares of the last ranks may be incomplete.
    #[must_use]
    pub const fn share(&self) -> usize {
        self.records * self.rows * self.row
    }

    /// Returns the actual number of elements of a rank's share.
    #[must_use]
    pub fn count(&self, card: usize) -> usize {
        self.elems.saturating_sub(card * self.share()).min(self.share())
    }

    /// Returns the actual number of elements of each row in the shares of some ranks.
    #[must_use]
    pub fn row_counts(&self, cards: Range<usize>) -> Vec<usize> {
        let of_share = self.records * self.rows;
        let rows = cards.start * of_share..cards.end * of_share;
        rows.map(|row| self.elems.saturating_sub(row * self.row).min(self.row)).collect()
    }

    /// Returns the bytes of the signs of a record.
    #[must_use]
    pub const fn sign_bytes(&self) -> usize {
        self.rows * self.row / 8
    }

    /// Returns the bytes of one record.
    #[must_use]
    pub const fn record_bytes(&self) -> usize {
        self.sign_bytes() + self.rows * size_of::<f32>()
    }

    /// Returns the compressed bytes of a share.
    #[must_use]
    pub const fn share_bytes(&self) -> usize {
        self.records * self.record_bytes()
    }
}

impl Compression {
    /// Returns how many of `elems` elements a rank sends.
    #[must_use]
    pub fn kept(share: f64, elems: usize) -> usize {
        ((elems as f64 * share).round() as usize).clamp(1, elems.max(1))
    }

    /// Bytes of a value (f32) and its index (i32).
    pub const PLACED_BYTES: usize = size_of::<f32>() + size_of::<i32>();

    /// Returns the bytes that each rank sends, and receives, for `elems` elements over `cards`
    /// ranks.
    #[must_use]
    pub fn wire_bytes(&self, elems: usize, cards: usize) -> usize {
        match self {
            Self::OneBit => 2 * (cards - 1) * Dealt::new(elems, cards).share_bytes(),
            Self::TopK { share } => (cards - 1) * Self::kept(*share, elems) * Self::PLACED_BYTES,
        }
    }

    /// Returns whether the compressed data of all ranks has fewer elements than the sum. Otherwise
    /// compression is pointless.
    #[must_use]
    pub fn compresses(&self, cards: usize) -> bool {
        match self {
            Self::OneBit => true,
            Self::TopK { share } => share * (cards as f64) < 1.0,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneBit => f.write_str("onebit"),
            Self::TopK { share } => write!(f, "topk={share:?}"),
        }
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> Self {
        compression.to_string()
    }
}

impl TryFrom<String> for Compression {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem =
            || format!("`{text}` is none of onebit and topk=SHARE, with a share above 0 and at most 1");
        match text.split_once('=') {
            None if text == "onebit" => Ok(Self::OneBit),
            Some(("topk", share)) => match share.parse() {
                Ok(share) if share > 0.0 && share <= 1.0 => Ok(Self::TopK { share }),
                _ => Err(problem()),
            },
            _ => Err(problem()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_a_sixteenth_of_f16_and_the_greatest_are_as_many_as_their_share() {
        let (elems, cards) = (1 << 20, 8);
        let of_f16 = 2 * (cards - 1) * (elems / cards) * 2;
        let magnitudes = 2 * (cards - 1) * (elems / cards / 1024) * size_of::<f32>();
        assert_eq!(Compression::OneBit.wire_bytes(elems, cards), of_f16 / 16 + magnitudes);
        assert_eq!(
            Compression::OneBit.wire_bytes(1 << 12, cards),
            2 * (cards - 1) * (512 / 8 + size_of::<f32>())
        );
        let top = Compression::TopK { share: 0.25 };
        assert_eq!(top.wire_bytes(100, 3), 2 * 25 * 8);
        assert_eq!(top.wire_bytes(1, 3), 2 * 8);
    }

    #[test]
    fn shares_are_all_elements_once() {
        let large = [(1 << 17, 2), ((1 << 17) + 1, 2), (1_000_003, 3), ((1 << 21) - 5, 31)];
        for (elems, cards) in [(1, 2), (31, 3), (64, 2), (65, 2), (1000, 7), (96, 8)].into_iter().chain(large)
        {
            let dealt = Dealt::new(elems, cards);
            assert_eq!(
                (0..cards).map(|card| dealt.count(card)).sum::<usize>(),
                elems,
                "{elems} over {cards}"
            );
            for card in 0..cards {
                let of_rows: usize = dealt.row_counts(card..card + 1).iter().sum();
                assert_eq!(of_rows, dealt.count(card), "{elems} over {cards}, card {card}");
            }
            assert_eq!(dealt.is_in_rows(), elems >= 1 << 17, "{elems} over {cards}");
            assert!(dealt.row.is_multiple_of(32) && dealt.record_bytes().is_multiple_of(4));
            assert!(!dealt.is_in_rows() || dealt.record_bytes().is_multiple_of(32));
        }
    }

    #[test]
    fn texts_parse_to_what_was_printed() {
        for compression in [Compression::OneBit, Compression::TopK { share: 0.01 }] {
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        for text in ["", "topk", "topk=0", "topk=1.5", "topk=NaN", "onebit=1"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}
