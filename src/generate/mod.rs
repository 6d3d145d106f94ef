//! Text generation: opens a model, splits it over cards, and runs the serving loop.
//!
//! - Input: a checkpoint folder and [`Request`]s.
//! - Output: tokens, one at a time, from a [`Session`] of the opened [`Model`].
//! - Invariants: the tokens of a sequence do not depend on the rest of the batch. The same seed
//!   gives the same tokens.
//! - Not here: how the model is split.
//!
//! [`verify`] compares a run on one card with a run on many, value by value. [`tokenizer`] and
//! [`sampling`] turn text into ids and logits into tokens. [`drafts`] proposes tokens before their
//! logits are computed.

mod batch;
mod bucket;
#[doc(hidden)]
pub mod chat;
#[doc(hidden)]
pub mod drafts;
mod error;
mod inputs;
mod model;
mod request;
#[doc(hidden)]
pub mod sampling;
mod session;
mod text;
#[doc(hidden)]
pub mod tokenizer;
#[doc(hidden)]
pub mod verify;

pub use batch::{BatchSummary, Generation};
pub use error::Error;
pub use model::Model;
pub use request::{CancelToken, Finish, Prompt, Request, RequestEvent, Sequence, Token};
pub use sampling::{LogProbabilities, SamplingOptions};
#[doc(hidden)]
pub use session::{DECODE, PREFILL};
pub use session::{Session, SessionBuilder};
pub use tokenizer::Tokenizer;
