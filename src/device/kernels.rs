//! The kernels of `kernels/`: those compiled into this crate (none if the build found no Ascend C
//! compiler), or a kernel library for emulated cards.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::card::Device;
use super::error::Result;
use super::kernel::{Kernel, KernelBinary};
use crate::base::{Diagnostic, Kernels};

/// Name (without extension) and object of each file in `kernels/`: an ELF for the vector cores of
/// Atlas A2 and A3.
const KERNELS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Returns the sorted names of the built-in kernels. Empty if the build found no Ascend C compiler.
pub fn names() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|(name, _)| *name)
}

/// Returns the object of a built-in kernel, as `aclrtBinaryLoadFromFile` reads it.
#[must_use]
pub fn object(name: &str) -> Option<&'static [u8]> {
    KERNELS.iter().find(|(kernel, _)| *kernel == name).map(|(_, object)| *object)
}

/// Source of a card's kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelSource {
    /// The card uses no kernels.
    #[default]
    None,
    /// Compiled into this crate.
    BuiltIn,
    /// Absolute path of a library from `ascend-tp kernel build`, for emulated cards.
    Library(PathBuf),
}

/// Kernels of a card.
#[derive(Debug)]
pub struct LoadedKernels {
    /// A library appears once per kernel.
    binaries: BTreeMap<&'static str, Arc<KernelBinary>>,
}

#[doc(hidden)]
impl KernelSource {
    /// Returns the available kernels.
    #[must_use]
    pub fn kernels(&self) -> Kernels {
        match self {
            Self::None => Kernels::NONE,
            Self::BuiltIn => Kernels::named(names()),
            Self::Library(_) => Kernels::ALL,
        }
    }

    /// Loads the kernels on a card.
    ///
    /// # Errors
    /// The library refuses a file, or there is no space for it.
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
    /// Returns an entry function.
    ///
    /// # Errors
    /// The card has no such kernel, or its file has no such function.
    pub fn entry(&self, kernel: &str, entry: &str) -> Result<Kernel> {
        let missing = || {
            let problem = Diagnostic::new(kernel, "is a kernel that this card does not have");
            problem
                .expected("plans compiled for the available kernels")
                .help("use one kernel source for the engine and the plans")
        };
        let named = Kernels::named([kernel]).names().next();
        named.and_then(|name| self.binaries.get(name)).ok_or_else(missing)?.kernel(entry)
    }
}

fn no_folder(error: &std::io::Error) -> Diagnostic {
    Diagnostic::new("kernels", format!("cannot be written for the toolkit to load: {error}"))
        .help("make room in TMPDIR")
}
