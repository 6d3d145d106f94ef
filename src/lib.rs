//! Tensor-parallel runtime for Ascend NPUs.
//!
//! A program is written for a single card, split over a mesh of cards, scheduled, and run through
//! the C ABI of CANN (AscendCL, aclnn, HCCL). It runs on NPUs with an installed toolkit
//! ([`Cann::load`]), or anywhere on the [`emulator`] of the same ABI. The code on this page runs on
//! the emulator.
//!
//! | task | start at |
//! |---|---|
//! | generate text from a checkpoint on several cards | [`generate::Session`] |
//! | serve requests that come and go | [`generate::ServingEngine`] |
//! | write a program of your own, split it and run it | [`compiler::Builder`], [`compile`](fn@compile), [`Engine`] |
//! | see the collectives of a split | [`compiler::exchanges`], [`compiler::print_placed`] |
//! | train or fine-tune a model | [`train::Trainer`] |
//! | save a training run and load it on another mesh | [`train::Writer`], [`train::Checkpoint`] |
//! | shard a tensor | [`split_axis`] |
//! | call operators and collectives directly | [`device`] |
//! | join the processes of `mpirun`, torchrun or Kubernetes | [`World`], [`ProcessGroup`] |
//! | predict a model on cards that you do not have | the crate `ascend-tp-planner` |
//!
//! # Generate text
//!
//! A [`Model`](generate::Model) is a checkpoint folder. A [`Session`](generate::Session) splits the
//! model over cards and answers requests.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use ascend_tp::Cann;
//! use ascend_tp::emulator::{Config, Emulator};
//! use ascend_tp::generate::{Model, Request, Session};
//!
//! let cann = Cann::new(Emulator::new(Config::with_cards(2))?.table())?;
//! let model = Model::open("models/kjv-qwen2".as_ref())?;
//! let mut session = Session::builder(&cann, &model).cards(2).context(32).start()?;
//! let request = Request { max_new_tokens: Some(4), ..Request::new("In the beginning") };
//! let answer = session.generate(&[request], &mut |_| ControlFlow::Continue(()))?;
//! println!("In the beginning{}", answer.sequences[0].text);
//! # assert_eq!(answer.sequences[0].ids.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Split a program of your own
//!
//! A program names no cards. A [`Mesh`] names them, and [`Pins`] say how values are sharded. The
//! compiler chooses all other layouts and inserts the collectives.
//!
//! ```
//! use ascend_tp::compiler::{Builder, exchanges};
//! use ascend_tp::emulator::{Config, Emulator};
//! use ascend_tp::{Cann, DType, Engine, EngineOptions, Mesh, NamedTensors};
//! use ascend_tp::{Pins, ProgramId, Target, compile};
//!
//! let mut build = Builder::new("linear");
//! let x = build.input("x", [2, 4], DType::F32);
//! let w = build.param("w", [3, 4], DType::F32);
//! let y = build.matmul("bi,oi->bo", x, w);
//! build.output("y", y);
//! let program = build.finish()?;
//!
//! // Each of two cards has half of the contracted dim, so their results are summed.
//! let mesh = Mesh::new(&[("tp", 2)])?;
//! let compiled = compile(&program, &mesh, &Pins::default().split_axis("w", 1), Target::ANY)?;
//! assert_eq!(exchanges(&compiled.split.lowered)[0].kind, "all_reduce");
//!
//! let cann = Cann::new(Emulator::new(Config::with_cards(2))?.table())?;
//! let mut engine = Engine::start(&cann, vec![compiled.plans], &EngineOptions::default())?;
//! engine.fill(&NamedTensors::new().with("w", vec![1.0_f32; 12]))?;
//! let inputs = NamedTensors::new().with("x", vec![1.0_f32, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 1.0]);
//! let y = engine.run(ProgramId(0), &inputs)?.get("y")?;
//! assert_eq!(y.floats(), [10.0, 10.0, 10.0, 1.0, 1.0, 1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Train
//!
//! Gradients and the optimizer are part of the program, so every layout trains the same model.
//!
//! ```
//! use ascend_tp::emulator::{Config, Emulator};
//! use ascend_tp::train::{Batch, Layout, Recipe, Trainer, Zero};
//! use ascend_tp::{Cann, ModelConfig};
//!
//! let json = std::fs::read_to_string("models/tiny-qwen2/config.json")?;
//! let config = ModelConfig::from_json(&json)?;
//! let recipe = Recipe { steps: 2, global_batch: 2, seq: 8, ..Recipe::default() };
//! // Two data-parallel cards, each with half of the optimizer's state.
//! let layout = Layout { data: 2, zero: Zero::Moments, ..Layout::ONE };
//!
//! let cann = Cann::new(Emulator::new(Config::with_cards(2))?.table())?;
//! let mut trainer = Trainer::of_seed(&cann, &config, 7).recipe(recipe).layout(layout).start()?;
//! for step in 0..2 {
//!     let batch = Batch::scattered(step, 2, 8, config.vocab_size);
//!     println!("loss {:.3}", trainer.step(&batch)?.loss);
//! }
//! # assert_eq!(trainer.progress().next, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The folder `examples` continues from here, up to Qwen-72B on eight cards.
//!
//! # Features
//!
//! `emulator` (default) adds emulated cards on the CPU. `text` (default) adds tokenizers and chat
//! templates.
//!
//! # Spans
//!
//! An application with a subscriber of the crate `tracing` sees these spans. Without a subscriber a
//! span costs one atomic load.
//!
//! | span | level | fields |
//! |---|---|---|
//! | `parallelize`, its passes `place`, `insert_reshards`, `lower`, `fuse`, `share`, `verify_placed` | debug | `program` |
//! | `gradients`, `emit`, `order`, `assign_memory`, `verify_plans` | debug | `program` of the first two |
//! | `join_communicators` | info | `rank` |
//! | `load_weights` | info | |
//! | `prepare` and `capture` a program | debug | `rank`, `program` |
//! | `run` a program | trace | `rank`, `program` |
//! | `train_step` | debug | `step` |
//! | `write_checkpoint` | info | `step` |
//!
//! # Modules
//!
//! The modules on this page and the names in them are the public interface. The other crates of
//! the workspace also use hidden modules, which may change in any release. These follow the data
//! flow, and each imports only modules before it. Pure: `base` `call` `config` `program`
//! `placement` `collective` `schedule` `compile`. With effects: `device` `world` `timeline` `exec`
//! `weights` `serving` `generate` `train`.

