//! Cost model of Ascend cards and links for operators and collectives.
//!
//! - The emulator and the planner share this model.
//! - Invariants: pure and deterministic; more work or a slower link is never faster.
//! - Not here: streams, events, programs and models.
//!
//! | module | contents |
//! |---|---|
//! | [`soc`] | chips and their properties |
//! | [`profile`] | a chip with its coefficients; TOML |
//! | [`launch`] | an operator call |
//! | [`kernel`] | tensors of this project's kernels |
//! | [`work`] | computation and memory traffic of a call |
//! | [`operator`] | cost of a call on a card |
//! | [`fit`] | coefficients from measured points |
//! | [`host`] | cost of a call on the calling thread |
//! | [`problem`] | errors in a text |
//! | [`topology`] | connections between cards; TOML |
//! | [`collective`] | cost of an exchange on a topology |

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
