//! Tests of interrupting `bench` or a rank: the cause is named, and nothing is left behind. A rank
//! is at work when its link thread exists.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::after;

use super::command;
use crate::processes::{LONG, finish_one, free_port};
use crate::stderr;

/// Exchanges without an end.
const ENDLESS: &str = "collectives --op all_reduce --min-bytes 4K --max-bytes 4K --iterations 100000000 --device emulator --quick";

fn start(arguments: &str, variables: &[(&str, String)]) -> Child {
    let mut command = command(arguments);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Starts ranks as a shell loop does.
fn start_ranks(ranks: usize) -> Vec<Child> {
    let port = free_port();
    let variables = |rank: usize| {
        [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("MASTER_PORT", usize::from(port))]
            .map(|(name, value)| (name, value.to_string()))
    };
    let address = ("MASTER_ADDR", "127.0.0.1".to_owned());
    (0..ranks)
        .map(|rank| start(ENDLESS, &[variables(rank).as_slice(), std::slice::from_ref(&address)].concat()))
        .collect()
}

fn signal(name: &str, process: u32) {
    let status = std::process::Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
    assert!(status.unwrap().success(), "{name} to {process}");
}

/// Polling interval; `/proc` has no notifications.
const LOOK: Duration = Duration::from_millis(10);

fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: it did not come to that");
        after(LOOK).recv().unwrap();
    }
}

fn is_at_work(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.into_iter().any(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("ascend-link"))
    })
}

fn wait_for_work(processes: impl IntoIterator<Item = u32>) {
    for process in processes {
        wait("a rank at work", || is_at_work(process).then_some(()));
    }
}

/// Waits for `count` children at work.
fn wait_for_children(parent: u32, count: usize) -> Vec<u32> {
    wait("children at work", || {
        let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let children: Vec<u32> = listed.split_whitespace().filter_map(|child| child.parse().ok()).collect();
        (children.len() == count && children.iter().all(|child| is_at_work(*child))).then_some(children)
    })
}

/// Returns whether a process is running, and not a zombie.
fn is_there(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat")).ok();
    state
        .is_some_and(|state| state.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X'])))
}

fn wait_for_end(processes: &[u32]) {
    wait("no process left", || (!processes.iter().any(|process| is_there(*process))).then_some(()));
}

#[test]
fn a_rank_that_a_signal_ends_is_named_by_all_others() {
    for (name, rank, code) in
        [("KILL", 1, None), ("KILL", 0, None), ("TERM", 2, Some(130)), ("INT", 1, Some(130))]
    {
        let mut ranks = start_ranks(3);
        wait_for_work(ranks.iter().map(Child::id));
        let ended = ranks.remove(rank);
        let who = format!("rank {rank} (card {rank}, process {} on ", ended.id());
        signal(name, ended.id());
        assert_eq!(finish_one(ended).status.code(), code, "{name}");
        for other in ranks {
            let output = finish_one(other);
            let errors = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{name}: {errors}");
            assert!(errors.contains(&who), "{name}: {errors}");
        }
    }
}

#[test]
fn a_rank_that_is_stopped_is_named_by_all_others() {
    for rank in [0, 2] {
        let mut ranks = start_ranks(3);
        wait_for_work(ranks.iter().map(Child::id));
        let mut stopped = ranks.remove(rank);
        signal("STOP", stopped.id());
        for other in ranks {
            let output = finish_one(other);
            let errors = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{errors}");
            let expected = format!("rank {rank} (card {rank}, process {} on ", stopped.id());
            assert!(errors.contains(&expected) && errors.contains("is stopped (SIGSTOP)"), "{errors}");
        }
        stopped.kill().unwrap();
        stopped.wait().unwrap();
    }
}

#[test]
fn ranks_that_bench_starts_end_with_it() {
    for (name, code) in [("KILL", None), ("TERM", Some(130)), ("INT", Some(130))] {
        let parent = start(&format!("{ENDLESS} --processes 3"), &[]);
        let ranks = wait_for_children(parent.id(), 3);
        signal(name, parent.id());
        assert_eq!(finish_one(parent).status.code(), code, "{name}");
        wait_for_end(&ranks);
    }
}

#[test]
fn bench_ends_with_a_rank_that_it_has_started() {
    for (name, how) in [
        ("KILL", "of the measurement failed (signal: 9 (SIGKILL))"),
        ("TERM", "of the measurement failed (exit status: 130)"),
        ("STOP", "is stopped (SIGSTOP)"),
    ] {
        let parent = start(&format!("{ENDLESS} --processes 3"), &[]);
        let ranks = wait_for_children(parent.id(), 3);
        signal(name, ranks[1]);
        let output = finish_one(parent);
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{name}: {errors}");
        let named =
            [format!("rank 1 (process {})", ranks[1]), format!("rank 1 (card 1, process {} on ", ranks[1])];
        assert!(errors.contains(how) && named.iter().any(|named| errors.contains(named)), "{name}: {errors}");
        wait_for_end(&ranks);
    }
}

#[test]
fn all_that_bench_all_has_started_ends_with_it() {
    let mut parent = start("all --quick --device emulator", &[]);
    let ranks = wait_for_children(parent.id(), 8);
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for_end(&ranks);
}

#[test]
fn under_mpirun_a_rank_that_is_killed_is_named() {
    if std::process::Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("mpirun is not installed: nothing to try");
        return;
    }
    let mut mpirun = std::process::Command::new("mpirun");
    let bench = [env!("CARGO_BIN_EXE_ascend-tp"), "bench"];
    mpirun
        .args(["--allow-run-as-root", "--oversubscribe", "-np", "3"])
        .args(bench)
        .args(ENDLESS.split_whitespace());
    let parent = mpirun
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ranks = wait_for_children(parent.id(), 3);
    signal("KILL", ranks[1]);
    let output = finish_one(parent);
    let errors = stderr(&output);
    assert!(!output.status.success() && errors.contains(&format!("process {} on ", ranks[1])), "{errors}");
    wait_for_end(&ranks);
}

#[test]
fn a_page_is_refused_before_anything_is_measured_or_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("PAGE.md");
    let nowhere = folder.path().join("no/such/PAGE.md");
    for (option, path) in
        [("--report", &nowhere), ("--plot", &nowhere), ("--report", &folder.path().to_owned())]
    {
        let output = command(&format!("compile {option} {}", path.display())).output().unwrap();
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(
            errors.starts_with(&format!("error: {option}: {}: cannot be written", path.display())),
            "{errors}"
        );
    }
    // The limit on file sizes imitates a full disk.
    fs::write(&page, "what was there").unwrap();
    let bench =
        format!("'{}' bench compile --model {} --quick", env!("CARGO_BIN_EXE_ascend-tp"), super::MODEL);
    let script = format!("trap '' XFSZ; ulimit -f 1; exec {bench} --report '{}'", page.display());
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(crate::root()).output().unwrap();
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains(&format!("error: --report: {}", folder.path().display())), "{errors}");
    assert_eq!(fs::read_to_string(&page).unwrap(), "what was there");
    let left =
        fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    assert!(left.filter(|name| name != "page").eq(["PAGE.md"]), "nothing else is left");
}
