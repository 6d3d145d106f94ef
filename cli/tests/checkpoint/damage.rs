//! Tests that torn and altered checkpoints are never read as complete.

use std::fs;
use std::path::Path;

use ascend_tp::base::Diagnostics;
use ascend_tp::placement::Mesh;
use ascend_tp::train::checkpoint::Checkpoint;
use rand::RngExt;
use serde_json::json;

use super::random::{Run, seeded};
use crate::names;

fn run() -> Run {
    let mesh = Mesh::new(&[("dp", 2), ("tp", 2)]).unwrap();
    Run::placed(&mesh, &[("w", &[7, 5], "tp,dp"), ("m", &[7, 5], "dp*tp,_"), ("b", &[5], "_")])
}

/// Opens a checkpoint and reads all tensors.
fn used(path: &Path) -> Result<(), Diagnostics> {
    let checkpoint = Checkpoint::open(path)?;
    ["w", "m", "b"].iter().try_for_each(|name| checkpoint.read_whole(name).map(drop))
}

#[test]
fn a_file_that_is_torn_or_gone_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = run().save(folder.path(), 3, &json!({}));
    for name in names(checkpoint.path()) {
        let path = checkpoint.path().join(&name);
        let whole = fs::read(&path).unwrap();
        let longer = [whole.as_slice(), b"\0"].concat();
        for torn in [
            &whole[..0],
            &whole[..1],
            &whole[..8],
            &whole[..whole.len() / 2],
            &whole[..whole.len() - 1],
            &longer,
        ] {
            fs::write(&path, torn).unwrap();
            let message = used(checkpoint.path()).unwrap_err().to_string();
            assert!(message.contains(&*path.to_string_lossy()), "{message}");
            if name != "index.json" {
                let expected =
                    format!("torn or altered: expected {} bytes, found {} bytes", whole.len(), torn.len());
                assert!(message.contains(&expected), "{message}");
            }
            // A damaged checkpoint is not skipped for an older one.
            assert!(Checkpoint::latest(folder.path()).is_err());
        }
        fs::remove_file(&path).unwrap();
        let found = Checkpoint::latest(folder.path());
        if name == "index.json" {
            assert!(found.unwrap().is_none(), "without an index there is no checkpoint");
        } else {
            let message = found.unwrap_err().to_string();
            assert!(message.contains(&format!("{}: cannot be read: expected", path.display())), "{message}");
        }
        fs::write(&path, whole).unwrap();
        used(checkpoint.path()).unwrap();
    }
}

#[test]
fn every_damaged_file_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = run().save(folder.path(), 3, &json!({}));
    let path = |rank: usize| checkpoint.path().join(format!("rank-{rank:05}-of-00004.safetensors"));
    fs::remove_file(path(0)).unwrap();
    fs::write(path(2), "").unwrap();
    let message = Checkpoint::open(checkpoint.path()).unwrap_err().to_string();
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), 2, "{message}");
    assert!(lines[0].contains("rank-00000") && lines[1].contains("rank-00002"), "{message}");
}

#[test]
fn a_bit_that_flips_anywhere_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = run().save(folder.path(), 3, &json!({ "loss": 1.25 }));
    let mut random = seeded(5);
    for name in names(checkpoint.path()) {
        let path = checkpoint.path().join(&name);
        let whole = fs::read(&path).unwrap();
        for _ in 0..60 {
            let mut altered = whole.clone();
            altered[random.random_range(0..whole.len())] ^= 1 << random.random_range(0..8);
            fs::write(&path, altered).unwrap();
            let message = used(checkpoint.path()).unwrap_err().to_string();
            assert!(message.contains(&*path.to_string_lossy()), "{message}");
        }
        fs::write(&path, whole).unwrap();
    }
    // Only files that are read are verified, once.
    let last = checkpoint.path().join("rank-00003-of-00004.safetensors");
    let mut altered = fs::read(&last).unwrap();
    let end = altered.len() - 1;
    altered[end] ^= 1;
    fs::write(&last, altered).unwrap();
    let opened = Checkpoint::open(checkpoint.path()).unwrap();
    opened.read_whole("b").unwrap();
    let message = opened.read_whole("w").unwrap_err().to_string();
    assert!(
        message.contains("rank-00003-of-00004.safetensors: torn or altered: expected digest"),
        "{message}"
    );
    assert_eq!(opened.verify().unwrap_err().to_string(), message);
}

#[test]
fn files_of_another_run_are_not_taken_for_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let checkpoint = run().save(&one, 3, &json!({}));
    let mesh = Mesh::new(&[("dp", 2), ("tp", 2)]).unwrap();
    let changed = Run::placed(&mesh, &[("w", &[7, 5], "tp,dp"), ("m", &[7, 5], "dp*tp,_"), ("c", &[5], "_")]);
    let changed = changed.save(&other, 3, &json!({}));
    let file = "rank-00000-of-00004.safetensors";
    fs::copy(changed.path().join(file), checkpoint.path().join(file)).unwrap();
    let message = used(checkpoint.path()).unwrap_err().to_string();
    assert!(
        message.contains("rank-00000-of-00004.safetensors: torn or altered: expected digest"),
        "{message}"
    );
    assert!(message.contains("restore a copy, or continue from an earlier checkpoint"), "{message}");
}

#[test]
fn what_a_program_does_not_have_is_refused_not_converted() {
    use ascend_tp::base::{DType, Shape};
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = run().save(folder.path(), 3, &json!({}));
    let read = |name: &str, shape: [usize; 2], dtype| {
        let all = [0..shape[0], 0..shape[1]];
        checkpoint.read(name, &Shape::from(shape), dtype, &all).unwrap_err().to_string()
    };
    let other = "the checkpoint is of another model, optimizer or precision: resume with the options of the saved run";
    for (message, expected) in [
        (
            read("w", [5, 7], DType::F32),
            format!(
                "w: a different tensor than in the program: expected f32 [5,7], found f32 [7,5]; {other}"
            ),
        ),
        (read("w", [7, 5], DType::BF16), format!("expected bf16 [7,5], found f32 [7,5]; {other}")),
        (
            read("v", [7, 5], DType::F32),
            format!("v: missing tensor: expected f32 [7,5], found no tensor of this name; {other}"),
        ),
    ] {
        assert!(message.ends_with(&expected), "{message}");
    }
    let beyond =
        checkpoint.read("w", &Shape::from([7, 5]), DType::F32, &[0..8, 0..5]).unwrap_err().to_string();
    assert!(beyond.ends_with("w: ranges outside the tensor: expected [7,5], found 0..8,0..5"), "{beyond}");
}
