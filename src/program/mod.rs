//! Programs over whole tensors, without devices.
//!
//! Input: calls of [`Builder`], or text. Output: a [`Program`]. [`verify`] checks programs,
//! [`interpret()`] runs them on the host, and [`text`] prints and parses them. The op table in
//! [`op`] is the only definition of ops, which every pass uses.
//!
//! Invariants: each value is defined before its uses and by one op. An in-place op is the last user
//! of the value that it overwrites.
//!
//! Not here: devices, meshes and files. Names of aclnn operators occur only in
//! [`call`](crate::call) data.

pub mod build;
pub mod compress;
pub mod grad;
pub mod graph;
pub mod interpret;
mod kernel;
pub mod models;
pub(crate) mod npu;
pub mod op;
pub mod rule;
mod stored_dims;
mod tensor_names;
pub mod text;
pub mod tree;
pub mod verify;

pub use crate::base::HostTensor;
pub use build::{Builder, Operand};
pub use graph::{
    Form, GroupPlace, GroupRows, Op, OpId, PackedMatrix, PackedRows, Program, Role, RowBlocks, Source,
    TensorStack, Value, ValueId,
};
pub use interpret::interpret;
pub use npu::tree::by_pairs;
pub use npu::{Emit, Known, Local};
pub use op::Kind;
pub use rule::{Einsum, Factor, Rule};
pub use stored_dims::StoredDims;
pub use tensor_names::TensorNames;
