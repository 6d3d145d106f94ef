//! The compiler: from a program for a single card to one plan for each rank.
//!
//! [`compile`](fn@crate::compile) runs all passes. Each pass is also a function, and its result can
//! be printed:
//!
//! | pass | from → to | check |
//! |---|---|---|
//! | [`Builder`], [`decoder`] | ops or a configuration → [`Program`] over whole tensors | [`verify_program`] |
//! | [`gradients`] | a loss → the backward pass, in the same builder | [`verify_program`] |
//! | [`place`] | program, mesh, pins → the [`Layout`] of each value | |
//! | [`insert_reshards`] | layouts that differ → explicit reshards | |
//! | [`lower`], [`fuse`] | reshards → the cheapest collectives | [`verify_lowered`] |
//! | [`schedule`] | lowered program → [`Plan`]s: calls, memory, streams, events | [`verify_plans`] |
//!
//! ```
//! use ascend_tp::compiler::{Builder, exchanges, fuse, insert_reshards, lower, place, schedule};
//! use ascend_tp::compiler::{Scheduling, verify_lowered, verify_plans};
//! use ascend_tp::{DType, Mesh, Pins};
//!
//! let mut build = Builder::new("column, then row");
//! let x = build.input("x", [4, 8], DType::F32);
//! let up = build.param("up", [16, 8], DType::F32);
//! let down = build.param("down", [8, 16], DType::F32);
//! let hidden = build.matmul("bh,fh->bf", x, up);
//! let y = build.matmul("bf,hf->bh", hidden, down);
//! build.output("y", y);
//! let program = build.finish()?;
//!
//! let mesh = Mesh::new(&[("tp", 2)])?;
//! let pins = Pins::default().split_axis("up", 0).split_axis("down", 1);
//! let placement = place(&program, &mesh, &pins)?;
//! let lowered = fuse(lower(&insert_reshards(&program, &mesh, &placement))?);
//! verify_lowered(&lowered)?;
//! assert_eq!(exchanges(&lowered)[0].kind, "all_reduce");
//!
//! let plans = schedule(&lowered, Scheduling::default())?;
//! verify_plans(&plans)?;
//! println!("{}", plans[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The passes are pure: they use no IO, clock, threads or device.

pub use crate::collective::{
    ExplainedExchange, exchanges, fuse, insert_reshards, lower, verify as verify_lowered,
};
pub use crate::compile::{Deployment, Programs};
pub use crate::placement::{Grid, Layout, Placed, Placement, place, print as print_placed};
pub use crate::program::grad::gradients;
pub use crate::program::interpret::interpret;
pub use crate::program::models::{CacheBlocks, Head, RunShape, decoder};
pub use crate::program::text::print as print_program;
pub use crate::program::tree::SumOrder;
pub use crate::program::verify::verify as verify_program;
pub use crate::program::{Builder, Kind, Operand, Program, Value};
pub use crate::schedule::plan::Region;
pub use crate::schedule::{Plan, Scheduling, schedule, verify as verify_plans};
