//! JSON objects with repeated keys.
//!
//! Input: bytes. Output: the entries of an object, in the order of the file.
//!
//! Invariant: no entry is lost, so that the caller can report repeated names. A map would hide
//! them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Keys and values of one object, in order.
#[derive(Debug)]
pub(super) struct Entries<V>(pub(super) Vec<(String, V)>);

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> Entries<V> {
    /// Returns the keys that occur more than once, sorted and without duplicates.
    pub(super) fn repeated(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let mut repeated: Vec<&str> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        repeated.dedup();
        repeated
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
    type Value = Entries<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::Entries;

    #[test]
    fn repeated_keys_are_kept_and_named() {
        let entries: Entries<u32> =
            serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3, "b": 4, "c": 5}"#).unwrap();
        assert_eq!(entries.0.len(), 5);
        assert_eq!(entries.repeated(), ["b"]);
    }
}
