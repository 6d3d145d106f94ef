//! The threads of this process, and those that no machine knows ("strangers").
//!
//! Input: the operating system's list, and claimed threads. Output: all threads, and the strangers.
//! Invariants: the list contains every started thread, even if another thread ends meanwhile. A
//! cached list is read again before it can lack a thread. Not here: thread states (see `watch`).
//! Without `/proc` (not Linux) the lists are empty.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::watch::Tid;

const FOLDER: &str = "/proc/self/task";

static CLAIMS: Mutex<Claims> = Mutex::new(Claims { tids: BTreeSet::new(), changes: 0 });

#[derive(Debug)]
pub(crate) struct Claims {
    tids: BTreeSet<Tid>,
    /// Increases with every change.
    changes: u64,
}

impl Claims {
    /// Removes all threads. A forked child has only the forking thread.
    pub(crate) fn clear(&mut self) {
        self.tids.clear();
        self.changes += 1;
    }
}

pub(crate) fn claims() -> MutexGuard<'static, Claims> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn claim(tid: Tid) {
    let mut claims = claims();
    claims.changes += 1;
    claims.tids.insert(tid);
}

/// Removes a thread that ends. Its id may be reused.
pub(crate) fn unclaim(tid: Tid) {
    let mut claims = claims();
    claims.changes += 1;
    claims.tids.remove(&tid);
}

/// Returns the number of threads of the process: the folder has one link per thread, and two
/// others.
fn count(folder: &File) -> io::Result<u64> {
    Ok(folder.metadata()?.nlink().saturating_sub(2))
}

/// Returns all threads of the process, and possibly some that have just ended. Empty if threads are
/// not visible.
pub(crate) fn threads() -> BTreeSet<Tid> {
    File::open(FOLDER).and_then(|folder| list(&folder)).map(|(threads, _)| threads).unwrap_or_default()
}

/// Returns all threads, and whether none started or ended while they were listed.
fn list(folder: &File) -> io::Result<(BTreeSet<Tid>, bool)> {
    const READS: usize = 8;
    let mut all = BTreeSet::new();
    for _ in 0..READS {
        let before = count(folder)?;
        let entries = fs::read_dir(FOLDER)?.flatten();
        let found: BTreeSet<Tid> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // If a thread ends while the list is read, the list stops there and lacks younger threads.
        let is_whole = [before, count(folder)?] == [found.len() as u64; 2];
        all.extend(found);
        if is_whole {
            return Ok((all, true));
        }
    }
    Ok((all, false))
}

/// Values that change when threads start, end or are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    /// Last id that the system assigned, to any thread of any process.
    newest: [u8; 16],
    /// Number of threads. A thread that has its id but is not listed yet counts once it is listed.
    count: u64,
    claims: u64,
}

/// The unclaimed threads of the process. Reading the system's list is slow with many threads, so it
/// is read only after a change.
#[derive(Debug)]
pub(crate) struct Strangers {
    folder: Option<File>,
    /// File with the last assigned id. Systems without checkpoint and restore do not have it.
    newest: Option<File>,
    /// State at the time of the list, and when that state was last seen.
    listed: Option<(Census, Instant)>,
    tids: BTreeSet<Tid>,
}

impl Strangers {
    /// Thread ids restart after the highest (32,767 on small hosts). They cannot wrap around within
    /// this time.
    const NO_ROUND: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        let newest = File::open("/proc/sys/kernel/ns_last_pid").ok();
        let mut all = Self { folder: None, newest, listed: None, tids: BTreeSet::new() };
        all.look();
        all
    }

    fn census(&self) -> Option<Census> {
        let mut newest = [0; 16];
        self.newest.as_ref()?.read_at(&mut newest, 0).ok().filter(|len| *len > 0)?;
        Some(Census { newest, count: count(self.folder.as_ref()?).ok()?, claims: claims().changes })
    }

    /// Returns the current strangers. Some may have ended; none is missing.
    pub(crate) fn look(&mut self) -> &BTreeSet<Tid> {
        let now = Instant::now();
        if self.folder.is_none() {
            self.folder = File::open(FOLDER).ok();
        }
        // Read before the list, so that later changes are noticed.
        let census = self.census();
        if let (Some((listed, seen)), Some(census)) = (&mut self.listed, census)
            && *listed == census
            && now.duration_since(*seen) < Self::NO_ROUND
        {
            *seen = now;
            return &self.tids;
        }
        let list = self.folder.as_ref().and_then(|folder| list(folder).ok());
        let (threads, is_whole) = list.unwrap_or_default();
        self.listed = census.filter(|_| is_whole).map(|census| (census, now));
        self.tids = &threads - &claims().tids;
        &self.tids
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};

    use super::*;
    use crate::scheduler::watch;

    /// The system stops its list at a thread that ends meanwhile. Read once, the list lacks the
    /// youngest thread once in a thousand times here.
    #[test]
    fn no_thread_is_overlooked_while_older_ones_end() {
        const OLDER: usize = 16;
        if let Err(hidden) = watch::try_to_see() {
            println!("skipped no_thread_is_overlooked_while_older_ones_end: {hidden}");
            return;
        }
        let mut strangers = Strangers::new();
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
                tell.send(watch::this_thread()).expect("the test listens");
                let _ = gone.recv();
            });
            let tid = told.recv().expect("the thread tells");
            end.wait();
            assert!((0..20).all(|_| threads().contains(&tid) && strangers.look().contains(&tid)));
            drop(go);
            youngest.join().expect("the thread ends");
            older.into_iter().for_each(|thread| thread.join().expect("the thread ends"));
        }
    }

    #[test]
    fn who_is_claimed_is_no_stranger() {
        if let Err(hidden) = watch::try_to_see() {
            println!("skipped who_is_claimed_is_no_stranger: {hidden}");
            return;
        }
        let mut strangers = Strangers::new();
        let me = watch::this_thread();
        assert!(strangers.look().contains(&me));
        claim(me);
        assert!(!strangers.look().contains(&me));
        unclaim(me);
        assert!(strangers.look().contains(&me));
    }
}
