//! Which kernels of this project cards have.

/// Kernels that programs launch, by their files in `kernels/`: each takes the place of calls of the toolkit.
const LAUNCHED: [&str; 6] = ["cache_write", "grad_stats", "ordered_sum", "sign_compress", "topk_threshold", "vocab_ce"];

/// Cores of a launch: the vector cores of the smallest Atlas A2, so that none waits for another's. Results of a core by itself are of so
/// many.
pub const KERNEL_BLOCKS: u32 = 40;

/// A set of the kernels that programs launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kernels(u8);

impl Kernels {
    /// Cards have none: calls of the toolkit take their place.
    pub const NONE: Self = Self(0);
    /// Cards have all of them.
    pub const ALL: Self = Self((1 << LAUNCHED.len()) - 1);

    /// Those of these names, of their own or of an entry function without its type, that programs launch.
    #[must_use]
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let is_of = |known: &str, name: &str| {
            name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        let bit = |name: &str| LAUNCHED.iter().position(|known| is_of(known, name)).map_or(0, |at| 1 << at);
        Self(names.into_iter().fold(0, |set, name| set | bit(name)))
    }

    /// Whether cards have the kernel of that name, or of that entry function without its type.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.0 & Self::named([name]).0 != 0
    }

    /// Names of the kernels in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        LAUNCHED.into_iter().filter(move |name| self.has(name))
    }
}
