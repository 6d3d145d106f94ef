//! Files that a command writes.
//!
//! - A path that cannot be written is refused before the work ([`check`]).
//! - A file is written to a temporary file in the same folder and then renamed. A full disk or a
//!   killed process leaves the old file unchanged.
//! - Terminals and pipes are written directly.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ascend_tp::base::{Diagnostic, Diagnostics};
use tempfile::NamedTempFile;

use super::failure::Failure;

/// Mode of a new file, before the umask.
const MODE: u32 = 0o666;

/// Checks that a file can be written, as far as this is known in advance.
pub(super) fn check(option: &str, path: &Path) -> Result<(), Diagnostic> {
    let tried = match PathKind::of(path) {
        Ok(PathKind::Stream) => OpenOptions::new().write(true).open(path).map(drop),
        Ok(PathKind::File { path, permissions }) => {
            // A read-only file must not be replaced either.
            let writable =
                permissions.map_or(Ok(()), |_| OpenOptions::new().write(true).open(&path).map(drop));
            writable.and_then(|()| beside(&path, None).map(drop))
        }
        Err(error) => Err(error),
    };
    tried.map_err(|error| refused(option, path, &error))
}

/// Checks that files can be written in a folder, which need not exist yet.
pub(super) fn check_folder(option: &str, folder: &Path) -> Result<(), Diagnostic> {
    let any = if folder.exists() { folder.join("any") } else { folder.to_path_buf() };
    beside(&any, None).map(drop).map_err(|error| refused(option, folder, &error))
}

/// Writes a file with the bytes that `write` produces. On failure, the old file is unchanged.
///
/// # Errors
/// The option, the path and the system's error, usually a full disk.
pub(super) fn write(
    option: &str,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = match PathKind::of(path) {
        Ok(PathKind::Stream) => OpenOptions::new().write(true).open(path).and_then(|file| fill(&file, write)),
        Ok(PathKind::File { path, permissions }) => beside(&path, permissions).and_then(|temporary| {
            fill(temporary.as_file(), write)?;
            settle(temporary, &path)
        }),
        Err(error) => Err(error),
    };
    written.map_err(|error| Failure::Run(Diagnostics::from(refused(option, path, &error)).into()))
}

/// A temporary file that grows and finally replaces the target. Dropping it leaves the target
/// unchanged.
#[derive(Debug)]
pub(super) struct Draft {
    option: &'static str,
    path: PathBuf,
    /// The temporary file and its target. None before the first byte, so an unused draft creates no
    /// file.
    begun: Option<(BufWriter<NamedTempFile>, PathBuf)>,
}

impl Draft {
    pub(super) const fn new(option: &'static str, path: PathBuf) -> Self {
        Self { option, path, begun: None }
    }

    /// Moves the file to its path, if anything was written.
    pub(super) fn commit(self) -> Result<(), Failure> {
        let Self { option, path, begun } = self;
        let Some((out, place)) = begun else { return Ok(()) };
        let file = out.into_inner().map_err(io::IntoInnerError::into_error);
        let settled = file.and_then(|file| settle(file, &place));
        settled.map_err(|error| Failure::Run(Diagnostics::from(refused(option, &path, &error)).into()))
    }

    fn begin(&self) -> io::Result<(BufWriter<NamedTempFile>, PathBuf)> {
        match PathKind::of(&self.path)? {
            PathKind::File { path, permissions } => Ok((BufWriter::new(beside(&path, permissions)?), path)),
            PathKind::Stream => Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file")),
        }
    }

    fn located(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), refused(self.option, &self.path, error).to_string())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let begun = match self.begun.take() {
            None if bytes.is_empty() => return Ok(0),
            None => self.begin(),
            Some(begun) => Ok(begun),
        };
        let written = begun.and_then(|begun| self.begun.insert(begun).0.write(bytes));
        written.map_err(|error| self.located(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.begun.as_mut().map_or(Ok(()), |(out, _)| out.flush());
        flushed.map_err(|error| self.located(&error))
    }
}

