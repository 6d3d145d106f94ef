//! Tests of resumed runs, the end of the thread, and the checks of a checkpoint's data.

use std::fs;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use super::super::pack::tests::{options, write};
use super::super::source::CorpusSource;
use super::*;

fn documents(folder: &TempDir) -> CorpusSource {
    let ids: Vec<Vec<i32>> =
        (0..12).map(|length| (0..length * 3).map(|id| (length + id) % 100).collect()).collect();
    write(&folder.path().join("corpus"), &ids.iter().map(Vec::as_slice).collect::<Vec<_>>(), None)
}

fn all(options: &DataOptions, first_step: u64) -> Vec<Batch> {
    let mut loader = Loader::start(options, first_step).unwrap();
    let batches: Vec<Batch> = (first_step..options.steps).map(|_| loader.next().unwrap()).collect();
    assert!(matches!(loader.next(), Err(Error::Finished { steps }) if steps == options.steps));
    batches
}

fn refused(options: &DataOptions) -> String {
    match Loader::start(options, 0) {
        Err(Error::Refused(problems)) => problems.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_that_goes_on_sees_what_it_would_have_seen() {
    let folder = TempDir::new().unwrap();
    let options = DataOptions { steps: 25, ..options(vec![documents(&folder)], 7, 3) };
    let whole = all(&options, 0);
    assert_eq!(whole.iter().map(|batch| batch.step).collect::<Vec<_>>(), (0..25).collect::<Vec<_>>());
    for first in [1, 7, 24, 25] {
        assert_eq!(all(&options, first), whole[usize::try_from(first).unwrap()..], "from step {first}");
    }
    let other = DataOptions { seed: options.seed + 1, ..options };
    assert_ne!(all(&other, 0), whole);
}

#[test]
fn the_state_is_that_of_the_batch_that_comes_next() {
    let folder = TempDir::new().unwrap();
    let options = options(vec![documents(&folder)], 7, 3);
    let mut loader = Loader::start(&options, 4).unwrap();
    assert_eq!(loader.state().step, 4);
    loader.next().unwrap();
    let state = loader.state();
    assert_eq!((state.step, state.seed, state.sequence, state.global_batch), (5, 5, 7, 3));
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<LoaderState>(&text).unwrap(), state);
    let next = loader.next().unwrap();
    let mut resumed = Loader::start(&options, state.step).unwrap();
    resumed.state().check_continues(&state).unwrap();
    assert_eq!(resumed.next().unwrap(), next);
}

#[test]
fn other_data_is_noticed_all_at_once() {
    let (folder, moved) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let base = options(vec![documents(&folder)], 7, 3);
    let state = |options: DataOptions| Loader::start(&options, 0).unwrap().state();
    let saved = state(base.clone());
    let same = DataOptions { sources: vec![documents(&moved)], ..base };
    state(same).check_continues(&saved).unwrap();
    let twice = DataOptions { sources: vec![base.sources[0].clone(), base.sources[0].clone()], ..base };
    let lines = state(twice).check_continues(&saved).unwrap_err().lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("data: digest of the files: not the data that the checkpoint was trained on"),
        "{lines:?}"
    );
    let other = DataOptions { seed: 6, sequence: 8, global_batch: 2, ..base.clone() };
    assert_eq!(state(other).check_continues(&saved).unwrap_err().lines().len(), 3);
    // The names and sizes are the same, but one token differs.
    let bin = moved.path().join("corpus.bin");
    let mut bytes = fs::read(&bin).unwrap();
    bytes[0] ^= 1;
    fs::write(&bin, bytes).unwrap();
    let changed =
        DataOptions { sources: vec![CorpusSource::Indexed { prefix: moved.path().join("corpus") }], ..base };
    assert!(state(changed).check_continues(&saved).is_err());
}

#[test]
fn a_loader_that_is_dropped_ends_its_thread() {
    let folder = TempDir::new().unwrap();
    let options = DataOptions { steps: u64::MAX, ..options(vec![documents(&folder)], 7, 3) };
    let mut loader = Loader::start(&options, 0).unwrap();
    loader.next().unwrap();
    // Dropping joins the thread, which otherwise makes batches forever.
    drop(loader);
}

#[test]
fn a_failure_on_the_thread_comes_with_its_step_and_is_the_last_thing() {
    let folder = TempDir::new().unwrap();
    let options = DataOptions { steps: 1000, ..options(vec![documents(&folder)], 7, 3) };
    let mut loader = Loader::start(&options, 0).unwrap();
    fs::write(folder.path().join("corpus.bin"), []).unwrap();
    let failed = (0..1000).find_map(|_| loader.next().err()).unwrap();
    let step = loader.state().step;
    assert!(matches!(&failed, Error::Read { step: at, .. } if *at == step), "{failed}");
    assert!(matches!(loader.next(), Err(Error::Ended)));
}

