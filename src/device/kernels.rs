//! The kernels of `kernels/`: those that were compiled for cards when this crate was built, and where a card's are loaded from.
//!
//! Input: the table that `build.rs` writes, or a library of kernels for emulated cards. Output: the object of a kernel by name, and
//! on a card its entry functions. The table is empty where the build found no Ascend C compiler.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::card::Device;
use super::error::Result;
use super::kernel::{Kernel, KernelBinary};
use crate::base::{Diagnostic, Kernels};

/// Name of each file of `kernels/` without its ending, and its object: an ELF for the vector cores of Atlas A2 and A3, with
/// the file's entry functions under their own names.
const KERNELS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Names of the kernels that are built in, sorted; none where the build found no Ascend C compiler.
pub fn names() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|(name, _)| *name)
}

/// The object of a kernel, as `aclrtBinaryLoadFromFile` takes it from a file; `None` if it is not built in.
#[must_use]
pub fn object(name: &str) -> Option<&'static [u8]> {
    KERNELS.iter().find(|(kernel, _)| *kernel == name).map(|(_, object)| *object)
}

/// Where cards have kernels from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelSource {
    /// They have none.
    #[default]
    None,
    /// Those that were compiled for cards with this crate.
    BuiltIn,
    /// A library, by its absolute path, of all files of `kernels/`, as `ascend-tp kernel build` makes one for emulated cards.
    Library(PathBuf),
}

/// The kernels of a card.
#[derive(Debug)]
pub struct LoadedKernels {
    /// By name; those of a library under each.
    binaries: BTreeMap<&'static str, Arc<KernelBinary>>,
}

impl KernelSource {
    /// What there is, of the kernels that programs launch.
    #[must_use]
    pub fn kernels(&self) -> Kernels {
        match self {
            Self::None => Kernels::NONE,
            Self::BuiltIn => Kernels::named(names()),
            Self::Library(_) => Kernels::ALL,
        }
    }

    /// Loads them on a card.
    ///
    /// # Errors
    /// The library's refusal of a file, or no room for one.
    pub fn load(&self, device: &Arc<Device>) -> Result<LoadedKernels> {
        let mut binaries = BTreeMap::new();
        if let Self::Library(path) = self {
            let library = KernelBinary::load(device, path)?;
            binaries.extend(self.kernels().names().map(|name| (name, Arc::clone(&library))));
        } else if self.kernels() != Kernels::NONE {
            let folder = tempfile::tempdir().map_err(|error| no_folder(&error))?;
            for name in self.kernels().names() {
                let path = folder.path().join(format!("{name}.o"));
                std::fs::write(&path, object(name).unwrap_or_default()).map_err(|error| no_folder(&error))?;
                binaries.insert(name, KernelBinary::load(device, &path)?);
            }
        }
        Ok(LoadedKernels { binaries })
    }
}

impl LoadedKernels {
    /// An entry function of a kernel.
    ///
    /// # Errors
    /// The card has no such kernel, or its file no such function.
    pub fn entry(&self, kernel: &str, entry: &str) -> Result<Kernel> {
        let missing = || {
            let problem = Diagnostic::new(kernel, "is a kernel that this card has not");
            problem
                .expected("plans that were compiled for the kernels there are")
                .help("give engine and plans one source")
        };
        let named = Kernels::named([kernel]).names().next();
        named.and_then(|name| self.binaries.get(name)).ok_or_else(missing)?.kernel(entry)
    }
}

fn no_folder(error: &std::io::Error) -> Diagnostic {
    Diagnostic::new("kernels", format!("cannot be written for the toolkit to load: {error}"))
        .help("make room in TMPDIR")
}
