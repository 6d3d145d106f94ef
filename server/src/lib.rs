//! An HTTP server on the serving engine, with an API compatible with OpenAI's.
//!
//! - Input: a [`Session`](ascend_tp::generate::Session), the texts of its model
//!   ([`ModelTexts`]), and a listening socket.
//! - Output: a [`Server`], which runs until a [`StopSignal`] or until the engine fails.
//! - Invariants: each request ends with an answer or with an error of OpenAI's form. A client that
//!   is gone frees its cache blocks within one step. No input causes a panic.
//! - Not here: the command line, and loading of models.
//!
//! docs/SERVER.md in the repository lists paths, fields, limits and metrics.

mod admission;
mod anthropic;
mod chat;
mod connection;
mod error;
mod fields;
mod generation;
pub mod grammar;
mod health;
mod http;
mod metrics;
mod openai;
pub mod output;
mod record;
mod routes;
mod state;
mod texts;
mod visible;

pub use http::{RESERVED_CONNECTIONS, ServeError, Server, StopSignal};
pub use state::{ServeLimits, ServeOptions};
pub use texts::ModelTexts;
