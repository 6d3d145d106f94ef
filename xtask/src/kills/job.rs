//! A command with one or several processes, its own folder and its launcher's variables. Dropping a
//! [`CommandJob`] ends all processes.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::LOOK;

pub(super) const RANKS: usize = 3;

const BEGIN: Duration = Duration::from_secs(60);

const MARK: &str = "ASCEND_TP_KILLS";

#[derive(Clone, Copy, Debug)]
pub(super) enum JobLaunch {
    Alone,
    /// One process per card with these variables; `{job}` is a free port.
    Each(&'static str),
    /// Open MPI's launcher, or these variables without it.
    Mpirun(&'static str),
    /// The `--processes` option: the command starts its ranks.
    Own,
}

#[derive(Debug)]
pub(super) struct JobProcess {
    /// `None` for a launcher or a single process.
    pub(super) rank: Option<usize>,
    pub(super) id: u32,
    /// Index among this program's children.
    child: Option<usize>,
    pub(super) end: Option<JobEnd>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct JobEnd {
    pub(super) after: Duration,
    /// `None` for a child of another process.
    pub(super) status: Option<ExitStatus>,
}

#[derive(Debug)]
pub(super) struct CommandJob {
    folder: PathBuf,
    mark: String,
    before: Vec<PathBuf>,
    children: Vec<Child>,
    pub(super) processes: Vec<JobProcess>,
}

impl CommandJob {
    /// Starts the command and waits until all ranks have met and handle signals.
    pub(super) fn start(program: &Path, words: &[OsString], launch: JobLaunch, number: u64) -> Result<Self> {
        let mark = format!("{}-{number}", std::process::id());
        let folder = env::temp_dir().join(format!("kills-{mark}"));
        for part in ["", "runs", "temporary"] {
            let part = folder.join(part);
            fs::create_dir(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        let mut job = Self { folder, mark, before: shared(), children: Vec::new(), processes: Vec::new() };
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mpirun =
            ["--allow-run-as-root", "--oversubscribe", "-np", &RANKS.to_string()].map(OsString::from);
        match launch {
            JobLaunch::Alone | JobLaunch::Own => job.spawn(program, words, "")?,
            JobLaunch::Mpirun(_) if has_mpirun() => {
                let words = mpirun.into_iter().chain([program.into()]).chain(words.iter().cloned());
                job.spawn(Path::new("mpirun"), &words.collect::<Vec<_>>(), "")?;
            }
            JobLaunch::Each(variables) | JobLaunch::Mpirun(variables) => {
                for rank in 0..RANKS {
                    let said = [
                        ("{rank}", rank.to_string()),
                        ("{size}", RANKS.to_string()),
                        ("{job}", port.to_string()),
                    ];
                    let variables = said
                        .iter()
                        .fold(variables.to_owned(), |text, (name, value)| text.replace(name, value));
                    job.spawn(program, words, &variables)?;
                }
            }
        }
        job.wait_for_work(launch)?;
        Ok(job)
    }

    fn spawn(&mut self, program: &Path, words: &[OsString], variables: &str) -> Result<()> {
        let errors = File::create(self.folder.join(format!("{}.errors", self.children.len())))?;
        let mut command = Command::new(program);
        command.args(words).env_clear().env(MARK, &self.mark).env("TMPDIR", self.folder.join("temporary"));
        command.envs(["PATH", "HOME"].iter().filter_map(|name| Some((name, env::var_os(name)?))));
        command.envs(variables.split_whitespace().filter_map(|variable| variable.split_once('=')));
        command
            .current_dir(self.folder.join("runs"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        self.children.push(child);
        Ok(())
    }

    fn wait_for_work(&mut self, launch: JobLaunch) -> Result<()> {
        let started = Instant::now();
        let is_parent = match launch {
            JobLaunch::Alone | JobLaunch::Own => true,
            JobLaunch::Mpirun(_) => has_mpirun(),
            JobLaunch::Each(_) => false,
        };
        let has_ranks = !matches!(launch, JobLaunch::Alone);
        loop {
            let own = self.children.iter().enumerate();
            let own = own.map(|(at, child)| ((!is_parent).then_some(at), child.id(), Some(at)));
            let mut all: Vec<_> = own.collect();
            if is_parent && has_ranks {
                all.extend(
                    ranks_of(self.children[0].id()).into_iter().map(|(rank, id)| (Some(rank), id, None)),
                );
            }
            let expected = usize::from(is_parent) + if has_ranks { RANKS } else { 0 };
            // The launcher handles signals in its own way.
            let is_launcher = |rank: Option<usize>| rank.is_none() && matches!(launch, JobLaunch::Mpirun(_));
            let is_at_work = |(rank, id, _): &(Option<usize>, u32, _)| {
                is_launcher(*rank) || (catches_signals(*id) && (rank.is_none() || has_met(*id)))
            };
            if all.len() == expected && all.iter().all(is_at_work) {
                let process = |(rank, id, child)| JobProcess { rank, id, child, end: None };
                self.processes = all.into_iter().map(process).collect();
                return Ok(());
            }
            for at in 0..self.children.len() {
                if let Some(status) = self.children[at].try_wait()? {
                    bail!("ended ({status}) before all ranks had started: {}", self.said_by(at));
                }
            }
            if started.elapsed() > BEGIN {
                bail!("the ranks had not started after {} s", BEGIN.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn look(&mut self, since: Instant) -> Result<()> {
        for process in self.processes.iter_mut().filter(|process| process.end.is_none()) {
            let status = match process.child {
                Some(at) => self.children[at].try_wait()?,
                None => None,
            };
            if status.is_some() || (process.child.is_none() && !is_there(process.id)) {
                process.end = Some(JobEnd { after: since.elapsed(), status });
            }
        }
        Ok(())
    }

    /// Waits until the awaited processes end, or for `limit`.
    pub(super) fn wait(&mut self, since: Instant, limit: Duration, awaited: &[usize]) -> Result<()> {
        loop {
            self.look(since)?;
            let is_over = awaited.iter().all(|at| self.processes[*at].end.is_some());
            if is_over || since.elapsed() > limit {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn said(&self, process: &JobProcess) -> String {
        self.said_by(process.child.unwrap_or(0))
    }

    fn said_by(&self, child: usize) -> String {
        let bytes = fs::read(self.folder.join(format!("{child}.errors"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Returns the processes and files left after at most `limit`.
    pub(super) fn left(&self, limit: Duration) -> Vec<String> {
        let since = Instant::now();
        let mut processes = self.marked();
        while !processes.is_empty() && since.elapsed() < limit {
            std::thread::sleep(LOOK);
            processes = self.marked();
        }
        let mut left: Vec<String> = processes.iter().map(|id| format!("process {id}")).collect();
        left.extend(files(&self.folder.join("runs")));
        // The user's socket folder may stay.
        let sockets = format!("ascend-tp-{}", fs::metadata(&self.folder).map_or(0, |own| own.uid()));
        left.extend(
            files(&self.folder.join("temporary")).into_iter().filter(|path| !path.ends_with(&sockets)),
        );
        let is_new = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !self.before.contains(path) && self.processes.iter().any(|process| names_it(&name, process.id))
        };
        left.extend(shared().into_iter().filter(is_new).map(|path| path.display().to_string()));
        left
    }

    fn marked(&self) -> Vec<u32> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(|id| variable(*id, MARK).as_deref() == Some(self.mark.as_str()) && is_there(*id)).collect()
    }
}

impl Drop for CommandJob {
    fn drop(&mut self) {
        for id in self.marked() {
            signal("KILL", id);
        }
        for child in &mut self.children {
            let _status = child.wait();
        }
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn signal(name: &str, process: u32) {
    let _status =
        Command::new("kill").args([format!("-{name}"), process.to_string()]).stderr(Stdio::null()).status();
}

pub(super) fn code(status: ExitStatus) -> String {
    let signal = status.signal().map(|signal| format!("signal {signal}"));
    status.code().map(|code| code.to_string()).or(signal).unwrap_or_else(|| status.to_string())
}

pub(super) fn has_mpirun() -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join("mpirun").is_file())
}

pub(super) fn ranks_of(parent: u32) -> Vec<(usize, u32)> {
    let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    let rank =
        |id: u32| ["RANK", "OMPI_COMM_WORLD_RANK"].iter().find_map(|name| variable(id, name)?.parse().ok());
    let mut ranks: Vec<(usize, u32)> = listed
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .filter_map(|id| Some((rank(id)?, id)))
        .collect();
    ranks.sort_unstable();
    ranks
}

fn variable(process: u32, name: &str) -> Option<String> {
    let all = fs::read(format!("/proc/{process}/environ")).ok()?;
    let found =
        all.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    found.map(|value| String::from_utf8_lossy(value).into_owned())
}

fn catches_signals(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
}

/// The thread `store news` starts after the rendezvous.
pub(super) fn has_met(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim() == "store news")
}

/// Zombies do not count.
pub(super) fn is_there(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| {
        let found =
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) { files(&entry.path()) } else { Vec::new() };
        if found.is_empty() { vec![entry.path().display().to_string()] } else { found }
    });
    below.collect()
}

fn shared() -> Vec<PathBuf> {
    let folders = [env::temp_dir(), PathBuf::from("/dev/shm")];
    folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .collect()
}

fn names_it(name: &str, process: u32) -> bool {
    let id = process.to_string();
    name.split(|c: char| !c.is_ascii_digit()).any(|number| number == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_what_proc_says() {
        let own = std::process::id();
        assert!(is_there(own) && !is_there(u32::MAX));
        assert_eq!(variable(own, "PATH"), env::var("PATH").ok());
        assert_eq!(variable(own, "PAT"), None);
        assert!(!has_met(own));
    }

    #[test]
    fn a_number_is_not_part_of_another() {
        assert!(names_it("ascend-emulator-4711-0", 4711));
        assert!(!names_it("ascend-emulator-14711-0", 4711));
    }
}
