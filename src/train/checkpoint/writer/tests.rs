//! Checkpoints on stopping machines, full disks and with ending processes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;

use crossbeam_channel::bounded;
use serde_json::json;

use super::super::folder::stored;
use super::super::read::Checkpoint;
use super::super::storage::Output;
use super::super::storage::tests::Stopping;
use super::*;
use crate::base::{AxisId, DType, Id, Shape};
use crate::placement::shard::runs::Runs;
use crate::placement::{Layout, Mesh};
use crate::world::{MeetingPlace, World};

fn two() -> Sharding {
    let mesh = Mesh::new(&[("tp", 2)]).unwrap();
    let axis = AxisId::from_index(0);
    let tensor = |name: &str, sizes: &[usize], dtype, dim: Option<usize>| {
        let layout = Layout::replicated(sizes.len());
        let layout = dim.map_or(layout.clone(), |dim| layout.sharded(dim, axis));
        ShardedTensor::placed(name, &Shape::from(sizes), dtype, &mesh, &layout)
    };
    let tensors = vec![
        tensor("rows", &[5, 3], DType::F32, Some(0)),
        tensor("columns", &[3, 5], DType::BF16, Some(1)),
        tensor("one", &[1, 4], DType::F32, Some(0)),
        tensor("whole", &[7], DType::F32, None),
        tensor("step", &[], DType::I64, None),
    ];
    Sharding::new(mesh, tensors).unwrap()
}

/// Returns numbers that differ by seed.
fn wholes(sharding: &Sharding, seed: u8) -> BTreeMap<String, Vec<u8>> {
    let bytes = |tensor: &ShardedTensor| {
        let count = tensor.shape.elems() * tensor.dtype.size_bytes();
        (0..count).map(|at| (at as u8).wrapping_mul(7).wrapping_add(seed)).collect()
    };
    sharding.tensors().iter().map(|tensor| (tensor.name.clone(), bytes(tensor))).collect()
}

fn cut(whole: &[u8], tensor: &ShardedTensor, part: &[Range<usize>]) -> Vec<u8> {
    let size = tensor.dtype.size_bytes();
    let runs = Runs::of_part(&tensor.shape, part);
    let length = runs.length();
    runs.flat_map(|start| whole[start * size..(start + length) * size].to_vec()).collect()
}

fn parts(writer: &Writer, seed: u8) -> Vec<PartBytes> {
    let wholes = wholes(&writer.sharding, seed);
    let of = |(rank, tensor, part): (usize, &ShardedTensor, &[Range<usize>])| PartBytes {
        rank,
        tensor: tensor.name.clone(),
        bytes: cut(&wholes[&tensor.name], tensor, part),
    };
    writer.parts().map(of).collect()
}

fn writer(storage: Arc<dyn Storage>, folder: &Path, keep: usize) -> Writer {
    Writer::on(storage, folder, NonZero::new(keep), two(), Arc::new(ProcessGroup::alone())).unwrap()
}

fn save(writer: &mut Writer, step: u64, seed: u8) -> Result<Saved, Error> {
    let parts = parts(writer, seed);
    writer.begin(step, json!({ "seed": seed }), parts).map(|before| assert_eq!(before, None))?;
    writer.finish().map(Option::unwrap)
}

/// Returns step and seed of the newest checkpoint, after checking every byte.
fn newest(folder: &Path) -> Option<(u64, u8)> {
    let checkpoint = Checkpoint::latest(folder).unwrap()?;
    checkpoint.verify().unwrap();
    let seed = checkpoint.index().state["seed"].as_u64().unwrap() as u8;
    for (name, bytes) in wholes(&two(), seed) {
        assert_eq!(checkpoint.read_whole(&name).unwrap().2, bytes, "{name}");
    }
    Some((checkpoint.index().step, seed))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn whatever_point_a_machine_stops_at_a_whole_checkpoint_is_there() {
    for next in [2, 1] {
        // Step 2 is new, and step 1 replaces the old checkpoint.
        let mut seen = Vec::new();
        for effects in 0.. {
            let folder = tempfile::tempdir().unwrap();
            save(&mut writer(Arc::new(Disk), folder.path(), 1), 1, 10).unwrap();
            let stopping = Stopping::after(effects);
            let saved = save(&mut writer(Arc::new(stopping), folder.path(), 1), next, 20);
            let found = newest(folder.path()).expect("one of the two is there");
            assert!(found == (1, 10) || found == (next, 20), "{found:?} after {effects} effects");
            seen.push(found.1);
            // The next run removes all remains.
            save(&mut writer(Arc::new(Disk), folder.path(), 1), 3, 30).unwrap();
            assert_eq!(
                (newest(folder.path()), names(folder.path())),
                (Some((3, 30)), vec!["step-00000003".into()])
            );
            if saved.is_ok() {
                assert_eq!(found, (next, 20));
                break;
            }
        }
        // Old checkpoints, then new ones, with one change.
        assert!(seen.is_sorted() && seen[0] == 10 && seen.len() > 20, "{seen:?}");
    }
}

#[test]
fn files_are_on_disk_before_the_name_and_the_name_before_others_go() {
    let folder = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), folder.path(), 1), 1, 10).unwrap();
    let machine = Stopping::after(usize::MAX);
    save(&mut writer(Arc::new(machine.clone()), folder.path(), 1), 2, 20).unwrap();
    let run = folder.path().file_name().unwrap().to_str().unwrap();
    let (one, two) = ("rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors");
    let mut expected = vec!["folder .step-00000002.partial".to_owned()];
    for file in [one, two, "index.json"] {
        expected.extend(["create", "write", "sync"].map(|what| format!("{what} {file}")));
    }
    expected.extend(
        [
            "sync .step-00000002.partial",
            "rename step-00000002",
            &format!("sync {run}"),
            "rename .step-00000001.removed",
        ]
        .map(str::to_owned),
    );
    let done = machine.done();
    assert_eq!(done[..expected.len()], expected);
    assert!(done[expected.len()..].iter().all(|effect| effect.starts_with("remove ")), "{done:?}");
}

