//! The report: one line for each check. Children send their lines to the parent as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The value is correct.
    Well,
    /// An observation without an expectation.
    Seen,
    /// A skipped check; the line states the reason.
    Skipped,
    Finding,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckLine {
    pub(super) group: String,
    pub(super) verdict: Verdict,
    pub(super) subject: String,
    pub(super) seen: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

/// Builder for the lines of a group.
#[derive(Debug)]
pub(super) struct ReportGroup {
    name: &'static str,
    pub(super) lines: Vec<CheckLine>,
}

impl ReportGroup {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, lines: Vec::new() }
    }

    fn line(
        &mut self,
        verdict: Verdict,
        subject: impl Into<String>,
        seen: impl Into<String>,
    ) -> &mut CheckLine {
        let (group, subject, seen) = (self.name.to_owned(), subject.into(), seen.into());
        self.lines.push(CheckLine { group, verdict, subject, seen, expected: None, remedy: None });
        let last = self.lines.len() - 1;
        &mut self.lines[last]
    }

    pub(super) fn well(&mut self, subject: impl Into<String>, seen: impl Into<String>) {
        self.line(Verdict::Well, subject, seen);
    }

    pub(super) fn seen(&mut self, subject: impl Into<String>, seen: impl Into<String>) {
        self.line(Verdict::Seen, subject, seen);
    }

    pub(super) fn skipped(&mut self, subject: impl Into<String>, why: impl Into<String>) {
        self.line(Verdict::Skipped, subject, why);
    }

    pub(super) fn finding(
        &mut self,
        subject: impl Into<String>,
        seen: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let line = self.line(Verdict::Finding, subject, seen);
        (line.expected, line.remedy) = (Some(expected.into()), Some(remedy.into()));
    }
}

#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    pub(super) version: &'static str,
    pub(super) findings: usize,
    pub(super) lines: Vec<CheckLine>,
}

impl DoctorReport {
    pub(super) fn new(lines: Vec<CheckLine>) -> Self {
        let findings = lines.iter().filter(|line| line.verdict == Verdict::Finding).count();
        Self { version: env!("CARGO_PKG_VERSION"), findings, lines }
    }

    /// Formats a paragraph for each group and a line for each check.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut group = "";
        for line in &self.lines {
            // Writing to a String cannot fail.
            if line.group != group {
                let _ = writeln!(text, "{}{}", if group.is_empty() { "" } else { "\n" }, line.group);
                group = &line.group;
            }
            let mark = match line.verdict {
                Verdict::Well => "ok",
                Verdict::Seen => "  ",
                Verdict::Skipped => "--",
                Verdict::Finding => "!!",
            };
            let _ = writeln!(text, "  {mark} {}: {}", line.subject, line.seen);
            if let Some(expected) = &line.expected {
                let _ = writeln!(text, "       expected: {expected}");
            }
            if let Some(remedy) = &line.remedy {
                let _ = writeln!(text, "       fix: {remedy}");
            }
        }
        let _ = match self.findings {
            0 => writeln!(text, "\nno findings"),
            1 => writeln!(text, "\n1 finding, marked !!"),
            count => writeln!(text, "\n{count} findings, marked !!"),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_was_seen_and_expected_and_what_to_do() {
        let mut host = ReportGroup::new("host");
        host.well("cores", "64");
        host.finding("/dev/shm", "64 MiB", "1 GiB", "start the container with --shm-size=16g");
        let mut driver = ReportGroup::new("driver");
        driver.skipped("driver", "emulated cards have none");
        let report = DoctorReport::new([host.lines, driver.lines].concat());
        assert_eq!(
            report.text(),
            "host\n  ok cores: 64\n  !! /dev/shm: 64 MiB\n       expected: 1 GiB\n       \
             fix: start the container with --shm-size=16g\n\ndriver\n  -- driver: emulated cards have none\n\n\
             1 finding, marked !!\n"
        );
    }
}
