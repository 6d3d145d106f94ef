//! Basic types of all other modules: element types, shapes, reductions, typed ids, units, operator
//! arguments and diagnostics.
//!
//! Invariants: the element count of a [`Shape`] never overflows, and only the arena that owns an id
//! creates it.
//!
//! Not here: anything about programs, cards or files.

mod argument;
pub(crate) mod defect;
mod diagnostic;
mod dtype;
mod host_tensor;
mod ids;
mod kernels;
mod packing;
mod parts;
mod reduce;
mod shape;
mod units;

pub use argument::{Argument, Number};
pub(crate) use defect::defect;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use dtype::{DType, KvType, Precision, UnknownDType, Weights};
pub use host_tensor::{HostData, HostTensor};
pub(crate) use host_tensor::{indices, round};
pub(crate) use ids::define_id;
pub use ids::{AxisId, Id, IdVec};
pub use kernels::{KERNEL_BLOCKS, Kernels};
pub(crate) use packing::{FLOATS, WORD, common_divisor};
pub use packing::{PackedTensor, Packing, ScaleGroup, Unpacked};
pub use parts::Remainder;
pub use reduce::Reduce;
pub(crate) use shape::Positions;
pub use shape::{Dims, Shape};
pub use units::Bytes;
