//! A digest of data, stored in checkpoints: different data has a different digest, except by
//! chance.
//!
//! Input: names, sizes and bytes. Output: 64 bits, the same on every machine and in every version
//! of this program. The hash is FNV-1a. It detects mistakes, not attacks.

/// The hash of all data added so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes and their number. The number makes the borders between pieces part of the digest.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.add_bytes(&(bytes.len() as u64).to_le_bytes());
        self.add_bytes(bytes);
    }

    /// Adds the eight bytes of a number.
    pub(super) fn add_number(&mut self, number: u64) {
        self.add_bytes(&number.to_le_bytes());
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Returns the digest as sixteen hexadecimal digits.
    pub(super) fn text(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_hash() {
        let mut digest = Digest::new();
        assert_eq!(digest.text(), "cbf29ce484222325");
        digest.add_bytes(b"foobar");
        assert_eq!(digest.text(), "85944171f73967e8");
    }

    #[test]
    fn where_a_piece_ends_matters() {
        let of = |pieces: [&[u8]; 2]| {
            let mut digest = Digest::new();
            pieces.iter().for_each(|piece| digest.add(piece));
            digest.text()
        };
        assert_ne!(of([b"ab", b"c"]), of([b"a", b"bc"]));
    }
}
