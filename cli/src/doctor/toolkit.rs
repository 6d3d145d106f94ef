//! Checks of the toolkit: location, version, compatibility with the driver, missing functions.

use std::path::{Path, PathBuf};

use ascend_tp::device::toolkit_version;
use ascend_tp_sys::{Library, Table, USUAL_FOLDER, library_folder, load, toolkit_folders};

use super::driver::VERSION as DRIVER;
use super::operators;
use super::report::ReportGroup;
use super::system::{System, entry};

/// Finds the toolkit that a process would load.
pub(super) fn find(system: &System, group: &mut ReportGroup) -> Option<PathBuf> {
    let mut toolkit: Option<PathBuf> = None;
    let mut looked_at = Vec::new();
    // The linker's search path comes last.
    let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths =
        std::env::split_paths(&paths).filter(|path| path.is_absolute()).map(|path| (path, "LD_LIBRARY_PATH"));
    for (folder, named_by) in toolkit_folders().into_iter().chain(paths) {
        let is_named = named_by.starts_with("ASCEND");
        let folder = if named_by == USUAL_FOLDER { system.path(&folder.to_string_lossy()) } else { folder };
        match library_folder(&folder) {
            Ok(_) if toolkit.is_none() => {
                group.well("toolkit", format!("{} ({named_by})", folder.display()));
                toolkit = Some(folder);
            }
            Ok(_) => {
                let is_same = toolkit
                    .as_ref()
                    .is_some_and(|first| first.canonicalize().ok() == folder.canonicalize().ok());
                if !is_same {
                    group.seen("another toolkit", format!("{} ({named_by})", folder.display()));
                }
            }
            Err(why) if is_named => group.finding(
                named_by,
                format!("{}: {why}", folder.display()),
                "the folder of an installed toolkit",
                "source set_env.sh of the installed toolkit in a new shell",
            ),
            Err(why) if named_by == USUAL_FOLDER => looked_at.push(format!("{}: {why}", folder.display())),
            // Folders of other software on the search path.
            Err(_) => {}
        }
    }
    if toolkit.is_none() {
        let remedy = "install CANN 8.1 or newer and run `source <toolkit>/set_env.sh`; `--emulator` runs the checks that need no toolkit";
        group.finding("toolkit", looked_at.join("; "), "a folder with lib64/libascendcl.so", remedy);
    }
    toolkit
}

#[derive(Debug, Default)]
struct Installed {
    version: Option<String>,
    arch: Option<String>,
    inner: Option<String>,
    compatible: Vec<String>,
}

fn installed(root: &Path) -> Installed {
    // Prefer this processor, but also find toolkits of other processors for the check of `arch`.
    let own = format!("{}-linux", std::env::consts::ARCH);
    let folders = [own.as_str(), "aarch64-linux", "x86_64-linux", ""];
    let text = folders
        .iter()
        .find_map(|f| std::fs::read_to_string(root.join(f).join("ascend_toolkit_install.info")).ok());
    let Some(text) = text else { return Installed::default() };
    Installed {
        version: entry(&text, "version"),
        arch: entry(&text, "arch"),
        inner: entry(&text, "innerversion"),
        compatible: releases(&entry(&text, "compatible_version").unwrap_or_default()),
    }
}

