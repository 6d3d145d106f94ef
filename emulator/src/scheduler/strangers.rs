//! The threads of this process, and those among them that no machine knows.
//!
//! Input: the operating system's list, threads that are claimed. Output: all threads; the strangers. Invariants: no thread that has
//! begun is missing while another ends; a list that is kept is read again before it can lack a thread. Does not: know what a thread
//! does (see `watch`). Without `/proc` (not Linux) there are none.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::watch::Tid;

/// The system's list of the threads of this process.
const FOLDER: &str = "/proc/self/task";

static CLAIMS: Mutex<Claims> = Mutex::new(Claims { tids: BTreeSet::new(), changes: 0 });

/// Threads that are the business of some machine, or no program's at all: they have called, or are an emulator's own.
#[derive(Debug)]
pub(crate) struct Claims {
    tids: BTreeSet<Tid>,
    /// Grows whenever they change.
    changes: u64,
}

impl Claims {
    /// A forked child has no threads but the one that forked.
    pub(crate) fn clear(&mut self) {
        self.tids.clear();
        self.changes += 1;
    }
}

/// The threads that are claimed, held.
pub(crate) fn claims() -> MutexGuard<'static, Claims> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a thread that is no stranger.
pub(crate) fn claim(tid: Tid) {
    let mut claims = claims();
    claims.changes += 1;
    claims.tids.insert(tid);
}

/// The thread ends; its number may come again.
pub(crate) fn unclaim(tid: Tid) {
    let mut claims = claims();
    claims.changes += 1;
    claims.tids.remove(&tid);
}

/// How many threads the process has: a link each of the folder, which has two of its own.
fn count(folder: &File) -> io::Result<u64> {
    Ok(folder.metadata()?.nlink().saturating_sub(2))
}

/// All threads of the process, and perhaps some that have just ended; none where they cannot be seen.
pub(crate) fn threads() -> BTreeSet<Tid> {
    File::open(FOLDER).and_then(|folder| list(&folder)).map(|(threads, _)| threads).unwrap_or_default()
}

/// The same, and whether nothing ended or began while they were listed.
fn list(folder: &File) -> io::Result<(BTreeSet<Tid>, bool)> {
    /// Times the list is read at most.
    const READS: usize = 8;
    let mut all = BTreeSet::new();
    for _ in 0..READS {
        let before = count(folder)?;
        let entries = fs::read_dir(FOLDER)?.flatten();
        let found: BTreeSet<Tid> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // A thread that ends while the list is read ends the list, though younger ones are there.
        let is_whole = [before, count(folder)?] == [found.len() as u64; 2];
        all.extend(found);
        if is_whole {
            return Ok((all, true));
        }
    }
    Ok((all, false))
}

/// What differs once the process has other threads, or others are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    /// The id that the system gave last, to any thread of any process.
    newest: [u8; 16],
    /// Threads of the process: one that has its id and does not stand in the list yet is counted when it does.
    count: u64,
    claims: u64,
}

/// All threads of the process nobody has claimed. The system's list is long to read where there are many, so it is read only when
/// somebody has come.
#[derive(Debug)]
pub(crate) struct Strangers {
    /// The list itself.
    folder: Option<File>,
    /// Where the system says which id it gave last. Systems that cannot take a process up again where it stood do not say it.
    newest: Option<File>,
    /// How it was when the threads were listed, and when it was last seen to be so.
    listed: Option<(Census, Instant)>,
    tids: BTreeSet<Tid>,
}

impl Strangers {
    /// Ids begin anew after the highest (32,767 on small hosts): in a time as short as this they cannot come round.
    const NO_ROUND: Duration = Duration::from_millis(20);

    /// As they are now.
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

    /// Those of now: perhaps some that have ended, and none that has begun is missing.
    pub(crate) fn look(&mut self) -> &BTreeSet<Tid> {
        let now = Instant::now();
        if self.folder.is_none() {
            self.folder = File::open(FOLDER).ok();
        }
        // Before the list: what comes behind makes it another.
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

    /// The system ends its list at a thread that ends meanwhile: read once, it lacks the youngest thread once in a thousand times here.
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