#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod call;
#[doc(hidden)]
pub mod collective;
#[doc(hidden)]
pub mod compile;
pub mod compiler;
#[doc(hidden)]
pub mod config;
pub mod device;
#[doc(hidden)]
pub mod exec;
pub mod generate;
#[doc(hidden)]
pub mod placement;
#[doc(hidden)]
pub mod program;
#[doc(hidden)]
pub mod schedule;
#[doc(hidden)]
pub mod serving;
#[doc(hidden)]
pub mod timeline;
pub mod train;
#[doc(hidden)]
pub mod weights;
#[doc(hidden)]
pub mod world;

#[cfg(feature = "emulator")]
pub use ascend_tp_emulator as emulator;
pub use ascend_tp_machine as machine;
pub use base::{Bytes, DType, Diagnostic, Diagnostics, HostTensor, Number, Precision, Remainder, Shape};
pub use collective::{Parallelized, parallelize};
pub use compile::{CompiledProgram, compile};
/// ```
/// use ascend_tp::ModelConfig;
///
/// let json = std::fs::read_to_string("models/tiny-qwen2/config.json")?;
/// let config = ModelConfig::from_json(&json)?;
/// assert_eq!(config.layers, 3);
/// assert!(ModelConfig::preset("qwen2.5-72b").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use config::ModelConfig;
pub use device::Cann;
pub use exec::{Engine, EngineOptions, Error as EngineError, Launching, NamedTensors, ProgramId};
pub use placement::shard::{Shard, Tensor as GatheredTensor, TensorView, gather, split_axis};
pub use placement::{ExpertShards, Mesh, Pins, Residual};
pub use schedule::Target;
pub use world::{ProcessGroup, World};