#[test]
fn options_and_files_are_refused_together() {
    let absent = CorpusSource::Indexed { prefix: "absent".into() };
    let ready = CorpusSource::Tokens { path: "ready.safetensors".into() };
    let message = refused(&options(vec![absent.clone(), ready], 0, 0));
    for part in [
        "sequence: nothing to train on",
        "global batch: nothing",
        "absent.idx: cannot be read",
        "give this file alone",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(refused(&options(vec![], 4, 1)), "data: no files");
    // Problems of one file are reported together with problems of the next file.
    let folder = TempDir::new().unwrap();
    let beyond = write(&folder.path().join("a"), &[&[7, 500]], None);
    let message = refused(&options(vec![absent, beyond], 4, 1));
    assert!(message.contains("absent.bin: cannot be read") && message.contains("found 500"), "{message}");
}

#[test]
fn steps_of_which_no_label_counts_are_known_before() {
    let folder = TempDir::new().unwrap();
    let ids: Vec<i32> = (0..17).collect();
    let mut ignore = [0; 17];
    ignore[5..9].fill(1);
    let source = write(&folder.path().join("a"), &[&ids], Some(&ignore));
    let small = DataOptions { steps: 4, ..options(vec![source], 4, 1) };
    // One of the four samples of the epoch is the sample with ignored labels.
    let message = refused(&small);
    assert!(
        message.starts_with("step ") && message.contains(": no label of the whole batch counts"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    all(&DataOptions { global_batch: 2, ..small }, 0);
    // Documents of one token have no label that counts, even if the data ignores no label.
    let single = write(&folder.path().join("b"), &[&[1], &[2], &[3], &[4], &[5]], None);
    let mut loader = Loader::start(&options(vec![single], 4, 1), 0).unwrap();
    assert_eq!(
        loader.next().unwrap_err().to_string().split(';').next(),
        Some("step 0: no label of the whole batch counts")
    );
}

/// Writes a file of named tensors.
fn safetensors(path: &Path, tensors: &[(&str, Dtype, Vec<usize>, Vec<u8>)]) -> CorpusSource {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    CorpusSource::Tokens { path: path.to_path_buf() }
}

fn tokens(ids: impl IntoIterator<Item = i32>) -> Vec<u8> {
    ids.into_iter().flat_map(i32::to_le_bytes).collect()
}

#[test]
fn ready_batches_are_taken_as_they_stand() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.safetensors");
    let ids = ("tokens", Dtype::I32, vec![3, 2, 4], tokens(0..24));
    let ignore = ("ignore", Dtype::U8, vec![3, 2, 3], (0..18).map(|at| u8::from(at % 4 == 1)).collect());
    let source = safetensors(&path, &[ids.clone(), ignore]);
    let run = DataOptions { steps: 3, ..options(vec![source], 3, 2) };
    let batches = all(&run, 0);
    assert_eq!(batches[1].tokens, (8..16).collect::<Vec<i32>>());
    assert_eq!(batches[1].ignore, [0, 0, 0, 1, 0, 0]);
    assert_eq!(
        (batches[1].positions.as_slice(), batches[1].documents.as_slice()),
        (&[0, 1, 2, 0, 1, 2][..], &[0; 6][..])
    );
    assert_eq!(batches[1].counted_labels(), 5);
    assert_eq!(all(&run, 2), batches[2..]);
    safetensors(&path, &[ids]);
    assert_eq!(all(&run, 0)[1].ignore, [0; 6]);
}

#[test]
fn ready_batches_of_another_run_are_refused_all_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.safetensors");
    let refused = |source: CorpusSource, sequence, global_batch| {
        let run = DataOptions { steps: 5, vocabulary: 20, ..options(vec![source], sequence, global_batch) };
        refused(&run).replace(&format!("{}/", folder.path().display()), "")
    };
    let source = safetensors(&path, &[("tokens", Dtype::I32, vec![3, 2, 4], tokens(0..24))]);
    let found = refused(source, 4, 3);
    for (line, expected) in found.lines().zip([
        "data.safetensors: tokens: fewer steps than the run has: expected at least 5, found 3",
        "data.safetensors: tokens: another global batch than the run's: expected 3, found 2",
        "data.safetensors: tokens: another length than the run's: expected sequence + 1 = 5, found 4",
    ]) {
        assert!(line.starts_with(expected), "{line}");
    }
    assert_eq!(found.lines().count(), 3, "{found}");

    let wrong = [
        ("tokens", Dtype::I64, vec![5, 1, 4], vec![0; 160]),
        ("ignore", Dtype::I32, vec![5, 1, 4], vec![0; 80]),
        ("labels", Dtype::U8, vec![1], vec![0]),
    ];
    let found = refused(safetensors(&path, &wrong), 3, 1);
    for expected in [
        "data.safetensors: labels: unexpected tensor: expected tokens, and perhaps ignore",
        "data.safetensors: tokens: wrong element type: expected I32, found I64",
        "data.safetensors: ignore: wrong element type: expected U8, found I32",
        "data.safetensors: ignore: does not fit the tokens: expected [5,1,3], found [5,1,4]",
    ] {
        assert!(found.lines().any(|line| line.starts_with(expected)), "{expected}: {found}");
    }
    assert_eq!(found.lines().count(), 4, "{found}");

    let ids = tokens((0..20).map(|id| {
        if id == 13 {
            20
        } else if id == 18 {
            -1
        } else {
            id
        }
    }));
    let found = refused(safetensors(&path, &[("tokens", Dtype::I32, vec![5, 1, 4], ids)]), 3, 1);
    assert_eq!(
        found,
        "data.safetensors: step 3, sample 0, token 1: token beyond the vocabulary: expected ids below 20, found 20\n\
         data.safetensors: step 4, sample 0, token 2: token beyond the vocabulary: expected ids below 20, found -1"
    );

    assert!(
        refused(safetensors(&path, &[("ignore", Dtype::U8, vec![1], vec![0])]), 3, 1)
            .contains("tokens: missing tensor")
    );
    assert!(
        refused(safetensors(&path, &[("tokens", Dtype::I32, vec![20], tokens(0..20))]), 3, 1)
            .contains("three dims")
    );
    fs::write(&path, "no header").unwrap();
    assert!(
        refused(CorpusSource::Tokens { path: path.clone() }, 3, 1).contains("data.safetensors: truncated")
    );
    fs::remove_file(&path).unwrap();
    assert!(refused(CorpusSource::Tokens { path }, 3, 1).contains("data.safetensors: cannot be read"));
}
