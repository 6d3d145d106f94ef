//! Where each value lies: a mesh with named axes, and for every value a layout on it.
//!
//! Input → output: a program, a [`Mesh`] and [`Pins`] → [`Placement`]: each value's layout, and for each op the layouts
//! it needs its operands in. One pass does it, from the ops' sharding rules alone; column, row, head, vocabulary,
//! sequence and data parallelism are what comes out, not what goes in. [`shard`] is the arithmetic of cutting a tensor,
//! for weights and checkpoints alike.
//!
//! Invariants: an op's operand layouts and its result's satisfy its rule; a param is never moved unless a pin asks for
//! it. This module inserts nothing: `collective` does.

pub mod layout;
pub mod mesh;
mod pins;
mod propagate;
pub mod shard;
mod text;
pub mod transition;

pub use layout::Layout;
pub use mesh::{Axis, COLUMNS, DEPTH, Grid, Mesh, MeshError, ROWS, TENSOR};
pub use pins::{Pins, Residual};
pub use propagate::{Placement, place};
pub use text::{Placed, parse, print};
