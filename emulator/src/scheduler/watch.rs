//! What the threads of this process do, as the operating system sees it: run, sleep for a while, or wait for others.
//!
//! Input: a thread's id. Output: [`Doing`], and a mark that changes whenever the thread has run. Invariants: a thread
//! that waits for a futex without a limit can be woken only by another thread; two equal looks around a moment mean
//! that it did not run then. Does not: change anything. Without `/proc` (not Linux) nothing can be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use {
    rustix::fs::{RawDir, SeekFrom},
    std::mem::MaybeUninit,
};

/// Id of a thread in the operating system.
pub(crate) type Tid = u32;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doing {
    /// It does not exist any more.
    Gone,
    /// It waits for a lock, which another thread has: most are held for a moment, such as those of the C library's memory.
    WaitsForLock,
    /// It waits, without a limit, for another thread.
    Waits,
    /// It waits for another thread for some time.
    WaitsAWhile,
    /// It waits for the world: a file, a socket, another process.
    Outside,
    /// It sleeps for a time it has chosen.
    Pauses,
    /// It runs, or will without anybody's help.
    Runs,
}

impl Doing {
    /// The words of reports.
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

/// One look at a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) doing: Doing,
    /// Differs from an earlier one if the thread has run in between.
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
    //! The table of arm64, riscv64 and every later architecture.
    pub(super) const FUTEX: u64 = 98;
    pub(super) const SLEEPS: [u64; 3] = [101, 115, 128];
}

/// What a lock is while somebody waits for it, in glibc and in Rust's library; where it stands for something else, that is waited for
/// as for a lock.
const CONTENDED: &str = "0x2";

/// Threads that are the business of some machine, or no program's at all: they have called, or are an emulator's own.
static CLAIMED: Mutex<BTreeSet<Tid>> = Mutex::new(BTreeSet::new());

/// The threads that are claimed, held.
pub(crate) fn claimed() -> MutexGuard<'static, BTreeSet<Tid>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a thread that needs no watching as a stranger.
pub(crate) fn claim(tid: Tid) {
    claimed().insert(tid);
}

/// The thread ends; its number may come again.
pub(crate) fn unclaim(tid: Tid) {
    claimed().remove(&tid);
}

/// How long a thread of the machine has to begin before it is looked at. Where the first call comes from a library's constructor, as
/// extension modules of Python have them, none begins before the library is loaded: the dynamic linker's lock, which a new thread
/// needs, is held as long.
pub(crate) const BEGIN_LIMIT: Duration = Duration::from_millis(500);

/// Whether threads can be seen: a thread that waits is seen to wait, unless none can begin now, and the calling one to run.
///
/// # Errors
/// What cannot be seen, and why: sandboxes hide what threads do, or tell of all that they run.
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
            other => Err(format!("the calling thread is said to do something else than run ({other:?})")),
        }
    })
    .clone()
}

/// Looks at a thread that is about to wait, until it is seen to.
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

/// Whether threads can be seen.
pub(crate) fn is_possible() -> bool {
    try_to_see().is_ok()
}

