//! Words that every other module uses: data types, shapes and their parts, reductions, typed ids, units, operators' arguments and
//! located diagnostics.
//!
//! Input → output: none; these are values. Invariants: a [`Shape`] never overflows its element count, an id is only
//! made by the arena that owns it. This module knows nothing of programs, cards or files.

mod argument;
mod diagnostic;
mod dtype;
mod ids;
mod kernels;
mod parts;
mod reduce;
mod shape;
mod units;

pub use argument::{Argument, Number};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use dtype::{DType, Precision, UnknownDType, Weights};
pub(crate) use ids::define_id;
pub use ids::{AxisId, Id, IdVec};
pub use kernels::{KERNEL_BLOCKS, Kernels};
pub use parts::Remainder;
pub use reduce::Reduce;
pub use shape::{Dims, Shape};
pub use units::Bytes;
