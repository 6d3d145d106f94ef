//! States of this process's threads, as the operating system reports them.
//!
//! Invariants: only another thread can wake a thread that waits for a futex without a time limit.
//! Two equal observations mean that the thread did not run in between. Without `/proc` (not Linux)
//! nothing is visible.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use super::strangers;

pub(crate) type Tid = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
    /// The thread no longer exists.
    Gone,
    /// Most locks are held briefly, such as those of the C library's allocator.
    WaitsForLock,
    /// Waits for another thread without a time limit.
    Waits,
    /// Waits for another thread with a time limit.
    WaitsAWhile,
    /// Waits for a file, a socket or another process.
    Outside,
    /// Sleeps for a chosen time.
    Pauses,
    /// Runs, or will run without help.
    Runs,
}

impl Doing {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Gone => "has ended",
            Self::WaitsForLock => "waits for a lock outside the library",
            Self::Waits => "waits for another thread outside the library",
            Self::WaitsAWhile => "waits for another thread outside the library, with a limit",
            Self::Outside => "waits for a file, a socket or another process",
            Self::Pauses => "sleeps",
            Self::Runs => "runs outside the library",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) doing: Doing,
    /// Changes whenever the thread runs.
    mark: String,
}

impl Look {
    const fn gone() -> Self {
        Self { doing: Doing::Gone, mark: String::new() }
    }
}

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const FUTEX: u64 = 202;
    pub(super) const SLEEPS: [u64; 3] = [35, 230, 219];
}
#[cfg(not(target_arch = "x86_64"))]
mod number {
    //! Numbers of arm64, riscv64 and every later architecture.
    pub(super) const FUTEX: u64 = 98;
    pub(super) const SLEEPS: [u64; 3] = [101, 115, 128];
}

/// Value of a contended lock in glibc and in Rust's standard library. Any futex with this value is
/// treated as a lock.
const CONTENDED: &str = "0x2";

/// Time in which a new thread must start before it is examined. No thread starts while a library's
/// constructor makes the first call, as in Python extension modules: a new thread needs the dynamic
/// linker's lock.
pub(crate) const BEGIN_LIMIT: Duration = Duration::from_millis(500);

/// Checks that a waiting thread is seen waiting (skipped if no thread can start now) and the
/// calling thread running.
///
/// Sandboxes may hide thread states, or report every thread as running.
pub(crate) fn try_to_see() -> Result<(), String> {
    static SEEN: OnceLock<Result<(), String>> = OnceLock::new();
    SEEN.get_or_init(|| {
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let body = move || {
            let _ = tell.send(this_thread());
            let _ = gone.recv();
        };
        let thread = std::thread::Builder::new().name("ascend-seen".into()).spawn(body);
        let thread = thread.map_err(|error| format!("cannot start a thread to look at: {error}"))?;
        if let Ok(tid) = told.recv_timeout(BEGIN_LIMIT) {
            let seen = see_waiting(tid);
            drop(go);
            let _ = thread.join();
            seen?;
        }
        match look(this_thread()).doing {
            Doing::Runs => Ok(()),
            other => Err(format!("the calling thread is reported in another state than running ({other:?})")),
        }
    })
    .clone()
}

fn see_waiting(tid: Tid) -> Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let path = format!("/proc/self/task/{tid}/syscall");
    let since = Instant::now();
    loop {
        let line = fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        match doing_of_call(&line) {
            Doing::Waits => return Ok(()),
            other if since.elapsed() > PATIENCE => {
                return Err(format!("{path} says of a thread that waits: {} ({other:?})", line.trim()));
            }
            _ => std::thread::yield_now(),
        }
    }
}

pub(crate) fn is_possible() -> bool {
    try_to_see().is_ok()
}