/// Parses a list such as `[V100R001C15,V100R001C18],[V100R001C30]`.
fn releases(text: &str) -> Vec<String> {
    let parts = text.split([',', '[', ']']).map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Returns the release part: `V100R001C21` of `V100R001C21SPC002B220`.
fn release(inner: &str) -> &str {
    inner.find("SPC").or_else(|| inner.find('B')).map_or(inner, |end| &inner[..end])
}

/// Checks metadata and compatibility with the driver.
pub(super) fn check_files(system: &System, root: &Path, group: &mut ReportGroup) {
    let installed = installed(root);
    let Some(version) = &installed.version else {
        group.skipped(
            "version in its files",
            format!("no ascend_toolkit_install.info below {}", root.display()),
        );
        return;
    };
    group.seen("version in its files", version.as_str());
    let arch = installed.arch.as_deref().filter(|arch| *arch != std::env::consts::ARCH);
    if let Some(arch) = arch {
        let remedy = "install the toolkit for this processor";
        group.finding("processor of the toolkit", arch, std::env::consts::ARCH, remedy);
    }
    let driver = system.read(DRIVER).unwrap_or_default();
    let (Some(inner), Some(driver_inner)) = (&installed.inner, entry(&driver, "Innerversion")) else {
        return;
    };
    let known_to_driver = releases(&entry(&driver, "compatible_version").unwrap_or_default());
    let (toolkit_release, driver_release) = (release(inner), release(&driver_inner));
    let knows = |list: &[String], release: &str| list.iter().any(|known| known == release);
    let driver_version = entry(&driver, "Version").unwrap_or_default();
    let pair = format!("driver {driver_version} ({driver_release}), toolkit {version} ({toolkit_release})");
    if toolkit_release == driver_release
        || knows(&installed.compatible, driver_release)
        || knows(&known_to_driver, toolkit_release)
    {
        group.well("driver and toolkit", pair);
    } else {
        let expected = format!("a driver of release {}", installed.compatible.join(", "));
        group.finding(
            "driver and toolkit",
            pair,
            expected,
            "install the driver listed in the toolkit's release notes",
        );
    }
}

/// Checks the libraries. Loading runs their code, so callers use a separate process.
pub(super) fn check_libraries(root: &Path) -> ReportGroup {
    let mut group = ReportGroup::new("toolkit");
    let table = match load(Some(root)) {
        Ok(table) => table,
        Err(error) => {
            let remedy = "install a release with all libraries; see docs/VERSIONS.md";
            group.finding(
                "libraries",
                error.to_string(),
                "all libraries and functions of the runtime",
                remedy,
            );
            return group;
        }
    };
    let (said, written) = (toolkit_version(&table), installed(root).version);
    match (&said, &written) {
        (Some(said), Some(written)) if said != written => group.finding(
            "version by its libraries",
            said.as_str(),
            format!("{written}, as its files say"),
            "LD_LIBRARY_PATH mixes two toolkits: source a single set_env.sh in a new shell",
        ),
        (Some(said), _) => group.well("version by its libraries", said.as_str()),
        (None, _) => group.skipped("version by its libraries", "the libraries report no version"),
    }
    symbols(&table, &mut group);
    group
}

/// Counts the functions of each library and reports missing functions and operators.
pub(super) fn symbols(table: &Table, group: &mut ReportGroup) {
    let missing = table.missing_functions();
    for library in Library::ALL {
        let all = Table::SYMBOLS.iter().filter(|(_, of, _)| *of == library).count();
        let functions = missing.iter().filter(|symbol| symbol.library == library).count();
        // Each operator has two functions.
        let phases = if library == Library::OpApi { 2 * table.missing_operators.len() } else { 0 };
        let lacks = functions + phases;
        group.seen(library.file_name(), format!("{} of {all} functions", all - lacks));
    }
    let optional: Vec<&str> = missing.iter().map(|symbol| symbol.name).collect();
    if !optional.is_empty() {
        group.seen(
            "newer functions",
            format!("missing {}; the runtime does not call these functions", optional.join(", ")),
        );
    }
    if table.missing_operators.is_empty() {
        return;
    }
    let uses = match operators::users() {
        Ok(uses) => uses,
        Err(problems) => {
            let expected = "programs that compile";
            return group.finding("operators", problems.to_string(), expected, "report this as a bug");
        }
    };
    for name in &table.missing_operators {
        match uses.get(name) {
            Some(lost) => {
                let remedy =
                    "install a release with this operator, see docs/VERSIONS.md; everything else runs";
                group.finding(
                    *name,
                    format!("missing; needed by {}", lost.join(", ")),
                    "in libopapi.so",
                    remedy,
                );
            }
            None => group.seen(*name, "missing; no command needs this operator"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_what_both_sides_name() {
        assert_eq!(release("V100R001C21SPC002B220"), "V100R001C21");
        assert_eq!(release("V100R001C17B214"), "V100R001C17");
        assert_eq!(
            releases("[V100R001C15,V100R001C18],[V100R001C30]"),
            ["V100R001C15", "V100R001C18", "V100R001C30"]
        );
    }
}
