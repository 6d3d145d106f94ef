//! What Ascend cards and links can do, and what an operator or a collective costs there.
//!
//! Input: a [`Profile`] (a chip's facts and its fitted coefficients), a [`Topology`] (how the cards are joined), and what is
//! to be done: the [`Launch`] of an operator, or an [`Exchange`] of bytes in a group. Output: microseconds, and what bounds
//! them. Both the emulator's clock and the planner ask here, so there is one cost model.
//!
//! Invariants: pure and deterministic; more work or a slower link is never faster. Does not: know
//! streams, events or programs, nor what a Transformer is.
//!
//! | module | what |
//! |---|---|
//! | [`soc`] | the chips: facts, each with its source |
//! | [`profile`] | a chip with its coefficients; TOML |
//! | [`launch`] | an operator's call as any caller of the C ABI can describe it |
//! | [`kernel`] | what the arguments of a kernel of this project say of its tensors |
//! | [`work`] | what a call has to compute and move |
//! | [`operator`] | what that costs on a card |
//! | [`fit`] | coefficients from measured points |
//! | [`host`] | what a call costs the thread that makes it |
//! | [`problem`] | what is wrong with a text |
//! | [`topology`] | how cards are joined; TOML |
//! | [`collective`] | what an exchange costs on a topology |

pub mod collective;
pub mod fit;
pub mod host;
pub mod kernel;
pub mod launch;
pub mod operator;
pub mod problem;
pub mod profile;
pub mod soc;
pub mod topology;
pub mod work;

pub use collective::{CollectiveCost, Exchange};
pub use host::HostCall;
pub use launch::{Element, Launch, LaunchOperand};
pub use operator::OperatorCost;
pub use problem::{Problem, Problems};
pub use profile::Profile;
pub use soc::Soc;
pub use topology::{Spread, Topology};
pub use work::Work;