pub(crate) fn this_thread() -> Tid {
    let link = fs::read_link("/proc/thread-self").ok();
    link.and_then(|link| link.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}

pub(crate) fn does_another_run() -> bool {
    let own = this_thread();
    strangers::threads().into_iter().any(|tid| tid != own && look(tid).doing == Doing::Runs)
}

pub(crate) fn in_order_of_start<T>(threads: impl Iterator<Item = (Tid, T)>) -> Vec<T> {
    let mut dated: Vec<(u64, Tid, T)> = threads.map(|(tid, thread)| (started(tid), tid, thread)).collect();
    dated.sort_unstable_by_key(|(tick, tid, _)| (*tick, *tid));
    for of_one_tick in dated.chunk_by_mut(|one, next| one.0 == next.0).filter(|threads| threads.len() > 1) {
        let ids: Vec<Tid> = of_one_tick.iter().map(|(_, tid, _)| *tid).collect();
        of_one_tick.rotate_left(eldest(&ids, id_limit()));
    }
    dated.into_iter().map(|(_, _, thread)| thread).collect()
}

/// Returns the oldest thread's index among threads of one tick, given by ascending ids. Ids ascend
/// and wrap around at `limit`, so the longest gap precedes the oldest thread.
fn eldest(ids: &[Tid], limit: Tid) -> usize {
    let gap_before = |at: usize| match at {
        0 => ids.last().map_or(0, |last| limit.saturating_sub(*last)) + ids[0],
        _ => ids[at] - ids[at - 1],
    };
    (1..ids.len()).fold(0, |first, at| if gap_before(at) > gap_before(first) { at } else { first })
}

/// The limit that all thread ids are below.
fn id_limit() -> Tid {
    const HIGHEST: Tid = 1 << 22;
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(HIGHEST)
}

fn started(tid: Tid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat_field(&stat, 22).and_then(|ticks| ticks.parse().ok()).unwrap_or(u64::MAX)
}

/// Fields count from 1 as in proc(5). Field 2, the name, may contain any character.
fn stat_field(stat: &str, field: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field - 3)
}

pub(crate) fn look(tid: Tid) -> Look {
    ThreadFiles::open(tid).and_then(|files| files.look()).unwrap_or_else(|_| Look::gone())
}

#[derive(Debug, Default)]
pub(crate) struct Watcher {
    open: BTreeMap<Tid, ThreadFiles>,
}

impl Watcher {
    /// Open files count against the program's limit.
    const KEPT: usize = 48;

    pub(crate) fn look(&mut self, tid: Tid) -> Look {
        if let Some(files) = self.open.get(&tid) {
            if let Ok(look) = files.look() {
                return look;
            }
            // The thread has ended; its id may be reused.
            self.open.remove(&tid);
        }
        let Ok(files) = ThreadFiles::open(tid) else { return Look::gone() };
        let look = files.look().unwrap_or_else(|_| Look::gone());
        if self.open.len() == Self::KEPT {
            self.open.clear();
        }
        self.open.insert(tid, files);
        look
    }
}

#[derive(Debug)]
struct ThreadFiles {
    call: File,
    state: File,
    times: File,
}

impl ThreadFiles {
    fn open(tid: Tid) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/self/task/{tid}/{name}"));
        Ok(Self { call: open("syscall")?, state: open("stat")?, times: open("schedstat")? })
    }

    fn look(&self) -> io::Result<Look> {
        let doing = match doing_of_call(&read_line(&self.call)?) {
            Doing::Runs => Doing::Runs,
            // After the system call: a thread that was woken still shows its call until a core
            // takes it. A thread blocked on a disk or on memory continues by itself, and a stopped
            // one with its process. A zombie never does.
            doing => match stat_field(&read_line(&self.state)?, 3) {
                Some("R" | "D" | "T" | "t") => Doing::Runs,
                Some("Z" | "X") | None => Doing::Gone,
                Some(_) => doing,
            },
        };
        Ok(Look { doing, mark: read_line(&self.times)? })
    }
}

