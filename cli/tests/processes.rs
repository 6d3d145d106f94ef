//! Tests with one process per card, started by a shell loop or by mpirun. Every rank has its own
//! emulator. Ranks connect through `MASTER_ADDR` and `MASTER_PORT`.

#![expect(clippy::print_stderr, reason = "reports skipped tests")]

mod link;

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};

use crate::{LAUNCHER, stderr, stdout};

/// Time limit against hangs.
pub(crate) const LONG: Duration = Duration::from_secs(300);

fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_ascend-tp")
}

/// Returns a command without the test runner's variables.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).current_dir(crate::root());
    for name in LAUNCHER {
        command.env_remove(name);
    }
    command.env("HCCL_CONNECT_TIMEOUT", "60");
    command
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn rank(rank: usize, size: usize, port: u16, arguments: &str) -> Command {
    let mut command = command(binary());
    command
        .args(arguments.split_whitespace())
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", size.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn start(size: usize, arguments: &str) -> Vec<Child> {
    let port = free_port();
    (0..size).map(|index| rank(index, size, port, arguments).spawn().unwrap()).collect()
}

fn finish(children: Vec<Child>) -> Vec<Output> {
    children.into_iter().map(finish_one).collect()
}

/// Waits for a process, and kills it at the time limit.
pub(crate) fn finish_one(mut child: Child) -> Output {
    let (id, started) = (child.id(), Instant::now());
    let (done, waiting) = bounded::<()>(0);
    let guard = std::thread::spawn(move || {
        if waiting.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
            send_signal("KILL", id);
        }
    });
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut errors = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        errors.read_to_end(&mut stderr).unwrap();
        stderr
    });
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    let status = child.wait().unwrap();
    drop(done);
    guard.join().unwrap();
    assert!(started.elapsed() < LONG, "process {id} hung");
    Output { status, stdout, stderr: reader.join().unwrap() }
}

fn send_signal(signal: &str, process: u32) {
    let _status =
        Command::new("kill").args([format!("-{signal}"), process.to_string()]).stderr(Stdio::null()).status();
}

const GENERATE: &str = "generate --device emulator --dtype f32 --max-new-tokens 12";

fn alone(arguments: &str) -> String {
    let output = command(binary()).args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_shell_loop_of_four_prints_what_one_process_prints() {
    let expected = alone(&format!("{GENERATE} --cards 4"));
    let outputs = finish(start(4, GENERATE));
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", stderr(output));
        assert_eq!(stdout(output), if rank == 0 { expected.as_str() } else { "" }, "rank {rank}");
    }
    assert!(stderr(&outputs[0]).contains("decode   11 tokens"), "{}", stderr(&outputs[0]));
}

#[test]
fn verify_runs_as_three_processes() {
    let arguments = "verify --device emulator --model tests/fixtures/qwen2-gqa \
                     --reference tests/fixtures/qwen2-gqa/expected.safetensors";
    let outputs = finish(start(3, arguments));
    assert!(outputs.iter().all(|output| output.status.success()), "{}", stderr(&outputs[0]));
    let text = stdout(&outputs[0]);
    assert!(text.contains("1 card against 3") && text.ends_with("passed\n"), "{text}");
    assert_eq!(stdout(&outputs[2]), "");
}

/// Weight differences match one process with as many cards, bit for bit.
#[test]
fn verify_train_says_as_three_processes_what_it_says_as_one() {
    let line = "verify --train --device emulator --model tests/fixtures/qwen2-gqa --mesh dp=3 --zero 3 --global-batch 6 --seq 12";
    let expected = alone(&format!("{line} --cards 3"));
    let outputs = finish(start(3, line));
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", stderr(output));
        assert_eq!(stdout(output), if rank == 0 { expected.as_str() } else { "" }, "rank {rank}");
    }
    assert!(expected.contains("on 1 card against 3 of ") && expected.ends_with("passed\n"), "{expected}");

    let outputs = finish(start(2, &line.replace("dp=3", "dp=3,tp=2")));
    assert!(stderr(&outputs[0]).contains("--mesh: does not match the cards"), "{}", stderr(&outputs[0]));
    assert_eq!((stderr(&outputs[1]).as_str(), outputs[1].status.code()), ("", Some(2)));
}

