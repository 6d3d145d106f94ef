//! Tests of the format byte by byte, and of every kind of broken file.

use std::path::Path;

use proptest::prelude::any;
use proptest::{prop_assert_eq, proptest};
use tempfile::TempDir;

use super::*;

/// Returns an index of two documents. The second document has two sequences.
fn index() -> TokenIndex {
    TokenIndex { dtype: TokenType::U16, lengths: vec![3, 1, 2], documents: vec![0, 1, 3] }
}

fn written(index: &TokenIndex) -> Vec<u8> {
    let mut bytes = Vec::new();
    index.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_index_has_the_documented_bytes() {
    #[rustfmt::skip]
    let expected: Vec<u8> = [
        &b"MMIDIDX\0\0"[..],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[8],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0], &[6, 0, 0, 0, 0, 0, 0, 0], &[8, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0],
    ].concat();
    assert_eq!(written(&index()), expected);
    assert_eq!(TokenIndex::parse("a.idx", &expected, 12).unwrap(), index());
    assert_eq!(index().starts(), [0, 3, 6]);
}

#[test]
fn element_types_are_those_of_the_format() {
    let codes: Vec<(&str, u8, usize)> =
        TYPES.iter().map(|(_, code, name, bytes)| (*name, *code, *bytes)).collect();
    assert_eq!(
        codes,
        [("u8", 1, 1), ("i8", 2, 1), ("i16", 3, 2), ("i32", 4, 4), ("i64", 5, 8), ("u16", 8, 2)]
    );
    for (dtype, _, name, _) in TYPES {
        assert_eq!((dtype.name(), serde_json::to_value(dtype).unwrap()), (name, name.into()));
    }
    assert_eq!(TokenType::of_vocabulary(65_499), TokenType::U16);
    assert_eq!(TokenType::of_vocabulary(65_500), TokenType::I32);
}

proptest! {
    #[test]
    fn tokens_come_back(ids in proptest::collection::vec(any::<u16>(), 0..50)) {
        for dtype in [TokenType::U16, TokenType::I32, TokenType::I64] {
            let (mut bytes, mut found) = (Vec::new(), Vec::new());
            ids.iter().for_each(|id| dtype.write(u32::from(*id), &mut bytes));
            dtype.read(&bytes, &mut found);
            prop_assert_eq!(found, ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_index_comes_back(lengths in proptest::collection::vec(0..1000_i32, 0..40)) {
        let index = TokenIndex::of_documents(TokenType::I32, lengths.clone());
        let tokens: u64 = lengths.iter().map(|length| u64::from(length.unsigned_abs())).sum();
        prop_assert_eq!(TokenIndex::parse("a.idx", &written(&index), 4 * tokens).unwrap(), index);
    }
}

#[test]
fn signs_of_stored_tokens_are_kept() {
    let mut found = Vec::new();
    TokenType::I8.read(&[0xff], &mut found);
    TokenType::I16.read(&[0xfe, 0xff], &mut found);
    TokenType::U8.read(&[0xff], &mut found);
    assert_eq!(found, [-1, -2, 255]);
}

fn refused(bytes: &[u8], bin_bytes: u64, expected: &[&str]) {
    let lines = TokenIndex::parse("a.idx", bytes, bin_bytes).unwrap_err().lines();
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.contains(expected), "expected {expected}: {line}");
    }
}

#[test]
fn broken_indexes_say_what_is_wrong() {
    let good = written(&index());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    refused(&good[..33], 12, &["a.idx: cut off: expected at least 34 bytes, found 33 bytes"]);
    refused(
        &with(0, b'X'),
        12,
        &["a.idx: no index of Megatron: expected it to begin with MMIDIDX, found XMIDIDX"],
    );
    let mut several = with(9, 2);
    several[17] = 7;
    refused(
        &several[..good.len() - 1],
        12,
        &[
            "another version of the format: expected 1, found 2",
            "token ids are whole numbers: expected one of 1 (u8), 2 (i8), 3 (i16), 4 (i32), 5 (i64), 8 (u16), found 7 (f32)",
            "its counts do not fit its length: expected 94 bytes for 3 sequences and 3 entries",
        ],
    );
    refused(&[good.clone(), vec![0; 3]].concat(), 12, &["found 97 bytes; it has a mode for each sequence"]);
    let mut huge = good.clone();
    huge[18..26].fill(0xff);
    refused(&huge, 12, &["its counts do not fit its length"]);
    refused(
        &good,
        10,
        &["its lengths do not fit the .bin: expected a .bin of 12 bytes for 6 tokens in u16, found 10 bytes"],
    );
    refused(&with(37, 0xff), 12, &["a.idx: sequence 0: a length below 0: found -16777213"]);
    refused(
        &with(54, 7),
        12,
        &["a.idx: sequence 1: does not begin where the one before ends: expected 6, found 7"],
    );
    refused(&with(70, 1), 12, &["a.idx: document index: begins with another sequence: expected 0, found 1"]);
    refused(
        &with(78, 4),
        12,
        &["a.idx: document 1: ends before it begins: expected an end from sequence 4 on, found 3"],
    );
    refused(&with(86, 2), 12, &["a.idx: document index: ends with another sequence: expected 3, found 2"]);
    let mut none = written(&TokenIndex::of_documents(TokenType::U16, Vec::new()));
    none.truncate(34);
    none[26] = 0;
    refused(
        &none,
        0,
        &["begins with another sequence: expected 0, found nothing", "ends with another sequence"],
    );
}

/// Files of a prefix `a`.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn open(folder: &Path) -> Result<IndexedFile, String> {
    let text = |problems: Diagnostics| problems.to_string().replace(&format!("{}/", folder.display()), "");
    IndexedFile::open(&folder.join("a")).map_err(text)
}

