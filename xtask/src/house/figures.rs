//! Compares code statistics with another commit. The current program counts both; nothing of the
//! commit is built.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::source::{self, RustFile};
use super::{CIRCLES, Items, LIBRARY, LONG_FUNCTION, PublicApi, Uses, circles, lines_by_package, packages};
use crate::project;

const EMULATOR: &str = "emulator/src/";

/// Returns a Markdown table.
pub(crate) fn since(commit: &str) -> Result<String> {
    let root = project::root();
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    unpack(commit, &root, folder.path())?;
    let (before, now) = (figures(folder.path())?, figures(&root)?);
    let mut text =
        format!("| counted by `cargo xtask house --since {commit}` | {commit} | now |\n|---|---:|---:|\n");
    let of = |figures: &[HouseFigure], name: &str| {
        figures.iter().find(|(other, _)| other == name).map_or(String::new(), |(_, count)| count.to_string())
    };
    let gone = before.iter().filter(|(name, _)| now.iter().all(|(other, _)| other != name));
    for (name, _) in now.iter().chain(gone) {
        let _ = writeln!(text, "| {name} | {} | {} |", of(&before, name), of(&now, name));
    }
    Ok(text)
}

/// Unpacks a commit into a new git repository.
fn unpack(commit: &str, root: &Path, folder: &Path) -> Result<()> {
    let run = |command: &mut Command| -> Result<()> {
        let name = command.get_program().display().to_string();
        let output = command.output().with_context(|| format!("cannot run {name}"))?;
        if !output.status.success() {
            bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    };
    let archive = folder.join("commit.tar");
    run(Command::new("git").args(["archive", "--output"]).arg(&archive).arg(commit).current_dir(root))?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder))?;
    run(Command::new("git").args(["init", "--quiet"]).arg(folder))
}

type HouseFigure = (String, usize);

fn figures(root: &Path) -> Result<Vec<HouseFigure>> {
    let sources = source::read(root)?;
    let items = Items::of(&sources)?;
    let mut figures: Vec<HouseFigure> = Vec::new();
    let mut add = |name: &str, count: usize| figures.push((name.to_owned(), count));
    let code = |of: &dyn Fn(&RustFile) -> bool| -> usize {
        sources
            .iter()
            .filter(|source| of(source))
            .map(|source| source::code_lines(&source.shipped).len())
            .sum()
    };
    add("lines of code", code(&|_| true));
    add(
        "lines of code without training (files with `train` in the path)",
        code(&|source| !source.path.contains("train")),
    );
    for (package, row) in lines_by_package(&sources) {
        add(&format!("lines of code in `{package}`"), row[0]);
    }
    add("all lines of Rust", sources.iter().map(|source| source.lines).sum());
    add("type names with two or more types", items.types.values().filter(|places| places.len() > 1).count());
    let (public, unused, for_tests) = items.public_uses(&Uses::of(&sources));
    let shown = PublicApi::of(&sources)?;
    add(&format!("public items of `{LIBRARY}` that `cargo doc` shows"), shown.count());
    add("entry types that `cargo doc` shows", shown.entries());
    add("entry types with an example", shown.entries_with_example());
    add(&format!("`pub` items of `{LIBRARY}`"), public);
    add("public items used in no other file", unused.len());
    add("public items used only in tests, examples and benches", for_tests);
    add(&format!("functions of more than {LONG_FUNCTION} lines"), items.long.len());
    add("functions with tuple parameters", items.tupled.len());
    add("enums with a variant `AllReduce`", items.all_reduces);
    for (folder, circles) in CIRCLES.iter().zip(circles(root)?) {
        add(&format!("files in the largest import cycle of `{folder}`"), circles.first().map_or(0, Vec::len));
    }
    for name in ["State", "Machine"] {
        let mut files = items.blocks.get(&("emulator", name.to_owned())).cloned().unwrap_or_default();
        files.sort_unstable();
        files.dedup();
        add(&format!("emulator files with `impl {name}`"), files.len());
    }
    let inside = |source: &&RustFile, folder: &str| {
        source.path.strip_prefix(folder).is_some_and(|file| !file.contains('/'))
    };
    add(
        &format!("files directly in `{EMULATOR}`"),
        sources.iter().filter(|source| inside(source, EMULATOR)).count(),
    );
    let abi = sources.iter().filter(|source| source.path.starts_with("emulator/src/abi/"));
    add(
        "`unsafe` blocks in `emulator/src/abi/`",
        abi.map(|source| source::unsafe_blocks(&source.shipped)).sum(),
    );
    if let Ok(packages) = packages(root) {
        add("packages of the library without features", packages);
    }
    Ok(figures)
}
