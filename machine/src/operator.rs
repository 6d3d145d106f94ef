//! What an operator costs on a card.
//!
//! Input: a [`Profile`] and the [`Work`] of a call. Output: its duration on the card, and what bounds it.

use crate::launch::Element;
use crate::profile::Profile;
use crate::work::Work;

/// What bounds an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// The rate of the cube units.
    Cube,
    /// The rate of the vector units.
    Vector,
    /// The bandwidth of HBM or of the cache.
    Memory,
    /// The least time a kernel takes.
    Launch,
}

impl Bound {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cube => "cube",
            Self::Vector => "vector",
            Self::Memory => "memory",
            Self::Launch => "launch",
        }
    }
}

/// The units of a card a kernel keeps busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// The cube units, and the vector units that feed them.
    Cube,
    /// The vector units alone.
    Vector,
    /// What moves data between cards.
    Communication,
}

/// What a call costs on the card, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorCost {
    /// From its start on the card to its end.
    pub duration_us: f64,
    /// The part the cube units would take alone.
    pub cube_us: f64,
    /// The part the vector units would take alone.
    pub vector_us: f64,
    /// The part the memory would take alone.
    pub memory_us: f64,
    /// What it keeps busy.
    pub engine: Engine,
    /// The largest part.
    pub bound: Bound,
}

/// The rate of the cube units for an element type, as a multiple of that for 16-bit floats.
///
/// # Source
/// Ascend/msmodeling, `tensor_cast/device.py`: 752 int8 to 376 fp16 of one card, 626 to 313 and 560 to 280 of others.
const fn cube_rate(element: Element) -> f64 {
    match element {
        Element::I8 => 2.0,
        _ => 1.0,
    }
}

impl OperatorCost {
    /// The cost of `work` on a card.
    #[must_use]
    pub fn of(profile: &Profile, work: &Work) -> Self {
        let c = &profile.coefficients;
        let cube_rate = profile.soc.cube_flops_per_us() * cube_rate(work.element);
        let cube_us = work.flops() / (cube_rate * c.cube_efficiency);
        let vector_us = work.vector_operations / (profile.soc.cube_flops_per_us() * c.vector_share);
        let memory_us = work.bytes() / (profile.soc.hbm_bytes_per_us() * c.hbm_efficiency);
        let (bound, longest) = [(Bound::Cube, cube_us), (Bound::Vector, vector_us), (Bound::Memory, memory_us)]
            .into_iter()
            .fold((Bound::Launch, 0.0), |best, part| if part.1 > best.1 { part } else { best });
        let engine = if work.products.is_empty() { Engine::Vector } else { Engine::Cube };
        let bound = if longest < c.kernel_us { Bound::Launch } else { bound };
        Self { duration_us: c.kernel_us + longest, cube_us, vector_us, memory_us, engine, bound }
    }
}
