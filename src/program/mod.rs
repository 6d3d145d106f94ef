//! What is computed: a program over whole tensors, as if there were one card.
//!
//! Input → output: [`Builder`] (or text) → [`Program`]; [`verify`] checks it, [`interpret()`] gives
//! its meaning on the host, [`text`] prints and parses it. The op table in [`op`] is the one place
//! that knows what an op is; every pass asks it. Invariants: a value is defined before it is used
//! and by one op; an in-place op is the last use of what it overwrites. This module knows no card,
//! no mesh and no file; it knows the names of aclnn operators only as the data of
//! [`call`](crate::call).

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
pub mod text;
pub mod tree;
pub mod verify;

pub use crate::base::HostTensor;
pub use build::{Builder, Operand};
pub use graph::{Form, Op, OpId, Program, Role, Source, Value, ValueId};
pub use interpret::interpret;
pub use npu::tree::by_pairs;
pub use npu::{Emit, Known, Local};
pub use op::Kind;
pub use rule::{Einsum, Factor, Rule};
