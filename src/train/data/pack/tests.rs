//! Tests of the borders of samples and documents, and of the completeness of an epoch.

use std::path::{Path, PathBuf};

use proptest::prelude::{ProptestConfig, any};
use proptest::{prop_assert, prop_assert_eq, proptest};
use tempfile::TempDir;

use super::super::indexed::{IGNORE, TokenIndex, TokenType, bin_path, idx_path};
use super::super::source::CorpusSource;
use super::*;

/// Writes documents. `ignore` has 1 for each token with a label of weight zero.
pub(in super::super) fn write(prefix: &Path, documents: &[&[i32]], ignore: Option<&[u8]>) -> CorpusSource {
    let lengths: Vec<i32> = documents.iter().map(|document| i32::try_from(document.len()).unwrap()).collect();
    let pair = |prefix: &Path, dtype, bytes: Vec<u8>| {
        let mut idx = Vec::new();
        TokenIndex::of_documents(dtype, lengths.clone()).write(&mut idx).unwrap();
        std::fs::write(idx_path(prefix), idx).unwrap();
        std::fs::write(bin_path(prefix), bytes).unwrap();
    };
    pair(prefix, TokenType::I32, documents.concat().into_iter().flat_map(i32::to_le_bytes).collect());
    if let Some(ignore) = ignore {
        pair(Path::new(&format!("{}{IGNORE}", prefix.display())), TokenType::U8, ignore.to_vec());
    }
    CorpusSource::Indexed { prefix: prefix.to_path_buf() }
}

pub(in super::super) fn options(
    sources: Vec<CorpusSource>,
    sequence: usize,
    global_batch: usize,
) -> DataOptions {
    DataOptions { sources, sequence, global_batch, seed: 5, vocabulary: 100, steps: 10, skip_bad_lines: 0 }
}

fn packed(folder: &TempDir, files: &[&[&[i32]]], sequence: usize, global_batch: usize) -> PackedCorpus {
    let prefix = |at: usize| -> PathBuf { folder.path().join(format!("part{at}")) };
    let sources =
        files.iter().enumerate().map(|(at, documents)| write(&prefix(at), documents, None)).collect();
    let options = options(sources, sequence, global_batch);
    PackedCorpus::new(Corpus::open(&options).unwrap(), &options).unwrap()
}

fn sample(packed: &PackedCorpus, sample: u64) -> Batch {
    let mut batch = Batch::with_room(0, 1, packed.sequence);
    packed.add_sample(sample, &mut batch).unwrap();
    batch
}

#[test]
fn a_sample_says_where_documents_end() {
    let folder = TempDir::new().unwrap();
    // Two files hold three documents and an empty document, with 10 tokens.
    let packed = packed(&folder, &[&[&[1, 2, 3], &[]], &[&[4, 5], &[6, 7, 8, 9, 10]]], 4, 1);
    assert_eq!(packed.samples, 3);
    let first = sample(&packed, 0);
    assert_eq!(first.tokens, [1, 2, 3, 4, 5]);
    assert_eq!(first.documents, [0, 0, 0, 1]);
    assert_eq!(first.positions, [0, 1, 2, 0]);
    assert_eq!(first.ignore, [0, 0, 1, 0]);
    let second = sample(&packed, 1);
    assert_eq!(second.tokens, [5, 6, 7, 8, 9]);
    assert_eq!(second.documents, [0, 1, 1, 1]);
    assert_eq!(second.positions, [0, 0, 1, 2]);
    assert_eq!(second.ignore, [1, 0, 0, 0]);
    // The sample is padded with a separate document.
    let last = sample(&packed, 2);
    assert_eq!(last.tokens, [9, 10, 0, 0, 0]);
    assert_eq!(last.documents, [0, 0, 1, 1]);
    assert_eq!(last.positions, [0, 1, 0, 1]);
    assert_eq!(last.ignore, [0, 1, 1, 1]);
}

#[test]
fn a_sample_that_ends_with_the_data_is_not_filled_up() {
    let folder = TempDir::new().unwrap();
    let packed = packed(&folder, &[&[&[1, 2, 3, 4, 5]]], 2, 1);
    assert_eq!(packed.samples, 2);
    let last = sample(&packed, 1);
    assert_eq!((last.tokens, last.ignore), (vec![3, 4, 5], vec![0, 0]));
}

