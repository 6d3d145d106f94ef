//! Tensor-parallel runtime for Ascend NPUs.

pub mod base;
pub mod collective;
pub mod config;
pub mod device;
pub mod exec;
pub mod generate;
pub mod placement;
pub mod program;
pub mod schedule;
pub mod weights;

pub use collective::{Parallelized, parallelize};
pub use device::Cann;
pub use exec::Engine;
pub use placement::shard::split_axis;
pub use placement::{Mesh, Pins};
