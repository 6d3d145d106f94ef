//! Grammars that the text of a sequence must follow.
//!
//! - Input: a [`Grammar`], as a request has it, and the chosen tokens.
//! - Output: the mask of the tokens that may follow.
//! - Invariants: all processes compile the same grammar and get the same masks. The mask of a
//!   position is computed while the cards run the step that needs it.
//! - Not here: an implementation. Applications pass a [`ConstraintCompiler`] to the session; the
//!   server's uses llguidance.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::base::Diagnostics;

use super::sampling::SamplingError;

/// A language for the generated text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grammar {
    /// A JSON object.
    Json,
    /// A JSON value that this JSON schema accepts.
    JsonSchema(String),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// A text of this grammar in the format of Lark.
    Lark(String),
}

/// The state of one sequence in its grammar.
pub trait Constraint: Debug + Send {
    /// Returns the tokens that may follow, as [`TokenMask`](super::sampling::TokenMask): bit `i %
    /// 32` of word `i / 32` is 1 if token `i` may. A complete text may be followed by the model's
    /// stop ids.
    ///
    /// The session asks several times for one position, so the implementation keeps the mask until
    /// the next token.
    ///
    /// # Errors
    /// The grammar needs more time or memory than it may take.
    fn mask(&mut self) -> Result<&[u32], Diagnostics>;

    /// Adds the chosen token. It is no stop id.
    ///
    /// # Errors
    /// The token was not in the mask.
    fn accept(&mut self, token: u32) -> Result<(), Diagnostics>;
}

/// Compiles the grammars of requests.
pub trait ConstraintCompiler: Debug + Send + Sync {
    /// Returns the state at the start of a text. Called once as a check and once per sequence, so
    /// an implementation keeps compiled grammars.
    ///
    /// # Errors
    /// The grammar is malformed, or uses something that is not supported.
    fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, Diagnostics>;
}

/// Returns the mask at a sequence's position.
pub(super) fn mask(constraint: &mut dyn Constraint) -> Result<&[u32], SamplingError> {
    constraint.mask().map_err(|problems| SamplingError::Grammar { problem: problems.to_string() })
}

/// Adds a chosen token.
pub(super) fn accept(constraint: &mut dyn Constraint, token: u32) -> Result<(), SamplingError> {
    constraint.accept(token).map_err(|problems| SamplingError::Grammar { problem: problems.to_string() })
}
