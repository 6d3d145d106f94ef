//! Access to the host: files below a root directory, and external tools that may hang. A tool is
//! killed after [`TOOL_LIMIT`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

/// Time limit of a tool. `npu-smi` waits for minutes if a card does not answer.
pub(crate) const TOOL_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolOutcome {
    /// Output of a successful tool.
    Answer(String),
    Absent,
    /// Status and last line of a failed tool.
    Failed(String),
    Hung,
}

/// A host, or a directory that imitates a host in tests.
#[derive(Debug)]
pub(super) struct System {
    root: PathBuf,
}

impl System {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the sorted names in a folder, or nothing if the folder is missing.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the cards that have a device file.
    pub(super) fn cards(&self) -> Vec<usize> {
        let number = |name: &String| name.strip_prefix("davinci")?.parse().ok();
        let mut cards: Vec<usize> = self.names("/dev").iter().filter_map(number).collect();
        cards.sort_unstable();
        cards
    }

    pub(super) fn entry(&self, path: &str, key: &str) -> Option<String> {
        entry(&self.read(path)?, key)
    }
}

/// Returns the trimmed value of a `key=value` line.
pub(super) fn entry(text: &str, key: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| *name == key)
        .map(|(_, v)| v.to_owned())
}

/// Returns the text after the first colon of a line that starts with `key`.
pub(super) fn said(text: &str, key: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

pub(super) fn tool(name: &str, arguments: &[&str]) -> ToolOutcome {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null());
    match run(command, TOOL_LIMIT) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => ToolOutcome::Absent,
        Err(error) => ToolOutcome::Failed(error.to_string()),
        Ok(None) => ToolOutcome::Hung,
        Ok(Some(ended)) if ended.status.success() => ToolOutcome::Answer(ended.stdout),
        // posix_spawn may succeed before the program is found. Exit code 127 then means that the
        // program does not exist.
        Ok(Some(ended)) if ended.status.code() == Some(127) && ended.is_silent() => ToolOutcome::Absent,
        Ok(Some(ended)) => ToolOutcome::Failed(format!("{}: {}", ended.status, last_words(&ended))),
    }
}

pub(crate) struct EndedProgram {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl EndedProgram {
    fn is_silent(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }
}

/// Returns the last line of stderr, or else of stdout.
pub(super) fn last_words(ended: &EndedProgram) -> String {
    let line = |text: &str| text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
    line(&ended.stderr).or_else(|| line(&ended.stdout)).unwrap_or_else(|| "no output".to_owned())
}

/// Runs a program and kills it after `limit`; then returns `None`.
pub(crate) fn run(mut command: Command, limit: Duration) -> std::io::Result<Option<EndedProgram>> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let Some(status) = wait(&mut child, limit)? else {
        child.kill()?;
        // A process inside the driver ends only when the driver returns.
        let _ended = wait(&mut child, Duration::from_millis(200))?;
        return Ok(None);
    };
    // A grandchild may keep the pipes open.
    let text = |from: Receiver<String>| from.recv_timeout(limit).unwrap_or_default();
    Ok(Some(EndedProgram { status, stdout: text(stdout), stderr: text(stderr) }))
}

/// Reads a pipe on a separate thread.
fn reader(pipe: Option<impl std::io::Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = bounded(1);
    if let Some(mut pipe) = pipe {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // Bytes before a read error are kept.
            let _ended = std::io::Read::read_to_end(&mut pipe, &mut bytes);
            let _nobody_waits = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    receiver
}

/// Polls for at most `limit`, because the standard library has no wait with a time limit.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Returns a variable that is set and not empty.
pub(super) fn variable(name: impl AsRef<OsStr>) -> Option<String> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_does_not_end_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("600");
        assert!(run(command, Duration::from_millis(20)).unwrap().is_none());
    }

    #[test]
    fn what_a_tool_says_is_kept_and_one_that_is_not_there_is_told_of() {
        assert_eq!(
            tool("echo", &["Health Status : OK"]),
            ToolOutcome::Answer("Health Status : OK\n".to_owned())
        );
        assert_eq!(tool("no-such-tool-of-a-driver", &[]), ToolOutcome::Absent);
        let ToolOutcome::Failed(why) = tool("ls", &["/no/such/folder"]) else { panic!("expected a failure") };
        assert!(why.contains("/no/such/folder"), "{why}");
    }

    #[test]
    fn entries_are_found_by_their_names() {
        assert_eq!(entry("package = a\nversion = 8.5.0\n", "version").as_deref(), Some("8.5.0"));
        assert_eq!(said("\n  Health Status                  : OK\n", "Health Status").as_deref(), Some("OK"));
    }
}
