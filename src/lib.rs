//! Tensor-parallel runtime for Ascend NPUs.
//!
//! A program is written for a single card ([`program`]), split over a mesh of cards
//! ([`parallelize`]), scheduled ([`schedule`]; [`compile::compile`] does both) and run ([`Engine`])
//! through the C ABI of CANN. It runs on NPUs with an installed toolkit ([`Cann::load`]), or
//! anywhere on the [`emulator`] of the same ABI.
//!
//! | task | start at |
//! |---|---|
//! | shard a tensor | [`split_axis`] |
//! | see the collectives of a split | [`parallelize`], [`collective::exchanges`] |
//! | run a checkpoint on several cards | [`generate::Model`], [`generate::Session`] |
//! | compare a split with one card | [`generate::verify`] |
//! | predict a model on cards you do not have | the crate `ascend-tp-planner`, `rehearse` |
//! | find and explain the best split | the crate `ascend-tp-planner` |
//! | call operators and collectives directly | [`device`] |
//! | read training texts | [`train::data`] |
//! | save a training run and load it on another mesh | [`train::checkpoint`] |
//! | measure and predict performance | the command `ascend-tp bench` |
//!
//! Modules follow the data flow; each imports only modules before it. `base` `call` `config`
//! `program` `placement` `collective` `schedule` `compile` are pure; `device` `world` `timeline`
//! `exec` `weights` `generate` `train` have effects.
//!
//! Features: `emulator` (default) adds emulated cards on the CPU; `text` (default) adds tokenizers
//! and chat templates.

pub mod base;
pub mod call;
pub mod collective;
pub mod compile;
pub mod config;
pub mod device;
pub mod exec;
pub mod generate;
pub mod placement;
pub mod program;
pub mod schedule;
pub mod timeline;
pub mod train;
pub mod weights;
pub mod world;

#[cfg(feature = "emulator")]
pub use ascend_tp_emulator as emulator;
pub use ascend_tp_machine as machine;
pub use collective::{Parallelized, parallelize};
pub use device::Cann;
pub use exec::Engine;
pub use placement::shard::split_axis;
pub use placement::{Mesh, Pins};
pub use schedule::Target;
pub use world::World;
