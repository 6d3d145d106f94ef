//! The threads of this process, and those that no machine knows ("strangers").
//!
//! Invariants: the list contains every started thread, even if another thread ends meanwhile.
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
    changes: u64,
}

impl Claims {
    /// A forked child has only the forking thread.
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

/// The id of an ended thread may be reused.
pub(crate) fn unclaim(tid: Tid) {
    let mut claims = claims();
    claims.changes += 1;
    claims.tids.remove(&tid);
}

/// The folder has one link per thread, and two others.
fn count(folder: &File) -> io::Result<u64> {
    Ok(folder.metadata()?.nlink().saturating_sub(2))
}

/// Returns all threads, and possibly some that have just ended. Empty if threads are not visible.
pub(crate) fn threads() -> BTreeSet<Tid> {
    File::open(FOLDER).and_then(|folder| list(&folder)).map(|(threads, _)| threads).unwrap_or_default()
}

/// The flag is true if no thread started or ended meanwhile.
fn list(folder: &File) -> io::Result<(BTreeSet<Tid>, bool)> {
    const READS: usize = 8;
    let mut all = BTreeSet::new();
    for _ in 0..READS {
        let before = count(folder)?;
        let entries = fs::read_dir(FOLDER)?.flatten();
        let found: BTreeSet<Tid> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // The list stops at a thread that ends meanwhile, and lacks younger threads.
        let is_whole = [before, count(folder)?] == [found.len() as u64; 2];
        all.extend(found);
        if is_whole {
            return Ok((all, true));
        }
    }
    Ok((all, false))
}

/// Changes when threads start, end or are claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Census {
    newest: [u8; 16],
    /// Number of threads. A thread that is not listed yet counts once it is listed.
    count: u64,
    claims: u64,
}

/// Reading the system's list is slow with many threads, so a change triggers it.
#[derive(Debug)]
pub(crate) struct Strangers {
    folder: Option<File>,
    /// Systems without checkpoint and restore do not have this file.
    newest: Option<File>,
    /// State at the time of the list, and when it was last seen.
    listed: Option<(Census, Instant)>,
    tids: BTreeSet<Tid>,
}

impl Strangers {
    /// Thread ids cannot wrap around within this time, even if they end at 32,767.
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

    /// Some strangers may have ended; none is missing.
    pub(crate) fn look(&mut self) -> &BTreeSet<Tid> {
        let now = Instant::now();
        if self.folder.is_none() {
            self.folder = File::open(FOLDER).ok();
        }
        // Read first, so that later changes are noticed.
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

    /// The system stops its list at a thread that ends meanwhile. A single reading lacks the
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