#[test]
fn a_checkpoint_that_is_written_again_is_durable_before_the_old_one_goes() {
    let folder = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), folder.path(), 1), 1, 10).unwrap();
    let machine = Stopping::after(usize::MAX);
    save(&mut writer(Arc::new(machine.clone()), folder.path(), 1), 1, 20).unwrap();
    let done = machine.done();
    let exchange = done.iter().position(|effect| effect == "exchange step-00000001").unwrap();
    let run = folder.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(done[exchange + 1], format!("sync {run}"), "{done:?}");
    assert!(done[exchange + 2].starts_with("remove "), "{done:?}");
    assert_eq!(newest(folder.path()), Some((1, 20)));
}

/// Disk without space for the second rank's file.
#[derive(Debug)]
struct Full;

impl Storage for Full {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        Disk.create_folder(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        if path.to_string_lossy().contains("rank-00001") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Disk.create(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Disk.sync_folder(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        Disk.exchange(one, other)
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        Disk.remove_folder(path)
    }
}

#[test]
fn a_full_disk_is_said_by_the_next_call_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), folder.path(), 3), 1, 10).unwrap();
    let mut full = writer(Arc::new(Full), folder.path(), 3);
    let given = parts(&full, 20);
    full.begin(2, json!({}), given.clone()).unwrap();
    let error = full.begin(3, json!({}), given).unwrap_err().to_string();
    assert!(
        error.ends_with("rank-00001-of-00002.safetensors: cannot be written: found no storage space"),
        "{error}"
    );
    assert!(full.finish().unwrap().is_none(), "said once, and the next was not begun");
    assert_eq!((names(folder.path()), newest(folder.path())), (vec!["step-00000001".into()], Some((1, 10))));
}

#[test]
fn the_newest_stay_and_the_step_goes_on_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("a").join("run");
    let mut writer = writer(Arc::new(Disk), &run, 2);
    assert_eq!(writer.poll().unwrap(), None);
    let mut saved = Vec::new();
    for step in [10, 20, 30, 40] {
        let parts = parts(&writer, step as u8);
        saved.extend(writer.begin(step, json!({ "seed": step }), parts).unwrap());
    }
    drop(writer);
    assert_eq!(saved.iter().map(|saved| saved.step).collect::<Vec<_>>(), [10, 20, 30]);
    assert!(saved.iter().all(|saved| saved.bytes == saved_bytes(&run) && saved.path.starts_with(&run)));
    assert_eq!(stored(&run).unwrap().iter().map(|(step, _)| *step).collect::<Vec<_>>(), [30, 40]);
    assert_eq!(newest(&run), Some((40, 40)));
}

fn saved_bytes(run: &Path) -> crate::base::Bytes {
    Checkpoint::latest(run).unwrap().unwrap().bytes()
}

#[test]
fn what_ranks_hold_alike_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), folder.path(), 1), 1, 10).unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().unwrap();
    let files = |name: &str| {
        let parts = &checkpoint.index().tensors[name].parts;
        parts.iter().map(|part| part.file).collect::<Vec<_>>()
    };
    // The second rank's part of `one` is empty.
    assert_eq!(
        ["rows", "columns", "one", "whole", "step"].map(files),
        [vec![0, 1], vec![0, 1], vec![0], vec![0], vec![0]]
    );
    let bytes = fs::read(checkpoint.path().join("rank-00001-of-00002.safetensors")).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut names = read.names();
    names.sort_unstable();
    assert_eq!(names, ["columns", "rows"]);
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let said: Value = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["ascend-tp"]).unwrap();
    assert_eq!(said["tensors"]["columns"], json!({ "shape": [3, 5], "offset": [0, 3], "layout": "_,tp" }));
    assert_eq!((&said["step"], &said["rank"], &said["mesh"]), (&json!(1), &json!(1), &json!("mesh tp=2")));
}

