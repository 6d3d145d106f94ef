//! Tensor-parallel runtime for Ascend NPUs.
//!
//! A program is written as if there were one card ([`program`]), split over a mesh of cards ([`parallelize`]), planned
//! ([`schedule`]; [`compile::compile`] does both) and run ([`Engine`]) through the C ABI of CANN: on NPUs through an installed toolkit
//! ([`Cann::load`]), or anywhere on the [`emulator`] of the same ABI.
//!
//! | you want to | start at |
//! |---|---|
//! | cut a tensor | [`split_axis`] |
//! | see which collectives a split needs | [`parallelize`], [`collective::exchanges`] |
//! | run a checkpoint on several cards | [`generate::Model`], [`generate::Session`] |
//! | check a split against one card | [`generate::verify`] |
//! | know what a model would do on cards nobody has yet | the crate `ascend-tp-planner`, `rehearse` |
//! | find the best split of some cards, and why it is | the crate `ascend-tp-planner` |
//! | call operators and collectives yourself | [`device`] |
//! | read the texts that a model is trained on | [`train::data`] |
//! | keep the tensors of a training run, and load them on any other mesh | [`train::checkpoint`] |
//! | know how fast all of it is, and how fast it could be | the command `ascend-tp bench` |
//!
//! Modules stand in the order in which data flows; each imports only those before it.
//! `base` `call` `config` `program` `placement` `collective` `schedule` `compile` are pure; `device` `world` `timeline`
//! `exec` `weights` `generate` `train` have effects.
//!
//! The feature `emulator` (default) brings cards on the CPU, `text` (default) tokenizers and chat templates.

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