#[test]
fn labels_that_count_nothing_stay_so() {
    let folder = TempDir::new().unwrap();
    let source = write(&folder.path().join("a"), &[&[1, 2, 3, 4, 5]], Some(&[1, 1, 0, 1, 0]));
    let options = options(vec![source], 4, 1);
    let packed = PackedCorpus::new(Corpus::open(&options).unwrap(), &options).unwrap();
    // The flag of a token is the flag of the label at the position before.
    assert_eq!(sample(&packed, 0).ignore, [1, 0, 1, 0]);
    assert!(packed.corpus.has_ignored());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The documents of an epoch can be assembled from its samples in any order.
    #[test]
    fn every_token_is_a_label_once(
        lengths in proptest::collection::vec(0_usize..12, 1..12),
        sequence in 1_usize..9,
        seed in any::<u64>(),
    ) {
        let mut next = 0;
        let documents: Vec<Vec<i32>> = lengths.iter().map(|length| {
            next += i32::try_from(*length).unwrap();
            (next - i32::try_from(*length).unwrap()..next).collect()
        }).collect();
        let total = usize::try_from(next).unwrap();
        if total <= sequence {
            return Ok(());
        }
        let folder = TempDir::new().unwrap();
        let parts: Vec<&[i32]> = documents.iter().map(Vec::as_slice).collect();
        let source = write(&folder.path().join("a"), &parts, None);
        let options = DataOptions { seed, vocabulary: 200, ..options(vec![source], sequence, 1) };
        let packed = PackedCorpus::new(Corpus::open(&options).unwrap(), &options).unwrap();
        let mut labels = Vec::new();
        for step in 0..packed.samples {
            let batch = packed.batch(step).unwrap();
            for at in 0..sequence {
                let (token, label) = (batch.tokens[at], batch.tokens[at + 1]);
                if batch.ignore[at] == 0 {
                    prop_assert_eq!(label, token + 1);
                    labels.push(label);
                }
                // The number of earlier tokens in the same document equals the token's position.
                let seen = (0..at).filter(|before| batch.documents[*before] == batch.documents[at]).count();
                prop_assert_eq!(i32::try_from(seen).unwrap(), batch.positions[at]);
            }
        }
        labels.sort_unstable();
        let expected: Vec<i32> = documents.iter().filter(|document| !document.is_empty()).flat_map(|document| document[1..].to_vec()).collect();
        prop_assert_eq!(labels, expected);
    }

    #[test]
    fn samples_of_an_epoch_are_all_of_them(seed in any::<u64>(), global_batch in 1_usize..7) {
        let folder = TempDir::new().unwrap();
        let ids: Vec<i32> = (0..60).collect();
        let source = write(&folder.path().join("a"), &[&ids], None);
        let options = DataOptions { seed, ..options(vec![source], 3, global_batch) };
        let packed = PackedCorpus::new(Corpus::open(&options).unwrap(), &options).unwrap();
        prop_assert_eq!(packed.samples, 20);
        // Three epochs. Their borders are anywhere within the steps.
        let drawn: Vec<u64> = (0..60).map(|at| packed.sample(at / global_batch as u64, at % global_batch as u64)).collect();
        for epoch in drawn.chunks(20) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        }
        prop_assert!(drawn[..20] != drawn[20..40]);
    }
}

#[test]
fn too_little_data_is_refused() {
    let folder = TempDir::new().unwrap();
    let source = write(&folder.path().join("a"), &[&[1, 2, 3], &[4]], None);
    let options = options(vec![source], 4, 1);
    let message = PackedCorpus::new(Corpus::open(&options).unwrap(), &options).unwrap_err().to_string();
    assert!(
        message.starts_with("all data: shorter than a sequence: expected at least 5 tokens, the sequence and one more, found 4 in 2 documents"),
        "{message}"
    );
}

#[test]
fn tokens_beyond_the_vocabulary_say_where_they_are() {
    let folder = TempDir::new().unwrap();
    let sources = vec![
        write(&folder.path().join("a"), &[&[1, 2]], None),
        write(&folder.path().join("b"), &[&[], &[3, 100], &[-1]], None),
    ];
    let message = Corpus::open(&options(sources, 4, 1))
        .unwrap_err()
        .to_string()
        .replace(&folder.path().display().to_string(), "DIR");
    assert_eq!(
        message,
        "DIR/b.bin: document 1, token 1: token beyond the vocabulary: expected ids below 100, found 100\n\
         DIR/b.bin: document 2, token 0: token beyond the vocabulary: expected ids below 100, found -1"
    );
}

#[test]
fn a_file_that_changes_later_is_found_out() {
    let folder = TempDir::new().unwrap();
    let packed = packed(&folder, &[&[&[1, 2, 3, 4, 5, 6]]], 5, 1);
    let bin = folder.path().join("part0.bin");
    let mut bytes = std::fs::read(&bin).unwrap();
    bytes[8] = 200;
    std::fs::write(&bin, &bytes).unwrap();
    let message = packed.batch(3).unwrap_err().to_string();
    assert!(
        message.starts_with("step 3: ") && message.contains("part0.bin: document 0, token 2: token beyond"),
        "{message}"
    );
    std::fs::write(&bin, &bytes[..20]).unwrap();
    let message = packed.batch(4).unwrap_err().to_string();
    assert!(
        message.starts_with("step 4: ") && message.contains("part0.bin: tokens 0 to 6: cannot be read"),
        "{message}"
    );
}

#[test]
fn wrong_files_are_cut_short() {
    let folder = TempDir::new().unwrap();
    let ids = vec![500; 5000];
    let source = write(&folder.path().join("a"), &[&ids], None);
    let lines = Corpus::open(&options(vec![source], 4, 1)).unwrap_err().lines();
    assert_eq!(lines.len(), 12, "{lines:?}");
    assert!(
        lines[11].contains("1000 tokens are beyond the vocabulary; the rest was not read"),
        "{}",
        lines[11]
    );
}
