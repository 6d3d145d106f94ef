//! The kernels of `kernels/` that were compiled for cards when this crate was built.
//!
//! Input: the table that `build.rs` writes. Output: the object of a kernel by name. The table is empty where the build found
//! no Ascend C compiler. What it does not do: load or launch them.

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