/// The calling thread's id; 0 where threads cannot be seen.
pub(crate) fn this_thread() -> Tid {
    let link = fs::read_link("/proc/thread-self").ok();
    link.and_then(|link| link.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}

/// The list of the process's threads, to be read as often as wanted.
#[derive(Debug, Default)]
pub(crate) struct ThreadList {
    folder: Option<TaskFolder>,
}

/// The system's list, open, with the numbers of its device and file: descriptors are the program's, which may close those it does not
/// know, or give their numbers to files of its own.
#[derive(Debug)]
struct TaskFolder {
    file: File,
    numbers: (u64, u64),
}

impl TaskFolder {
    fn open() -> Option<Self> {
        let file = File::open("/proc/self/task").ok()?;
        let found = file.metadata().ok()?;
        Some(Self { file, numbers: (found.dev(), found.ino()) })
    }

    /// Threads there are; none if it is not the list any more.
    fn count(&self) -> Option<usize> {
        let found = self.file.metadata().ok().filter(|found| (found.dev(), found.ino()) == self.numbers)?;
        // A link each, and two of the folder's own.
        usize::try_from(found.nlink()).ok()?.checked_sub(2).filter(|count| *count > 0)
    }

    #[cfg(target_os = "linux")]
    fn read(&self) -> io::Result<BTreeSet<Tid>> {
        // One call of the system gives a thousand threads, so that none begins or ends between two.
        let mut room = [MaybeUninit::uninit(); 32 << 10];
        rustix::fs::seek(&self.file, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&self.file, &mut room);
        let mut found = BTreeSet::new();
        while let Some(entry) = entries.next() {
            found.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<Tid>().ok()));
        }
        Ok(found)
    }

    #[cfg(not(target_os = "linux"))]
    fn read(&self) -> io::Result<BTreeSet<Tid>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl ThreadList {
    /// Times the list is read at most for one answer.
    const READS: usize = 8;

    /// All threads, and perhaps some that have just ended; none where they cannot be seen.
    pub(crate) fn threads(&mut self) -> BTreeSet<Tid> {
        let mut all = BTreeSet::new();
        for _ in 0..Self::READS {
            let Some((found, is_whole)) = self.read() else { return BTreeSet::new() };
            all.extend(found);
            if is_whole {
                break;
            }
        }
        all
    }

    /// The list, and whether nobody is missing.
    fn read(&mut self) -> Option<(BTreeSet<Tid>, bool)> {
        let before = self.folder.as_ref().and_then(TaskFolder::count).or_else(|| {
            if let Some(lost) = self.folder.take() {
                // Its number is the program's now, or nobody's.
                let _ = lost.file.into_raw_fd();
            }
            self.folder = TaskFolder::open();
            self.folder.as_ref()?.count()
        })?;
        let folder = self.folder.as_ref()?;
        let found = folder.read().ok()?;
        // A thread that ends while the list is read ends the list, though younger ones are there.
        let is_whole = before == found.len() && folder.count() == Some(found.len());
        Some((found, is_whole))
    }

    /// All threads nobody has claimed, in ascending order.
    pub(crate) fn strangers(&mut self) -> Vec<Tid> {
        let all = self.threads();
        let claimed = claimed();
        all.difference(&claimed).copied().collect()
    }
}

/// When a thread was started, in ticks since the host was; threads of one tick compare by id.
pub(crate) fn started(tid: Tid) -> (u64, Tid) {
    (stat_field(tid, 22).and_then(|ticks| ticks.parse().ok()).unwrap_or(u64::MAX), tid)
}

/// A field of the thread's `stat`, counted from 1 as proc(5) does. The name, field 2, may contain anything.
fn stat_field(tid: Tid, field: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field - 3).map(str::to_owned)
}

/// What a thread does now.
pub(crate) fn look(tid: Tid) -> Look {
    ThreadFiles::open(tid).and_then(|files| files.look(tid)).unwrap_or_else(|_| Look::gone())
}

/// Looks at the same threads again and again.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    open: BTreeMap<Tid, ThreadFiles>,
}

impl Watcher {
    /// Threads whose files stay open: files are the program's, which has a limit of them.
    const KEPT: usize = 64;

    /// What a thread does now.
    pub(crate) fn look(&mut self, tid: Tid) -> Look {
        if let Some(files) = self.open.get(&tid) {
            if let Ok(look) = files.look(tid) {
                return look;
            }
            // The thread has ended; its number may be another's by now.
            self.open.remove(&tid);
        }
        let Ok(files) = ThreadFiles::open(tid) else { return Look::gone() };
        let look = files.look(tid).unwrap_or_else(|_| Look::gone());
        if self.open.len() == Self::KEPT {
            self.open.clear();
        }
        self.open.insert(tid, files);
        look
    }
}

/// What the system tells of a thread, to be read as often as wanted.
#[derive(Debug)]
struct ThreadFiles {
    call: File,
    times: File,
}