/// The system generates a `/proc` file anew if it is read from the start.
fn read_line(file: &File) -> io::Result<String> {
    // 256 bytes hold a number and eight addresses, or an id, a name and a state.
    let mut bytes = [0; 256];
    let len = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// The line is `running`, or a number with six arguments.
fn doing_of_call(line: &str) -> Doing {
    let mut fields = line.split_ascii_whitespace();
    let Some(call) = fields.next().and_then(|field| field.parse::<i64>().ok()) else { return Doing::Runs };
    let Ok(call) = u64::try_from(call) else {
        // -1: stopped outside a system call, by a page fault or a debugger.
        return Doing::Runs;
    };
    if call == number::FUTEX {
        // futex(address, operation, value, timeout, …)
        let [value, timeout] = [fields.nth(2), fields.next()];
        return match timeout {
            Some(timeout) if timeout != "0x0" => Doing::WaitsAWhile,
            _ if value == Some(CONTENDED) => Doing::WaitsForLock,
            _ => Doing::Waits,
        };
    }
    if number::SLEEPS.contains(&call) { Doing::Pauses } else { Doing::Outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        assert_eq!(doing_of_call("running\n"), Doing::Runs);
        assert_eq!(doing_of_call("-1 0x7ffd 0x7f43\n"), Doing::Runs);
        let futex = |timeout: &str| {
            format!("{} 0x7f 0x189 0x0 {timeout} 0x0 0xffffffff 0x7ffd 0x7f43", number::FUTEX)
        };
        assert_eq!(doing_of_call(&futex("0x0")), Doing::Waits);
        assert_eq!(doing_of_call(&futex("0x7f00")), Doing::WaitsAWhile);
        let lock = |timeout: &str| futex(timeout).replace("0x189 0x0", "0x80 0x2");
        assert_eq!(doing_of_call(&lock("0x0")), Doing::WaitsForLock);
        assert_eq!(doing_of_call(&lock("0x7f00")), Doing::WaitsAWhile);
        assert_eq!(doing_of_call(&format!("{} 0x0 0x0", number::SLEEPS[0])), Doing::Pauses);
        assert_eq!(doing_of_call("7 0x0 0x0"), Doing::Outside);
    }

    #[test]
    fn fields_of_a_thread_whose_name_is_like_a_field() {
        let stat = "81 (a) R 2 (b)) S 4657 4657";
        assert_eq!([3, 4, 9].map(|field| stat_field(stat, field)), [Some("S"), Some("4657"), None]);
    }

    /// Thread ids of a host where they end at 32,767.
    #[test]
    fn threads_with_the_lowest_ids_are_the_younger_ones_where_ids_have_begun_anew() {
        let ordered = |mut ids: Vec<Tid>, limit: Tid| {
            let first = eldest(&ids, limit);
            ids.rotate_left(first);
            ids
        };
        assert_eq!(ordered(vec![5], 32_768), [5]);
        assert_eq!(ordered(vec![7, 8, 9], 32_768), [7, 8, 9]);
        assert_eq!(ordered(vec![300, 32_767], 32_768), [32_767, 300]);
        assert_eq!(ordered(vec![300, 301, 32_765, 32_767], 32_768), [32_765, 32_767, 300, 301]);
        assert_eq!(ordered(vec![300, 32_767], 1 << 22), [300, 32_767]);
    }

    #[test]
    fn a_thread_is_seen_to_run_to_wait_and_to_end() {
        if let Err(hidden) = try_to_see() {
            println!("skipped a_thread_is_seen_to_run_to_wait_and_to_end: {hidden}");
            return;
        }
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(this_thread()).expect("the test listens");
            let _ = gone.recv();
        });
        let tid = told.recv().expect("the thread tells");
        assert_eq!(look(this_thread()).doing, Doing::Runs);
        while look(tid).doing != Doing::Waits {
            std::thread::yield_now();
        }
        let mut watcher = Watcher::default();
        let mark = watcher.look(tid);
        assert_eq!((&mark, &mark), (&look(tid), &watcher.look(tid)));
        drop(go);
        thread.join().expect("the thread ends");
        while look(tid).doing != Doing::Gone || watcher.look(tid).doing != Doing::Gone {
            std::thread::yield_now();
        }
    }
}
