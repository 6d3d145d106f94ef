//! Opens every generated page and drawing in headless Chromium.
//!
//! - Input: a folder.
//! - Output: screenshots of each page, and a report.
//! - Invariants: pages have no console errors, and every table or drawing has data. Without
//!   Chromium the chore prints a note and passes.
//! - Not here: tests of the contents.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::built::{Built, cargo};

/// Scripts that run before and after a page's own scripts.
const BEFORE: &str = include_str!("pages/before.js");
const AFTER: &str = include_str!("pages/after.js");

/// Widths of desktop and phone screenshots, in pixels.
const WIDTHS: [(&str, u32); 2] = [("", 1200), ("-narrow", 400)];

/// Size of `docs/rehearsal.png`, in pixels.
const SHOWN: (u32, u32) = (1200, 1212);

/// Commands that write pages. `{}` is the file.
const COMMANDS: [(&str, &str); 4] = [
    ("rehearsal", "rehearse qwen-72b --cards 8 --card 910b3 --html {}"),
    ("rehearsal-captured", "rehearse models/kjv-qwen2 --cards 2 --input 8 --output 4 --captured --html {}"),
    (
        "training",
        "rehearse --train models/kjv-qwen2 --cards 4 --mesh dp=2,tp=2 --zero 1 --global-batch 8 --micro-batch 1 --seq 64 --html {}",
    ),
    ("collectives", "bench collectives --quick --op all_reduce --ranks 2,4 --max-bytes 1M --plot {}"),
];

/// Committed drawings, by folder.
const DRAWINGS: [&str; 2] = ["docs", "docs/performance"];