#[test]
fn mpirun_prints_what_one_process_prints() {
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("mpirun is not installed: nothing to try");
        return;
    }
    let mut mpirun = command("mpirun");
    mpirun
        .args(["--allow-run-as-root", "--oversubscribe", "-np", "8", binary()])
        .args(GENERATE.split_whitespace());
    let output = finish_one(mpirun.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), alone(&format!("{GENERATE} --cards 8")));
}

/// Waits until rank 0's text grows.
fn wait_for_text(child: &mut Child) -> String {
    let mut seen = Vec::new();
    let stdout = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while seen.len() < "In the beginning ".len() + 4 {
        assert_ne!(
            stdout.read(&mut byte).unwrap(),
            0,
            "rank 0 ended before its text: {}",
            String::from_utf8_lossy(&seen)
        );
        seen.push(byte[0]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// Long enough for the test to interfere.
const ENDLESS: &str = "generate --device emulator --dtype f32 --max-new-tokens 250";

#[test]
fn a_rank_that_is_killed_ends_the_others_and_is_named() {
    let mut children = start(4, ENDLESS);
    wait_for_text(&mut children[0]);
    let killed = children.remove(2);
    let process = killed.id();
    send_signal("KILL", process);
    let _killed = finish_one(killed);
    for output in finish(children) {
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains(&format!("rank 2 (card 2, process {process} on ")), "{text}");
    }
}

#[test]
fn rank_0_may_be_the_one_that_is_killed() {
    let mut children = start(3, ENDLESS);
    wait_for_text(&mut children[0]);
    let killed = children.remove(0);
    send_signal("KILL", killed.id());
    let _killed = finish_one(killed);
    for output in finish(children) {
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("rank 0 (card 0, process "), "{}", stderr(&output));
    }
}

#[test]
fn an_interrupt_ends_all_ranks() {
    let mut children = start(3, ENDLESS);
    wait_for_text(&mut children[0]);
    for child in &children {
        send_signal("INT", child.id());
    }
    for (rank, output) in finish(children).iter().enumerate() {
        // A rank may learn of another rank's exit before its own signal.
        let is_told = output.status.code() == Some(3) && stderr(output).contains("interrupted by a signal");
        assert!(output.status.code() == Some(130) || is_told, "rank {rank}: {}", stderr(output));
    }
}

#[test]
fn an_interrupt_of_one_process_alone_ends_it_with_130() {
    let mut child = command(binary())
        .args(ENDLESS.split_whitespace())
        .args(["--cards", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_text(&mut child);
    send_signal("INT", child.id());
    let output = finish_one(child);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("interrupted\n"), "{}", stderr(&output));
}

/// A stopped process keeps its sockets open.
#[test]
fn a_stopped_rank_is_named_and_ends_the_others() {
    for stopped in [0, 2] {
        let mut children = start(3, ENDLESS);
        wait_for_text(&mut children[0]);
        send_signal("STOP", children[stopped].id());
        let begun = Instant::now();
        let mut silent = children.remove(stopped);
        let ended = finish(children);
        assert!(begun.elapsed() < LONG);
        silent.kill().unwrap();
        silent.wait().unwrap();
        for output in ended {
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{text}");
            assert!(
                text.contains(&format!("rank {stopped} ")) && text.contains("is stopped (SIGSTOP)"),
                "{text}"
            );
        }
    }
}

#[test]
fn who_is_awaited_is_said_before_the_limit() {
    let output = rank(0, 3, free_port(), GENERATE).env("HCCL_CONNECT_TIMEOUT", "4").output().unwrap();
    assert!(
        stderr(&output).contains("rank 0 waits for ranks 1, 2 of 3 at 127.0.0.1:"),
        "{}",
        stderr(&output)
    );
    let mut alone = rank(1, 2, free_port(), GENERATE);
    let output = alone.env("HCCL_CONNECT_TIMEOUT", "4").output().unwrap();
    assert!(stderr(&output).contains("rank 1 waits for rank 0 at 127.0.0.1:"), "{}", stderr(&output));
    // In a pod, names of other pods resolve later.
    alone.env("HCCL_CONNECT_TIMEOUT", "1").env("MASTER_ADDR", "no-such-host.invalid");
    let output = alone.env("KUBERNETES_SERVICE_HOST", "10.0.0.1").output().unwrap();
    let text = stderr(&output);
    assert!(
        text.starts_with("rank 1: rank 0 is said to be on no-such-host.invalid, a name without an address"),
        "{text}"
    );
}

/// Impossible input is refused before ranks wait or allocate.
#[test]
fn what_cannot_work_is_refused_at_once() {
    let train = "train --device emulator --steps 1";
    for line in [GENERATE, "verify --device emulator --model tests/fixtures/qwen2-gqa", train] {
        for (variables, expected) in [
            (&[("WORLD_SIZE", "1000000000")][..], "WORLD_SIZE is 1000000000: expected 1 to 1048576 ranks"),
            (
                &[("MASTER_ADDR", "no-such-host.invalid")],
                "no-such-host.invalid, a name without an address here",
            ),
            (&[("MASTER_PORT", "65536")], "MASTER_PORT is \"65536\": expected a port from 1 to 65535"),
            (&[("RANK", "2")], "RANK is 2 and WORLD_SIZE is 2: ranks count from 0"),
            (
                &[("RANK_TABLE_FILE", "/dev/zero")],
                "rank table /dev/zero cannot be read: expected a regular file",
            ),
        ] {
            // No other rank starts, so a wait would fail.
            let mut command = rank(0, 2, free_port(), line);
            let child = command
                .env("HCCL_CONNECT_TIMEOUT", "600000")
                .envs(variables.iter().copied())
                .spawn()
                .unwrap();
            let output = finish_one(child);
            let text = stderr(&output);
            assert!(
                output.status.code() == Some(2) && text.contains(expected),
                "{line}: {variables:?}: {text}"
            );
        }
    }
}

#[test]
fn what_is_wrong_is_said_once() {
    let port = free_port();
    let options =
        |index| if index == 1 { "generate --device emulator --seed 2" } else { "generate --device emulator" };
    let children = (0..2).map(|index| rank(index, 2, port, options(index)).spawn().unwrap());
    let outputs = finish(children.collect());
    assert!(outputs.iter().all(|output| output.status.code() == Some(2)), "{}", stderr(&outputs[0]));
    let help = "start all processes with the same program, options and files";
    assert_eq!(
        stderr(&outputs[0]),
        format!("error: --seed: the processes disagree: rank 0 has 0, rank 1 has 2; {help}\n")
    );
    assert_eq!(stderr(&outputs[1]), "");

    let port = free_port();
    let options = |index| {
        if index == 2 { "generate --device emulator" } else { "verify --device emulator --model none" }
    };
    let outputs = finish((0..3).map(|index| rank(index, 3, port, options(index)).spawn().unwrap()).collect());
    let text = stderr(&outputs[0]);
    assert!(
        text.starts_with(
            "error: command: the processes disagree: ranks 0, 1 have verify, rank 2 has generate; "
        ),
        "{text}"
    );

    let outputs = finish(start(2, "generate --device emulator --cards 4"));
    let text = stderr(&outputs[0]);
    assert!(text.contains("--cards: differs from the number of processes: expected 2"), "{text}");
    assert_eq!((stderr(&outputs[1]).as_str(), outputs[1].status.code()), ("", Some(2)));
}

#[test]
fn contradictions_and_absent_ranks_are_named() {
    let mut contradiction = rank(1, 2, free_port(), GENERATE);
    contradiction.env("OMPI_COMM_WORLD_RANK", "0").env("OMPI_COMM_WORLD_SIZE", "2");
    let output = contradiction.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("rank: RANK says 1, OMPI_COMM_WORLD_RANK says 0"),
        "{}",
        stderr(&output)
    );

    let output = rank(0, 3, free_port(), GENERATE).env("HCCL_CONNECT_TIMEOUT", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("ranks 1, 2 of 3 did not come to 127.0.0.1:"), "{}", stderr(&output));
}
