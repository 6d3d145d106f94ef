//! Text generation: opens a model, splits it over cards, and serves requests.
//!
//! - Input: a checkpoint folder and [`Request`]s.
//! - Output: tokens, one at a time, from a [`Session`] of the opened [`Model`], or from a
//!   [`ServingEngine`] that has the session on a thread of its own.
//! - Invariants: the tokens of a sequence do not depend on the rest of the batch. The same seed
//!   gives the same tokens.
//! - Not here: how the model is split.
//!
//! [`verify`] compares a run on one card with a run on many, value by value. [`tokenizer`] and
//! [`sampling`] turn text into ids and logits into tokens. [`drafts`] proposes tokens before their
//! logits are computed.

mod batch;
mod candidates;
#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod drafts;
mod engine;
mod error;
mod grammar;
#[doc(hidden)]
pub mod inputs;
mod limits;
mod model;
mod request;
mod runner;
#[doc(hidden)]
pub mod sampling;
mod sequence;
mod session;
mod steps;
mod text;
#[doc(hidden)]
pub mod tokenizer;
#[doc(hidden)]
pub mod verify;

pub use batch::{BatchSummary, Generation};
pub use engine::{RequestHandle, RequestOutput, ServingEngine};
pub use error::Error;
pub use grammar::{Constraint, ConstraintCompiler, Grammar};
pub use model::Model;
pub use request::{CancelToken, Finish, Prompt, Request, RequestEvent, Sequence, Token};
pub use sampling::{LogProbabilities, SamplingOptions};
#[doc(hidden)]
pub use sequence::NewToken;
#[doc(hidden)]
pub use session::{DECODE, PREFILL};
pub use session::{PrefixCache, Session, SessionBuilder};
#[doc(hidden)]
pub use steps::{RequestKey, SequenceEvent, SequenceKey, StepSummary};
pub use tokenizer::Tokenizer;
