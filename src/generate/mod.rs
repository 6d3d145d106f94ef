//! From prompts to tokens: opens a model, splits it over cards, and runs the serving loop.
//!
//! Input → output: a checkpoint folder → [`Model`] (everything that can be wrong with it is
//! reported at once) → [`Session`] on some cards → [`Request`]s → tokens, one by one. [`verify`]
//! runs the same program on one card and on many and compares them value by value. [`tokenizer`]
//! and [`sampling`] turn text into ids and logits into tokens.
//!
//! Invariants: a sequence's tokens do not depend on what else is in the batch; the same seed gives
//! the same tokens. Nothing here knows how the model is split.

mod bucket;
pub mod chat;
mod error;
mod inputs;
mod model;
mod request;
pub mod sampling;
mod serve;
mod session;
mod text;
pub mod tokenizer;
pub mod verify;

pub use error::Error;
pub use model::Model;
pub use request::{CancelToken, Finish, LogProbabilities, Prompt, Request, RequestEvent, Sequence, Token};
pub use serve::{Generation, ServeSummary};
pub use session::{DECODE, PREFILL, Session, SessionBuilder};
