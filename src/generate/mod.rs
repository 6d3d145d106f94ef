//! From prompts to tokens: opens a model, splits it over cards, and runs the serving loop.
//!
//! Input → output: a checkpoint folder → [`Model`] (everything that can be wrong with it is reported at once) →
//! [`Session`] on some cards → token ids, one by one. [`verify`] runs the same program on one card and on many and
//! compares them value by value. [`tokenizer`] and [`sampling`] turn text into ids and logits into tokens.
//!
//! Invariants: a sequence's tokens do not depend on what else is in the batch; the same seed gives the same tokens.
//! Nothing here knows how the model is split.

mod bucket;
mod error;
mod inputs;
mod model;
pub mod sampling;
mod session;
pub mod tokenizer;
pub mod verify;

pub use error::Error;
pub use model::Model;
pub use session::{DECODE, Generation, PREFILL, Session, SessionOptions, Summary};
