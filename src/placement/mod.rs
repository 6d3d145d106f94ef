//! Layout choice: assigns each value of a program a layout on a mesh with named axes.
//!
//! Input: a program, a [`Mesh`] and [`Pins`]. Output: a [`Placement`], the layout of each value and
//! the operand layouts of each op. One pass derives it from the sharding rules of the ops. Column,
//! row, head, vocabulary, sequence and data parallelism are results of the pass, not inputs.
//! [`shard`] computes shards of tensors, for weights and checkpoints alike.
//!
//! Invariants: the layouts of an op satisfy its rule. A param is never resharded unless a pin asks
//! for it.
//!
//! Not here: inserting collectives, which is the task of `collective`.

pub mod layout;
pub mod mesh;
mod pins;
mod propagate;
pub mod shard;
mod text;
pub mod transition;

pub use layout::Layout;
pub use mesh::{Axis, COLUMNS, DEPTH, EXPERTS, Grid, Mesh, MeshError, ROWS, TENSOR};
pub use pins::{ExpertShards, Pins, Residual};
pub use propagate::{Placement, place};
pub use text::{Placed, parse, print};