fn settle(temporary: NamedTempFile, path: &Path) -> io::Result<()> {
    // Some systems report a full disk only here.
    temporary.as_file().sync_all()?;
    temporary.persist(path).map(drop).map_err(|error| error.error)
}

enum PathKind {
    /// A terminal, pipe or device, written byte by byte.
    Stream,
    /// A regular file with its permissions, or no file yet.
    File { path: PathBuf, permissions: Option<Permissions> },
}

impl PathKind {
    fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            // The target of a link is replaced; the link stays.
            Ok(found) if found.is_file() => {
                Ok(Self::File { path: fs::canonicalize(path)?, permissions: Some(found.permissions()) })
            }
            Ok(_) => Ok(Self::Stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::File { path: path.to_path_buf(), permissions: None })
            }
            Err(error) => Err(error),
        }
    }
}

/// Creates an empty temporary file in the folder of `path`. Dropping it removes the file.
fn beside(path: &Path, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = permissions.unwrap_or_else(|| Permissions::from_mode(MODE));
    tempfile::Builder::new().prefix(".ascend-tp-").permissions(mode).tempfile_in(folder)
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}

fn refused(option: &str, path: &Path, error: &io::Error) -> Diagnostic {
    Diagnostic::new(format!("{option}: {}", path.display()), "cannot be written").found(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(failure: Failure) -> String {
        let Failure::Run(error) = failure else { panic!("the input is right") };
        error.to_string()
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_that_cannot_be_finished_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        let torn = |out: &mut dyn Write| {
            out.write_all(&[b'x'; 1 << 16])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let message = text(write("--report", &path, torn).unwrap_err());
        assert_eq!(
            message,
            format!("--report: {}: cannot be written: found no storage space", path.display())
        );
        assert_eq!(names(folder.path()), Vec::<String>::new());
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write("--report", &path, torn).unwrap_err();
        assert_eq!(
            (names(folder.path()), fs::read_to_string(&path).unwrap().as_str()),
            (vec!["page.md".into()], "before")
        );
        write("--report", &path, |out| out.write_all(b"after")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_draft_is_nothing_before_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        Draft::new("--out", path.clone()).commit().unwrap();
        assert_eq!(names(folder.path()), Vec::<String>::new(), "nothing was written");
        let mut draft = Draft::new("--out", path.clone());
        draft.write_all(b"whole").unwrap();
        assert!(!path.exists());
        drop(draft);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        fs::write(&path, "before").unwrap();
        let mut draft = Draft::new("--out", path.clone());
        draft.write_all(b"wh").unwrap();
        draft.write_all(b"ole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        draft.commit().unwrap();
        assert_eq!(
            (names(folder.path()), fs::read_to_string(&path).unwrap().as_str()),
            (vec!["a.bin".into()], "whole")
        );
        let nowhere = folder.path().join("no").join("a.bin");
        let message = Draft::new("--out", nowhere.clone()).write_all(b"x").unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("--out: {}: cannot be written: found ", nowhere.display())),
            "{message}"
        );
    }

    #[test]
    fn what_is_in_the_way_is_found_before() {
        let folder = tempfile::tempdir().unwrap();
        let message = |path: &Path| check("--plot", path).unwrap_err().to_string();
        assert!(message(folder.path()).contains("cannot be written: found is a directory"));
        let nowhere = folder.path().join("no").join("such.svg");
        assert!(message(&nowhere).starts_with(&format!("--plot: {}: cannot be written", nowhere.display())));
        check("--plot", &folder.path().join("new.svg")).unwrap();
        check_folder("--dump", &folder.path().join("new")).unwrap();
        assert!(check_folder("--dump", &nowhere).is_err());
        assert_eq!(names(folder.path()), Vec::<String>::new(), "looking leaves nothing");
    }

    #[test]
    fn a_link_stays_and_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write("--out", &link, |out| out.write_all(b"after")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        check("--out", Path::new("/dev/full")).unwrap();
        let message = text(write("--out", Path::new("/dev/full"), |out| out.write_all(b"x")).unwrap_err());
        assert!(message.starts_with("--out: /dev/full: cannot be written: found No space left"), "{message}");
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}
