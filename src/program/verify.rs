//! Checks a program, of any stage, and reports all problems at once:
//! - each op has the operands of its row, its results have the types that the row gives;
//! - a value is made by one op, before its uses; inputs, params and states by none, and their names are unique;
//! - an in-place op is the last user of what it overwrites, and what it overwrites is a state or a param;
//! - outputs exist and their names are unique.

use std::collections::BTreeSet;

use crate::base::{Diagnostic, Diagnostics, Id};

use super::graph::{Program, Role, Value};
use super::op::result_types;
use super::text::op_text;

/// Checks a program.
///
/// # Errors
/// All problems, in order of the ops.
pub fn verify(program: &Program) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut made: Vec<bool> = program.values.values().iter().map(|value| value.role != Role::Result).collect();
    let mut overwritten = vec![false; program.values.len()];
    let mut is_state: Vec<bool> =
        program.values.values().iter().map(|value| matches!(value.role, Role::State | Role::Param)).collect();
    let mut names = BTreeSet::new();
    for (id, value) in program.values.iter().filter(|(_, value)| value.role != Role::Result) {
        if value.name.is_empty() || !names.insert((value.role, value.name.as_str())) {
            problems.push(Diagnostic::new(
                format!("{id} \"{}\"", value.name),
                "inputs, params and states have distinct names",
            ));
        }
    }
    for (_, op) in program.ops.iter() {
        let place = || op_text(program, op);
        let mut usable = true;
        for operand in &op.operands {
            if !made.get(operand.index()).copied().unwrap_or(false) {
                problems.push(Diagnostic::new(place(), format!("{operand} is used before it is made")));
                usable = false;
            } else if overwritten[operand.index()] {
                problems.push(Diagnostic::new(place(), format!("{operand} was overwritten in place before this use")));
            }
        }
        for result in &op.results {
            match made.get_mut(result.index()) {
                Some(made) if !*made => *made = true,
                _ => {
                    problems.push(Diagnostic::new(place(), format!("{result} is made twice")));
                    usable = false;
                }
            }
        }
        if !usable {
            continue;
        }
        let operands: Vec<&Value> = op.operands.iter().map(|id| &program.values[*id]).collect();
        match result_types(&op.kind, &operands) {
            Err(message) => problems.push(Diagnostic::new(place(), message)),
            Ok(types)
                if op.results.is_empty()
                    || op.results.len() > types.len()
                    || op.kind.row().variadic && op.results.len() < types.len() =>
            {
                let least = if op.kind.row().variadic { types.len() } else { 1 };
                problems.push(
                    Diagnostic::new(place(), "the number of results")
                        .expected(format!("{least} to {}", types.len()))
                        .found(op.results.len()),
                );
            }
            Ok(types) => {
                for ((shape, dtype), found) in types.iter().zip(&op.results) {
                    let found = &program.values[*found];
                    if (shape, *dtype) != (&found.shape, found.dtype) {
                        problems.push(
                            Diagnostic::new(place(), "the result's type")
                                .expected(format!("{dtype}{shape}"))
                                .found(format!("{}{}", found.dtype, found.shape)),
                        );
                    }
                }
            }
        }
        let row = op.kind.row();
        if op.results.len() < row.in_place.len() {
            problems.push(Diagnostic::new(place(), "what it overwrites is among its results").found(op.results.len()));
        }
        for (operand, result) in row.in_place.iter().filter_map(|at| op.operands.get(*at)).zip(&op.results) {
            if !is_state[operand.index()] {
                problems
                    .push(Diagnostic::new(place(), format!("{operand} is overwritten but is neither state nor param")));
            }
            overwritten[operand.index()] = true;
            is_state[result.index()] = true;
        }
    }
    let mut outputs = BTreeSet::new();
    for (name, id) in &program.outputs {
        if !outputs.insert(name) {
            problems.push(Diagnostic::new(format!("output \"{name}\""), "the name is given twice"));
        }
        if !made.get(id.index()).copied().unwrap_or(false) {
            problems.push(Diagnostic::new(format!("output \"{name}\""), format!("{id} is never made")));
        } else if overwritten[id.index()] {
            problems.push(Diagnostic::new(format!("output \"{name}\""), format!("{id} was overwritten in place")));
        }
    }
    problems.into_result(())
}
