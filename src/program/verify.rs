//! Checks a program of any stage and reports all problems:
//! - Operands and result types match the row of each op.
//! - Each result is defined once, before its uses. Inputs, params and states have unique names and
//!   are not defined by ops.
//! - An in-place op overwrites a state or param and is the last user of the old value.
//! - Outputs exist and have unique names.
//! - The checkpoint tensors of each param have valid names, and its first dims count them.
//! - Tensor sizes do not overflow. This problem is reported alone.

use rustc_hash::FxHashSet;

use crate::base::{Diagnostic, Diagnostics, Id};

use super::graph::{Op, Program, Role, Value};
use super::op::result_types;
use super::text::op_text;

/// Largest tensor in bytes. Sums over all tensors of a program and cost estimates then fit in 64
/// bits.
const LARGEST_BYTES: u64 = 1 << 48;

/// Returns a problem if the largest tensor is too large for later computations.
fn too_large(program: &Program) -> Option<Diagnostic> {
    let bytes = |value: &Value| {
        let sizes = value.shape.iter().map(|size| *size as u64);
        sizes.chain([value.dtype.size_bytes() as u64]).try_fold(1_u64, u64::checked_mul).unwrap_or(u64::MAX)
    };
    let (id, value) = program.values.iter().max_by_key(|(_, value)| bytes(value))?;
    (bytes(value) > LARGEST_BYTES).then(|| {
        Diagnostic::new(
            format!("{} {}{}", program.label(id), value.dtype, value.shape),
            "has more bytes than any machine",
        )
        .expected(format!("at most {LARGEST_BYTES}"))
        .found(if bytes(value) == u64::MAX {
            "more than 64 bits count".to_owned()
        } else {
            bytes(value).to_string()
        })
        .help("take fewer or shorter sequences")
    })
}

/// Checks a program of any stage.
///
/// # Errors
/// All problems, in order of the ops.
pub fn verify(program: &Program) -> Result<(), Diagnostics> {
    if let Some(problem) = too_large(program) {
        return Err(problem.into());
    }
    let roles = || program.values.values().iter().map(|value| value.role);
    let mut check = ProgramCheck {
        program,
        problems: Diagnostics::new(),
        made: roles().map(|role| role != Role::Result).collect(),
        overwritten: vec![false; program.values.len()],
        is_state: roles().map(|role| matches!(role, Role::State | Role::Param)).collect(),
    };
    check.names();
    for (_, op) in program.ops.iter() {
        let (reads, makes) = (check.operands(op), check.results(op));
        if reads && makes {
            check.types(op);
            check.overwrites(op);
        }
    }
    check.outputs();
    check.problems.into_result(())
}

struct ProgramCheck<'a> {
    program: &'a Program,
    problems: Diagnostics,
    made: Vec<bool>,
    overwritten: Vec<bool>,
    /// The value can be overwritten.
    is_state: Vec<bool>,
}

impl ProgramCheck<'_> {
    fn names(&mut self) {
        let mut names = FxHashSet::default();
        for (id, value) in self.program.values.iter().filter(|(_, value)| value.role != Role::Result) {
            if value.name.is_empty() || !names.insert((value.role, value.name.as_str())) {
                let place = format!("{id} \"{}\"", value.name);
                self.problems.push(Diagnostic::new(place, "inputs, params and states have distinct names"));
            }
            if let Some(Err(reason)) = value.source.as_ref().map(|source| source.stack(&value.shape)) {
                let place = format!("{id} \"{}\"", value.name);
                self.problems.push(
                    Diagnostic::new(place, "the checkpoint tensors do not fit the param").found(reason),
                );
            }
        }
    }

    fn operands(&mut self, op: &Op) -> bool {
        let mut are_made = true;
        for operand in &op.operands {
            let is_made = self.made.get(operand.index()).copied().unwrap_or(false);
            are_made &= is_made;
            let what = match is_made {
                false => "is used before it is made",
                true if self.overwritten[operand.index()] => "was overwritten in place before this use",
                true => continue,
            };
            self.problems.push(Diagnostic::new(op_text(self.program, op), format!("{operand} {what}")));
        }
        are_made
    }

    fn results(&mut self, op: &Op) -> bool {
        let mut are_new = true;
        for result in &op.results {
            match self.made.get_mut(result.index()) {
                Some(made) if !*made => *made = true,
                _ => {
                    are_new = false;
                    let what = format!("{result} is made twice");
                    self.problems.push(Diagnostic::new(op_text(self.program, op), what));
                }
            }
        }
        are_new
    }

    fn types(&mut self, op: &Op) {
        let program = self.program;
        let place = || op_text(program, op);
        let operands: Vec<&Value> = op.operands.iter().map(|id| &program.values[*id]).collect();
        let types = match result_types(&op.kind, &operands) {
            Ok(types) => types,
            Err(message) => return self.problems.push(Diagnostic::new(place(), message)),
        };
        let least = if op.kind.row().variadic { types.len() } else { 1 };
        if !(least.max(1)..=types.len()).contains(&op.results.len()) {
            let expected = format!("{least} to {}", types.len());
            let problem = Diagnostic::new(place(), "the number of results");
            return self.problems.push(problem.expected(expected).found(op.results.len()));
        }
        for ((shape, dtype), found) in types.iter().zip(&op.results) {
            let found = &program.values[*found];
            if (shape, *dtype) != (&found.shape, found.dtype) {
                let problem =
                    Diagnostic::new(place(), "the result's type").expected(format!("{dtype}{shape}"));
                self.problems.push(problem.found(format!("{}{}", found.dtype, found.shape)));
            }
        }
    }

    fn overwrites(&mut self, op: &Op) {
        let row = op.kind.row();
        let place = || op_text(self.program, op);
        if op.results.len() < row.in_place.len() {
            let problem = Diagnostic::new(place(), "a result overwrites an operand");
            self.problems.push(problem.found(op.results.len()));
        }
        for (operand, result) in row.in_place.iter().filter_map(|at| op.operands.get(*at)).zip(&op.results) {
            if !self.is_state[operand.index()] {
                let what = format!("{operand} is overwritten but is neither state nor param");
                self.problems.push(Diagnostic::new(place(), what));
            }
            self.overwritten[operand.index()] = true;
            self.is_state[result.index()] = true;
        }
    }

    fn outputs(&mut self) {
        let mut outputs = FxHashSet::default();
        for (name, id) in &self.program.outputs {
            let place = || format!("output \"{name}\"");
            if !outputs.insert(name) {
                self.problems.push(Diagnostic::new(place(), "the name is given twice"));
            }
            if !self.made.get(id.index()).copied().unwrap_or(false) {
                self.problems.push(Diagnostic::new(place(), format!("{id} is never made")));
            } else if self.overwritten[id.index()] {
                self.problems.push(Diagnostic::new(place(), format!("{id} was overwritten in place")));
            }
        }
    }
}
