//! File system operations of writing a checkpoint. All effects go through this module, so a test
//! can stop the process between any two.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

pub(super) trait Output: Write {
    /// Waits until written data is on disk.
    fn sync(&mut self) -> io::Result<()>;
}

pub(super) trait Storage: Send + Sync + fmt::Debug {
    /// Creates a folder and missing parents.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// Waits until names in a folder are on disk.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Renames a folder to an unused name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Exchanges two folder names atomically.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
}

#[derive(Debug)]
pub(super) struct Disk;

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for Disk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        Ok(Box::new(File::create_new(path)?))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Disk of a machine that stops after some effects. A write in progress is torn in the middle.
    #[derive(Clone, Debug)]
    pub(in crate::train::checkpoint) struct Stopping {
        state: Arc<Mutex<DiskState>>,
    }

    #[derive(Debug)]
    struct DiskState {
        left: usize,
        done: Vec<String>,
    }

    impl Stopping {
        pub(in crate::train::checkpoint) fn after(effects: usize) -> Self {
            Self { state: Arc::new(Mutex::new(DiskState { left: effects, done: Vec::new() })) }
        }

        /// Returns completed effects, with the last path component.
        pub(in crate::train::checkpoint) fn done(&self) -> Vec<String> {
            self.state.lock().unwrap().done.clone()
        }

        fn effect(&self, what: &str, path: &Path) -> io::Result<()> {
            let mut state = self.state.lock().unwrap();
            if state.left == 0 {
                return Err(io::Error::other("the machine has stopped"));
            }
            state.left -= 1;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if state.done.last().is_none_or(|last| *last != format!("{what} {name}")) {
                state.done.push(format!("{what} {name}"));
            }
            Ok(())
        }
    }

    struct Torn {
        file: File,
        name: std::path::PathBuf,
        machine: Stopping,
    }

    impl Write for Torn {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Err(error) = self.machine.effect("write", &self.name) {
                let state = self.machine.state.lock().unwrap();
                // Data in transit when the machine stopped.
                if state.done.last().is_none_or(|last| last != "stop") {
                    self.file.write_all(&bytes[..bytes.len() / 2])?;
                    drop(state);
                    self.machine.state.lock().unwrap().done.push("stop".to_owned());
                }
                return Err(error);
            }
            self.file.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output for Torn {
        fn sync(&mut self) -> io::Result<()> {
            self.machine.effect("sync", &self.name)?;
            self.file.sync_all()
        }
    }

    impl Storage for Stopping {
        fn create_folder(&self, path: &Path) -> io::Result<()> {
            self.effect("folder", path)?;
            Disk.create_folder(path)
        }

        fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
            self.effect("create", path)?;
            Ok(Box::new(Torn {
                file: File::create_new(path)?,
                name: path.to_path_buf(),
                machine: self.clone(),
            }))
        }

        fn sync_folder(&self, path: &Path) -> io::Result<()> {
            self.effect("sync", path)?;
            Disk.sync_folder(path)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.effect("rename", to)?;
            Disk.rename(from, to)
        }

        fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
            self.effect("exchange", other)?;
            Disk.exchange(one, other)
        }

        fn remove_folder(&self, path: &Path) -> io::Result<()> {
            // Files are removed one by one, and the machine can stop in between.
            for entry in fs::read_dir(path)? {
                let entry = entry?.path();
                self.effect("remove", &entry)?;
                fs::remove_file(entry)?;
            }
            self.effect("remove", path)?;
            fs::remove_dir(path)
        }
    }
}