impl ThreadFiles {
    fn open(tid: Tid) -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/self/task/{tid}/{name}"));
        Ok(Self { call: open("syscall")?, times: open("schedstat")? })
    }

    /// # Errors
    /// The thread has ended.
    fn look(&self, tid: Tid) -> io::Result<Look> {
        let doing = match doing_of_call(&read_line(&self.call)?) {
            // Blocked on a disk or on the address space: it goes on by itself. A zombie never does.
            Doing::Outside => match stat_field(tid, 3).as_deref() {
                Some("D" | "R") => Doing::Runs,
                Some("Z" | "X") | None => Doing::Gone,
                Some(_) => Doing::Outside,
            },
            doing => doing,
        };
        Ok(Look { doing, mark: read_line(&self.times)? })
    }
}

/// A line of the system's, which is written anew for each reader that begins at its start.
fn read_line(file: &File) -> io::Result<String> {
    // The longest has a number and eight addresses.
    let mut bytes = [0; 256];
    let len = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// Reads a line of `/proc/…/syscall`: `running`, or a number with six arguments.
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
    use std::io::{Seek, Write};
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        assert_eq!(doing_of_call("running\n"), Doing::Runs);
        assert_eq!(doing_of_call("-1 0x7ffd 0x7f43\n"), Doing::Runs);
        let futex = |timeout: &str| format!("{} 0x7f 0x189 0x0 {timeout} 0x0 0xffffffff 0x7ffd 0x7f43", number::FUTEX);
        assert_eq!(doing_of_call(&futex("0x0")), Doing::Waits);
        assert_eq!(doing_of_call(&futex("0x7f00")), Doing::WaitsAWhile);
        let lock = |timeout: &str| futex(timeout).replace("0x189 0x0", "0x80 0x2");
        assert_eq!(doing_of_call(&lock("0x0")), Doing::WaitsForLock);
        assert_eq!(doing_of_call(&lock("0x7f00")), Doing::WaitsAWhile);
        assert_eq!(doing_of_call(&format!("{} 0x0 0x0", number::SLEEPS[0])), Doing::Pauses);
        assert_eq!(doing_of_call("7 0x0 0x0"), Doing::Outside);
    }

    /// The system ends its list at a thread that ends meanwhile: read once, it lacks the youngest thread once in a thousand times here.
    #[test]
    fn no_thread_is_overlooked_while_older_ones_end() {
        const OLDER: usize = 16;
        if let Err(hidden) = try_to_see() {
            println!("skipped no_thread_is_overlooked_while_older_ones_end: {hidden}");
            return;
        }
        let mut list = ThreadList::default();
        for _ in 0..200 {
            let end = Arc::new(Barrier::new(OLDER + 1));
            let older = [(); OLDER].map(|()| {
                let end = Arc::clone(&end);
                std::thread::spawn(move || {
                    end.wait();
                })
            });
            let (tell, told) = mpsc::channel();
            let (go, gone) = mpsc::channel::<()>();
            let youngest = std::thread::spawn(move || {
                tell.send(this_thread()).expect("the test listens");
                let _ = gone.recv();
            });
            let tid = told.recv().expect("the thread tells");
            end.wait();
            assert!((0..20).all(|_| list.threads().contains(&tid)));
            drop(go);
            youngest.join().expect("the thread ends");
            older.into_iter().for_each(|thread| thread.join().expect("the thread ends"));
        }
    }

    /// A program may close descriptors that it does not know, and have their numbers for its own files.
    #[test]
    fn a_file_of_the_program_is_not_taken_for_the_list() {
        if let Err(hidden) = try_to_see() {
            println!("skipped a_file_of_the_program_is_not_taken_for_the_list: {hidden}");
            return;
        }
        let mut list = ThreadList::default();
        assert!(list.threads().contains(&this_thread()));
        let (mut file, numbers) = (tempfile::tempfile().unwrap(), list.folder.as_ref().unwrap().numbers);
        file.write_all(b"of the program").unwrap();
        list.folder = Some(TaskFolder { file: file.try_clone().unwrap(), numbers });
        assert!(list.threads().contains(&this_thread()));
        assert_eq!(file.stream_position().unwrap(), 14);
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
        let mut list = ThreadList::default();
        assert!(list.strangers().contains(&tid));
        claim(tid);
        assert!(!list.strangers().contains(&tid));
        unclaim(tid);
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
