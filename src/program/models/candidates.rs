//! Outputs of serving programs that leave the logits on the cards.
//!
//! Input: the logits of a run. Output: for each row, the most likely tokens of each part of the
//! vocabulary. The logits are stored in a state, so that another program can return single
//! rows if the candidates do not suffice.
//!
//! Invariant: all programs of a session declare the state, with one size.

use crate::base::{DType, Diagnostic, Diagnostics};
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Program, Role, Value};
use crate::program::op::Kind;

use super::{LayeredProgram, input};

/// Name of the state with the logits of the last step.
pub(crate) const KEPT_LOGITS: &str = "logits.kept";

/// Sizes of the candidates of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CandidateSizes {
    /// Number of tokens per part.
    pub count: usize,
    /// Number of equal parts of the vocabulary.
    pub parts: usize,
    /// Number of rows of logits that each pool keeps.
    pub kept: usize,
    /// Number of pools, each with an equal share of the rows of a run.
    pub pools: usize,
}

impl CandidateSizes {
    /// Returns the number of values per row and part: logits, ids within the part, and the
    /// logarithm of the part's sum of exponentials.
    #[must_use]
    pub const fn columns(&self) -> usize {
        2 * self.count + 1
    }

    /// Returns the candidates `[…,parts,columns]` of the logits `[…,v]`, and keeps the logits.
    pub(super) fn select(self, build: &mut Builder, logits: Operand) -> Operand {
        let Value { shape, dtype, .. } = build.value(logits).clone();
        let rows: usize = shape[..shape.rank() - 1].iter().product();
        let places = build.input(input::LOGIT_PLACES, [rows], DType::I64);
        let kept = build.state(KEPT_LOGITS, [self.kept * self.pools, shape[shape.rank() - 1]], dtype);
        let by_row = match shape.rank() {
            2 => logits,
            _ => build.op(Kind::MergeDims { dim: 0 }, &[logits]),
        };
        build.op(Kind::WriteStates { pools: self.pools }, &[kept, by_row, places]);
        let logits = match dtype {
            DType::F32 => logits,
            _ => build.op(Kind::Cast { to: DType::F32 }, &[logits]),
        };
        build.op(Kind::Candidates { count: self.count, parts: self.parts }, &[logits])
    }

    /// Builds the program that returns `logits[n,v]` of `rows` rows per pool from the last step.
    /// `like` is a program of the same session.
    ///
    /// # Errors
    /// `like` keeps no logits.
    pub fn logits_program(self, rows: usize, like: &Program) -> Result<LayeredProgram, Diagnostics> {
        let mut build = Builder::new(format!("logits of {rows} rows"));
        build.declare_memory_of(like);
        let rows = rows * self.pools;
        let places = build.input(input::LOGIT_PLACES, [rows], DType::I64);
        let kept = like.find(Role::State, KEPT_LOGITS).map(|kept| &like.values[kept]).ok_or_else(|| {
            Diagnostic::new(like.name.as_str(), "keeps no logits")
                .expected(format!("the state {KEPT_LOGITS}"))
        })?;
        let kept = build.state(KEPT_LOGITS, kept.shape.clone(), kept.dtype);
        let logits = build.op(Kind::ReadStates { pools: self.pools }, &[kept, places]);
        build.output("logits", logits);
        Ok(LayeredProgram { program: build.finish()?, layers: Vec::new() })
    }
}
