//! Log with one JSON line per step.
//!
//! Steps ascend, so a resumed run keeps a prefix of the file. Later lines and torn lines are
//! removed. Numbers have all their digits, and NaN or infinity becomes `null`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::{Diagnostic, Diagnostics};

/// Numbers of one training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepRecord {
    /// Number of the step, from 0.
    pub step: u64,
    /// Mean loss over counted labels.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Learning rate of the update.
    pub lr: f64,
    /// Tokens of the global batch.
    pub tokens: u64,
    /// Duration of the step in seconds.
    pub seconds: f64,
    /// Further measurements, by name.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// Open log of a run.
#[derive(Debug)]
pub struct StepLog {
    path: PathBuf,
    file: File,
    /// Smallest step that can be written next.
    next: u64,
}

impl StepLog {
    /// Opens the log of a run that begins at step `first`, and removes the lines of this and later
    /// steps.
    ///
    /// # Errors
    /// The file cannot be read or written, or earlier lines are not ascending steps.
    pub fn begin(path: &Path, first: u64) -> Result<Self, Diagnostics> {
        let place = path.display().to_string();
        let failed = |error: io::Error| Diagnostic::new(&place, "cannot be written").found(error);
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        // Pipes and terminals cannot be truncated.
        if file.metadata().map_err(failed)?.is_file() {
            let kept = if first == 0 { 0 } else { kept(&place, &file, first)? };
            file.set_len(kept).map_err(failed)?;
        }
        Ok(Self { path: path.to_path_buf(), file, next: first })
    }

    /// Writes the line of a step.
    ///
    /// # Errors
    /// The step has a line, a name is used twice, or the file cannot be written.
    pub fn write(&mut self, step: &StepRecord) -> Result<(), Diagnostic> {
        let problem =
            |what: &str| Diagnostic::new(format!("{}: step {}", self.path.display(), step.step), what);
        if step.step < self.next {
            return Err(
                problem("the step already has a line").expected(format!("step {} or a later one", self.next))
            );
        }
        if let Some(name) = step.more.keys().find(|name| NAMES.contains(&name.as_str())) {
            return Err(problem("two metrics have the same name").found(name));
        }
        let mut line = serde_json::to_vec(step).map_err(|error| problem("cannot be written").found(error))?;
        line.push(b'\n');
        // One call, so that readers see whole lines.
        self.file.write_all(&line).map_err(|error| problem("cannot be written").found(error))?;
        self.next = step.step + 1;
        Ok(())
    }
}

/// Fixed fields of a line.
const NAMES: [&str; 6] = ["step", "loss", "grad_norm", "lr", "tokens", "seconds"];

/// Returns the length of the lines of steps before `first`.
fn kept(place: &str, file: &File, first: u64) -> Result<u64, Diagnostic> {
    #[derive(Deserialize)]
    struct LoggedNumber {
        step: u64,
    }
    let mut reader = BufReader::new(file);
    let (mut line, mut number, mut kept, mut last) = (Vec::new(), 0, 0, None);
    loop {
        line.clear();
        number += 1;
        let problem = |what: &str| Diagnostic::new(format!("{place}: line {number}"), what);
        let bytes =
            reader.read_until(b'\n', &mut line).map_err(|error| problem("cannot be read").found(error))?;
        if !line.ends_with(b"\n") {
            // End of the file, or a torn line.
            return Ok(kept);
        }
        let LoggedNumber { step } = serde_json::from_slice(&line).map_err(|error| {
            problem("not the line of a step").found(error).help("move the file away, or name another")
        })?;
        if last.is_some_and(|last| step <= last) {
            return Err(problem("steps do not ascend")
                .expected(format!("a step after {}", last.unwrap_or_default()))
                .found(step)
                .help("move the file away, or name another"));
        }
        if step >= first {
            return Ok(kept);
        }
        kept += bytes as u64;
        last = Some(step);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn step(step: u64) -> StepRecord {
        let loss = 1.0 / (step as f64 + 3.0);
        StepRecord {
            step,
            loss,
            grad_norm: 0.1 + 0.2,
            lr: 1e-3,
            tokens: 256,
            seconds: 0.25,
            ..StepRecord::default()
        }
    }

    fn run(path: &Path, steps: std::ops::Range<u64>) {
        let mut log = StepLog::begin(path, steps.start).unwrap();
        steps.for_each(|number| log.write(&step(number)).unwrap());
    }

    fn steps(path: &Path) -> Vec<u64> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64().unwrap())
            .collect()
    }

    #[test]
    fn a_line_has_the_fields_in_order_and_all_digits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        let mut log = StepLog::begin(&path, 0).unwrap();
        let more =
            [("mfu".to_owned(), Value::from(0.5)), ("memory_peak_bytes".to_owned(), Value::from(7))].into();
        log.write(&StepRecord { more, ..step(0) }).unwrap();
        log.write(&StepRecord { loss: f64::NAN, ..step(1) }).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"step\":0,\"loss\":0.3333333333333333,\"grad_norm\":0.30000000000000004,\"lr\":0.001,\"tokens\":256,\
             \"seconds\":0.25,\"memory_peak_bytes\":7,\"mfu\":0.5}\n{\"step\":1,\"loss\":null,\
             \"grad_norm\":0.30000000000000004,\"lr\":0.001,\"tokens\":256,\"seconds\":0.25}\n"
        );
        let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["loss"].as_f64().map(f64::to_bits), Some((1.0f64 / 3.0).to_bits()));
        let again = log.write(&step(1)).unwrap_err().to_string();
        assert!(
            again.ends_with("m.jsonl: step 1: the step already has a line: expected step 2 or a later one"),
            "{again}"
        );
        let more = [("lr".to_owned(), Value::Null)].into();
        let twice = log.write(&StepRecord { more, ..step(2) }).unwrap_err().to_string();
        assert!(twice.ends_with("step 2: two metrics have the same name: found lr"), "{twice}");
    }

    #[test]
    fn a_run_that_goes_on_has_each_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        run(&path, 0..7);
        let uninterrupted = fs::read(&path).unwrap();
        for first in 0..9 {
            run(&path, first.min(7)..7);
            assert_eq!(fs::read(&path).unwrap(), uninterrupted);
        }
        run(&path, 5..6);
        assert_eq!(steps(&path), [0, 1, 2, 3, 4, 5]);
        run(&path, 0..2);
        assert_eq!(steps(&path), [0, 1], "a run from nothing begins a new log");
    }

    #[test]
    fn a_line_torn_anywhere_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        run(&path, 0..4);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let whole_lines = whole[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            run(&path, whole_lines.max(1)..4);
            let expected: Vec<u64> = if whole_lines == 0 { vec![1, 2, 3] } else { vec![0, 1, 2, 3] };
            assert_eq!(steps(&path), expected, "{length}");
        }
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        for (text, expected) in [
            ("{\"step\":0}\nloss 3\n{\"step\":2}\n", "m.jsonl: line 2: not the line of a step: found"),
            (
                "{\"step\":1}\n{\"step\":1}\n",
                "m.jsonl: line 2: steps do not ascend: expected a step after 1, found 1",
            ),
            ("{\"loss\":1}\n", "m.jsonl: line 1: not the line of a step: found missing field `step`"),
        ] {
            fs::write(&path, text).unwrap();
            let message = StepLog::begin(&path, 3).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let message = StepLog::begin(folder.path(), 3).unwrap_err().to_string();
        assert!(message.contains("cannot be written: found Is a directory"), "{message}");
    }
}