/// Generates and opens all pages, and writes screenshots to `folder`. With `docs`, also writes
/// `docs/rehearsal.png`.
pub(crate) fn check(folder: &str, docs: Docs) -> Result<String> {
    let Some(browser) = browser() else {
        return Ok("skipped: no Chromium in PATH; set CHROMIUM, or run `apt-get install chromium`".to_owned());
    };
    let folder = env::current_dir().context("the current folder is unknown")?.join(folder);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut report = String::new();
    let mut problems = Vec::new();
    for (name, page) in pages(&folder)? {
        let opened = Opened::new(&browser, &folder, &name, &page)?;
        report += &format!("{name}: {}\n", opened.text());
        problems.extend(opened.problems().into_iter().map(|problem| format!("{name}: {problem}")));
    }
    if docs == Docs::Write {
        let (width, height) = SHOWN;
        let target = root().join("docs/rehearsal.png");
        screenshot(&browser, &folder.join("rehearsal.opened.html"), &target, width, height)?;
    }
    if !problems.is_empty() {
        bail!("{report}{}", problems.join("\n"));
    }
    Ok(format!("{report}all pages have data and no errors; screenshots are in {}", folder.display()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Docs {
    Keep,
    Write,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the browser in `CHROMIUM`, or the first in `PATH`.
fn browser() -> Option<PathBuf> {
    let named = env::var_os("CHROMIUM").map(PathBuf::from);
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    named.or_else(|| {
        names.iter().flat_map(|name| folders.iter().map(move |at| at.join(name))).find(|path| path.is_file())
    })
}

/// Generates the pages and reads the drawings, by name.
fn pages(folder: &Path) -> Result<Vec<(String, String)>> {
    let program = program()?;
    let mut pages = Vec::new();
    for (name, line) in COMMANDS {
        let file = folder.join(name);
        let words =
            line.split_whitespace().map(|word| if word == "{}" { file.clone().into() } else { word.into() });
        let words: Vec<std::ffi::OsString> = words.collect();
        let output = Command::new(&program).args(words).current_dir(root()).output().context("ascend-tp")?;
        if !output.status.success() {
            bail!("ascend-tp {line}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        pages.push((name.to_owned(), fs::read_to_string(&file).with_context(|| file.display().to_string())?));
        fs::remove_file(&file)?;
    }
    for drawings in DRAWINGS {
        let folder = root().join(drawings);
        let mut paths: Vec<PathBuf> =
            folder.read_dir().context(drawings)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "svg"));
        paths.sort();
        for path in paths {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            pages.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(pages)
}

fn program() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--package", "ascend-tp-cli", "--message-format=json-render-diagnostics"]);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo build: {}", output.status);
    }
    let built = Built::all(&output.stdout)?;
    let found = built.into_iter().find(|built| built.name == "ascend-tp" && built.kind == "bin");
    Ok(found.context("cargo built no ascend-tp")?.path)
}

/// Adds scripts that describe the page. A drawing becomes a page.
fn with_scripts(page: &str) -> String {
    let page = if page.starts_with("<svg") || page.starts_with("<?xml") {
        format!("<!doctype html>\n<html><head></head><body>{page}</body></html>")
    } else {
        page.to_owned()
    };
    page.replacen("<head>", &format!("<head><script>{BEFORE}</script>"), 1).replacen(
        "</body>",
        &format!("<script>{AFTER}</script></body>"),
        1,
    )
}

/// Description of a page by the scripts.
struct Opened {
    errors: Vec<String>,
    /// Rows or marks of each table and drawing.
    parts: Vec<(String, u64)>,
}

impl Opened {
    /// Opens a page at each width and writes screenshots.
    fn new(browser: &Path, folder: &Path, name: &str, page: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.opened.html"));
        fs::write(&path, with_scripts(page)).with_context(|| path.display().to_string())?;
        let mut first_opened = None;
        for (suffix, width) in WIDTHS {
            let (opened, height) = Self::dump(browser, &path, width)?;
            screenshot(browser, &path, &folder.join(format!("{name}{suffix}.png")), width, height)?;
            first_opened.get_or_insert(opened);
        }
        first_opened.context("no width")
    }

    fn dump(browser: &Path, page: &Path, width: u32) -> Result<(Self, u32)> {
        let size = format!("--window-size={width},1000");
        let output = run(browser, &["--dump-dom", &size], page)?;
        let text = String::from_utf8_lossy(&output);
        let found = text
            .split_once("<pre id=\"found\"")
            .and_then(|(_, rest)| Some(rest.split_once('>')?.1.split_once("</pre>")?.0));
        let found = found.with_context(|| format!("{}: Chromium returned no description", page.display()))?;
        let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let found: Value = serde_json::from_str(&found).context("the description of a page is not JSON")?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let errors = list(&found["errors"]).iter().map(text).collect();
        let parts = list(&found["parts"])
            .iter()
            .map(|part| (text(&part[0]), part[1].as_u64().unwrap_or(0)))
            .collect();
        let height = found["height"].as_u64().and_then(|height| u32::try_from(height).ok()).unwrap_or(1000);
        Ok((Self { errors, parts }, height))
    }

    fn text(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("{} errors; {}", self.errors.len(), parts.join(", "))
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.errors.clone();
        let empty = self.parts.iter().filter(|(_, count)| *count == 0);
        problems
            .extend(empty.map(|(name, _)| format!("`{name}` is empty: expected rows or marks, found none")));
        if self.parts.is_empty() {
            problems.push("expected a table or a drawing, found neither".to_owned());
        }
        problems
    }
}

fn screenshot(browser: &Path, page: &Path, target: &Path, width: u32, height: u32) -> Result<()> {
    let target = format!("--screenshot={}", target.display());
    run(browser, &["--hide-scrollbars", &target, &format!("--window-size={width},{height}")], page).map(drop)
}

/// Runs Chromium on a page and returns its standard output.
fn run(browser: &Path, options: &[&str], page: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new(browser);
    // Chromium has no sandbox in a container. These pages are trusted.
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000"])
        .args(options);
    let output = command.arg(format!("file://{}", page.display())).output().context("cannot run Chromium")?;
    if !output.status.success() {
        bail!("{}: Chromium: {}\n{}", page.display(), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_empty_tables_are_problems() {
        let opened =
            Opened { errors: vec!["no".to_owned()], parts: vec![("a".to_owned(), 1), ("b".to_owned(), 0)] };
        assert_eq!(opened.problems(), ["no", "`b` is empty: expected rows or marks, found none"]);
        assert_eq!(opened.text(), "1 errors; a 1, b 0");
        let nothing = Opened { errors: Vec::new(), parts: Vec::new() };
        assert_eq!(nothing.problems(), ["expected a table or a drawing, found neither"]);
    }

    #[test]
    fn a_drawing_becomes_a_page_with_scripts_around_it() {
        let page = with_scripts("<svg></svg>");
        let places = [BEFORE, "<svg></svg>", AFTER].map(|part| page.find(part).unwrap());
        assert!(places.is_sorted(), "{page}");
    }
}