#[test]
fn any_range_of_the_tokens_is_read() {
    let idx = written(&index());
    let bin: Vec<u8> = (10_u16..16).flat_map(u16::to_le_bytes).collect();
    let plain = folder(&[("a.idx", &idx), ("a.bin", &bin)]);
    let file = open(plain.path()).unwrap();
    let (mut tokens, mut ignore) = (Vec::new(), Vec::new());
    file.read(1..4, &mut tokens).unwrap();
    file.read_ignored(1..4, &mut ignore).unwrap();
    assert_eq!((tokens, ignore, file.has_ignored()), (vec![11, 12, 13], vec![0, 0, 0], false));
    assert_eq!(file.read(5..7, &mut Vec::new()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);

    let marks = TokenIndex { dtype: TokenType::U8, ..index() };
    let masked = folder(&[
        ("a.idx", &idx),
        ("a.bin", &bin),
        ("a.ignore.idx", &written(&marks)),
        ("a.ignore.bin", &[1, 0, 0, 1, 1, 0]),
    ]);
    let other = open(masked.path()).unwrap();
    let mut ignore = Vec::new();
    other.read_ignored(2..5, &mut ignore).unwrap();
    assert_eq!((ignore, other.has_ignored()), (vec![0, 1, 1], true));
    assert_ne!(file.digest().text(), other.digest().text());
    let again = folder(&[("a.idx", &idx), ("a.bin", &bin)]);
    assert_eq!(
        file.digest().text(),
        open(again.path()).unwrap().digest().text(),
        "the folder does not matter"
    );
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let idx = written(&index());
    let message = open(folder(&[]).path()).unwrap_err();
    assert!(message.starts_with("a.idx: cannot be read: found No such file"), "{message}");
    assert!(message.contains("\na.bin: cannot be read: found No such file"), "{message}");
    let message =
        open(folder(&[("a.idx", &idx), ("a.bin", &[0; 12]), ("a.ignore.bin", &[0; 6])]).path()).unwrap_err();
    assert!(message.starts_with("a.ignore.idx: cannot be read"), "{message}");
    let other = TokenIndex::of_documents(TokenType::U8, vec![6]);
    let files: [(&str, &[u8]); 4] =
        [("a.idx", &idx), ("a.bin", &[0; 12]), ("a.ignore.idx", &written(&other)), ("a.ignore.bin", &[0; 6])];
    let message = open(folder(&files).path()).unwrap_err();
    assert!(
        message.contains(
            "a.ignore.idx: is not of the same documents as the tokens: expected u8 with 6 tokens in 3 sequences"
        ),
        "{message}"
    );
    let message = open(folder(&[("a.idx", &idx[..40]), ("a.bin", &[0; 12])]).path()).unwrap_err();
    assert!(message.starts_with("a.idx: its counts do not fit its length"), "{message}");
}