#[test]
fn parts_that_are_not_this_process_are_all_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(Arc::new(Disk), folder.path(), 1);
    let mut given = parts(&writer, 1);
    given.retain(|part| (part.rank, part.tensor.as_str()) != (0, "step"));
    given.push(PartBytes { rank: 1, tensor: "whole".into(), bytes: vec![0; 28] });
    given.iter_mut().find(|part| part.tensor == "rows").unwrap().bytes.pop();
    let error = writer.begin(1, json!({}), given).unwrap_err().to_string();
    let expected = "rank 0: rows: not the bytes of the part: expected 36 bytes, found 35 bytes\n\
                    rank 1: whole: not a part of this process, or written twice\n\
                    rank 0: step: a part is missing";
    assert_eq!(error, expected);
    assert_eq!(newest(folder.path()), None);
}

/// Runs `body` in two processes of a group, each on a thread.
fn as_two<T: Send>(job: &str, body: impl Fn(usize, Arc<ProcessGroup>) -> T + Sync) -> Vec<T> {
    let place = MeetingPlace::Socket { job: format!("test-checkpoint-{job}-{}", std::process::id()) };
    thread::scope(|scope| {
        let start = |rank: usize| {
            let world = World { rank, size: 2, place: place.clone(), ..World::alone() };
            let body = &body;
            scope.spawn(move || body(rank, Arc::new(ProcessGroup::join(&world).unwrap())))
        };
        let threads = [start(0), start(1)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn two_processes_write_one_checkpoint_while_they_exchange_other_things() {
    let folder = tempfile::tempdir().unwrap();
    let saved = as_two("together", |rank, group| {
        let mut writer = Writer::new(folder.path(), NonZero::new(2), two(), Arc::clone(&group)).unwrap();
        assert!(writer.parts().all(|(of, _, _)| of == rank));
        for step in 1..=5_u8 {
            let parts = parts(&writer, step);
            writer.begin(step.into(), json!({ "seed": step }), parts).unwrap();
            assert_eq!(group.exchange("the loss", vec![rank as u8]).unwrap(), [[0], [1]]);
        }
        writer.finish().unwrap().unwrap()
    });
    assert_eq!((saved[0].step, saved[0].bytes), (5, saved[1].bytes));
    assert_eq!(newest(folder.path()), Some((5, 5)));
    assert_eq!(names(folder.path()), ["step-00000004", "step-00000005"]);
    // One process writes the same bytes.
    let other = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), other.path(), 1), 5, 5).unwrap();
    for name in names(&saved[0].path) {
        let read = |folder: &Path| fs::read(folder.join("step-00000005").join(&name)).unwrap();
        assert_eq!(read(folder.path()), read(other.path()), "{name}");
    }
}

#[test]
fn one_process_failure_is_that_of_both() {
    let folder = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), folder.path(), 1), 1, 10).unwrap();
    let errors = as_two("full", |_, group| {
        let mut writer = Writer::on(Arc::new(Full), folder.path(), NonZero::new(1), two(), group).unwrap();
        save(&mut writer, 2, 20).unwrap_err().to_string()
    });
    assert!(
        errors[0].starts_with("rank 1: ") && errors[0].ends_with("found no storage space"),
        "{}",
        errors[0]
    );
    assert!(errors[1].contains("rank-00001-of-00002.safetensors: cannot be written"), "{}", errors[1]);
    assert_eq!(newest(folder.path()), Some((1, 10)));
}

#[test]
fn a_process_that_is_gone_ends_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    save(&mut writer(Arc::new(Disk), folder.path(), 1), 1, 10).unwrap();
    let (left, gone) = bounded(1);
    let errors = as_two("gone", |rank, group| {
        if rank == 1 {
            drop(group);
            left.send(()).unwrap();
            return None;
        }
        gone.recv().unwrap();
        let mut writer = Writer::new(folder.path(), None, two(), group).unwrap();
        let error = save(&mut writer, 2, 20).unwrap_err();
        Some((matches!(error, Error::Peer(_)), error.to_string()))
    });
    let (is_peers, text) = errors[0].clone().unwrap();
    assert!(is_peers && text.contains("rank 1"), "{text}");
    assert_eq!(newest(folder.path()), Some((1, 10)));
}

#[test]
fn a_group_of_other_processes_is_refused() {
    let mesh = Mesh::new(&[("tp", 3)]).unwrap();
    let errors = as_two("three", |_, group| {
        let sharding = Sharding::new(mesh.clone(), Vec::new()).unwrap();
        Writer::new(Path::new("unused"), None, sharding, group).unwrap_err().to_string()
    });
    let expected =
        "mesh tp=3: neither one process nor one for each rank: expected 1 or 3 processes, found 2 processes";
    assert_eq!(errors, [expected, expected]);
}
