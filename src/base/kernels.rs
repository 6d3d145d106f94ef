//! The set of this project's kernels that a card has.

/// Kernels that programs launch instead of toolkit calls, by file name in `kernels/`.
const LAUNCHED: [&str; 6] =
    ["cache_write", "grad_stats", "ordered_sum", "sign_compress", "topk_threshold", "vocab_ce"];

/// Number of cores in a launch: the vector cores of the smallest Atlas A2. Kernels that return
/// results per core return this many.
pub const KERNEL_BLOCKS: u32 = 40;

/// A set of the kernels that programs launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kernels(u8);

impl Kernels {
    /// No kernels; toolkit calls are used instead.
    pub const NONE: Self = Self(0);
    /// All kernels that programs launch.
    pub const ALL: Self = Self((1 << LAUNCHED.len()) - 1);

    /// Returns the known kernels with these names. A name is a file name or an entry function
    /// without its type.
    #[must_use]
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let is_of = |known: &str, name: &str| {
            name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let bit = |name: &str| LAUNCHED.iter().position(|known| is_of(known, name)).map_or(0, |at| 1 << at);
        Self(names.into_iter().fold(0, |set, name| set | bit(name)))
    }

    /// Returns whether the set contains a kernel, by file name or entry function without its type.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.0 & Self::named([name]).0 != 0
    }

    /// Returns the names of the kernels.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        LAUNCHED.into_iter().filter(move |name| self.has(name))
    }
}
