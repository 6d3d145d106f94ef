//! Opens and reads the files of a model folder.
//!
//! Input: a path. Output: an open file, its bytes or its text.
//!
//! Invariant: only regular files and links to them are opened. A FIFO could block forever, and a
//! device could be endless.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// The file is missing, is not readable, or is of another kind, which the error names.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let message = format!("{}, where a regular file is expected", name(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    File::open(path)
}

/// Reads all bytes of a regular file.
///
/// # Errors
/// As [`open`], or the read fails.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file as text.
///
/// # Errors
/// As [`read`], or the bytes are not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(made.success());

        assert_eq!(read_text(&path("file")).unwrap(), "text");
        assert_eq!(read(&path("link")).unwrap(), b"text");
        assert_eq!(open(&path("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
        for (path, kind) in [
            (path("folder"), "a folder"),
            (path("fifo"), "a FIFO"),
            (path("socket"), "a socket"),
            ("/dev/zero".into(), "a device"),
        ] {
            let message = read(&path).unwrap_err().to_string();
            assert_eq!(message, format!("{kind}, where a regular file is expected"));
        }
    }
}
