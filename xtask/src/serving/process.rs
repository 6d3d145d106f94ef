//! The process of the server under load.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::kills;

/// Fewer cache blocks than all sequences need at full length, so that some are preempted.
const OPTIONS: &str = "serve --device emulator --cards 2 --emulated-cards 2 --max-num-seqs 16 --max-model-len 512 \
                       --max-num-batched-tokens 128 --kv-cache-blocks 20 --port 0";

/// Time for the end after SIGTERM.
const END: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(20);

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    pub(super) address: SocketAddr,
    /// Reads the log, and returns its warnings and errors.
    log: Option<JoinHandle<Vec<String>>>,
}

impl ServerProcess {
    /// Starts a server of the shipped model, and waits until it is ready.
    pub(super) fn start(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(OPTIONS.split_whitespace()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let mut errors = BufReader::new(child.stderr.take().context("the server has no stderr")?);
        let mut said = String::new();
        loop {
            let start = said.len();
            if errors.read_line(&mut said)? == 0 {
                bail!("the server ended before it was ready ({}): {said}", child.wait()?);
            }
            if let Some((_, rest)) = said[start..].split_once("http://") {
                let address = rest.split(',').next().unwrap_or_default().trim();
                let address = address.parse().with_context(|| said.clone())?;
                let log = std::thread::spawn(move || alarms(errors));
                return Ok(Self { child, address, log: Some(log) });
            }
        }
    }

    /// Returns the resident memory, in bytes.
    pub(super) fn resident(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(kib.with_context(|| format!("{path} has no VmRSS: the server has ended"))? << 10)
    }

    /// Ends the server in order. Returns the problems, and the warnings of the log.
    pub(super) fn stop(&mut self) -> Vec<String> {
        let mut findings = Vec::new();
        kills::signal("TERM", self.child.id());
        let started = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => {
                    findings.push(format!("the server ended with {status}"));
                    break;
                }
                Ok(None) if started.elapsed() > END => {
                    findings.push(format!("the server did not end within {} s", END.as_secs()));
                    return findings;
                }
                Ok(None) => std::thread::sleep(LOOK),
                Err(error) => {
                    findings.push(format!("the server cannot be awaited: {error}"));
                    return findings;
                }
            }
        }
        let log = self.log.take().and_then(|log| log.join().ok());
        findings.extend(log.into_iter().flatten().map(|line| format!("a line of the log: {line}")));
        findings
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Returns the lines of a log that report a problem of the server.
fn alarms(mut errors: BufReader<ChildStderr>) -> Vec<String> {
    let mut found = Vec::new();
    let mut line = Vec::new();
    // A broken pipe ends the log.
    while errors.by_ref().read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line);
        if is_alarm(&text) {
            found.push(text.trim().to_owned());
        }
        line.clear();
    }
    found
}

/// Requests and refusals are information. Other lines of a server that runs are problems.
fn is_alarm(line: &str) -> bool {
    !line.trim().is_empty() && !line.contains(" INFO ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_requests_are_no_alarm() {
        assert!(!is_alarm("2026-01-01T00:00:00Z  INFO request: ascend_tp_server: id=\"a\""));
        assert!(is_alarm("2026-01-01T00:00:00Z  WARN ascend_tp_server::http: the engine has failed"));
        assert!(is_alarm("error: rank 1 failed"));
        assert!(!is_alarm("\n"));
    }
}
