//! Start of several processes for a test, and the state of one of them.
//!
//! A layout has the ranks of each process. Child processes end with their parent's test.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::ptr::null_mut;
use std::sync::Arc;

use ascend_tp_emulator::{Config, Emulator, Mode, Sharing};
use ascend_tp_sys::{HcclComm, HcclRootInfo, Table};

use crate::common::*;

const ROLE: &str = "PROCESS_TEST_RANKS";
const WORLD: &str = "PROCESS_TEST_WORLD";
pub(crate) const SEED: &str = "PROCESS_TEST_SEED";
const ROOT: &str = "PROCESS_TEST_ROOT";

pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this binary as the process of `ranks`.
    pub(crate) fn start(
        test: &str,
        ranks: &[u32],
        world: u32,
        root: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", &format!("processes::{test}"), "--nocapture", "--test-threads=1"]);
        command.env(ROLE, ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        command
            .env(WORLD, world.to_string())
            .env("WORLD_SIZE", world.to_string())
            .envs(environment.iter().copied());
        command.env("HCCL_SOCKET_IFNAME", "lo");
        if let Some(root) = root {
            command.env(ROOT, root);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let input = child.stdin.take();
        Self { child, input, lines }
    }

    pub(crate) fn next(&mut self, mark: &str) -> Option<String> {
        self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            // The harness prints text on the first line.
            line.split_once(mark).map(|(_, rest)| rest.trim().to_owned())
        })
    }

    pub(crate) fn rest(&mut self, mark: &str) -> Vec<String> {
        std::iter::from_fn(|| self.next(mark)).collect()
    }

    pub(crate) fn resume(&mut self) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(b"go\n");
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first process has rank 0 and creates the root info.
pub(crate) fn start(test: &str, layout: &[&[u32]], environment: &[(&str, &str)]) -> Vec<Process> {
    let world = layout.iter().map(|ranks| ranks.len() as u32).sum();
    let mut first = Process::start(test, layout[0], world, None, environment);
    let root = first.next("root ").expect("a root info");
    let mut processes = vec![first];
    processes
        .extend(layout[1..].iter().map(|ranks| Process::start(test, ranks, world, Some(&root), environment)));
    processes
}

pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) table: Arc<Table>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) size: u32,
    pub(crate) info: Box<HcclRootInfo>,
}

/// Returns `None` for the parent.
pub(crate) fn role() -> Option<World> {
    let ranks = std::env::var(ROLE).ok()?;
    let ranks: Vec<u32> = ranks.split(',').map(|rank| rank.parse().expect("a rank")).collect();
    let size: u32 = std::env::var(WORLD).expect("set by the parent").parse().expect("a number");
    let mode = match std::env::var(SEED) {
        Ok(seed) => Mode::Strict { seed: seed.parse().expect("a number") },
        Err(_) => Mode::Parallel,
    };
    let (emulator, table) =
        machine_of(Config { mode, sharing: Sharing::Host, ..Config::with_cards(size as usize) });
    let mut info = Box::new(HcclRootInfo { internal: [0; 4108] });
    match std::env::var(ROOT) {
        Ok(hex) => {
            for (byte, digits) in info.internal.iter_mut().zip(hex.as_bytes().chunks(2)) {
                let digits = std::str::from_utf8(digits).expect("hexadecimal");
                *byte = u8::from_str_radix(digits, 16).expect("hexadecimal").cast_signed() as _;
            }
        }
        Err(_) => {
            let _card = Card::new(&table, ranks[0].cast_signed());
            hccl_ok(&table, call!(table, HcclGetRootInfo(&raw mut *info)));
            let hex: String = info
                .internal
                .iter()
                .flat_map(|byte| byte.to_ne_bytes())
                .map(|byte| format!("{byte:02x}"))
                .collect();
            say(&format!("root {hex}"));
        }
    }
    Some(World { emulator, table, ranks, size, info })
}

pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "\n{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

impl World {
    pub(crate) fn pause(&self, mark: &str) {
        say(mark);
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).is_ok_and(|count| count == 0) {
            std::process::exit(1);
        }
    }

    pub(crate) fn cards(&self) -> Vec<Card<'_>> {
        self.ranks.iter().map(|rank| Card::new(&self.table, rank.cast_signed())).collect()
    }

    /// Joins with every rank of this process; returns the first failure.
    pub(crate) fn join(&self, cards: &[Card<'_>]) -> Result<Vec<HcclComm>, String> {
        let join = |rank: u32, card: &Card<'_>| {
            card.enter();
            let mut comm = null_mut();
            let info = &raw const *self.info;
            let code = call!(self.table, HcclCommInitRootInfo(self.size, info, rank, &raw mut comm));
            if code.0 == 0 { Ok(comm as usize) } else { Err(message(&self.table)) }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .ranks
                .iter()
                .zip(cards)
                .map(|(rank, card)| scope.spawn(move || join(*rank, card)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic").map(|comm| comm as HcclComm))
                .collect()
        })
    }
}
