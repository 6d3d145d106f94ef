//! Choices of experts in the comparison of two runs.

use crate::exec::NamedTensors;
use crate::program::Program;
use crate::program::models::{ChosenExperts, choices, given_name};

use super::values::WholeValues;

/// Returns the choices of a run, as inputs of a program that is given its choices.
pub(super) fn of_run(program: &Program, values: &WholeValues) -> NamedTensors {
    choices(program)
        .filter_map(|choice| Some((given_name(&program.label(choice)), values.whole(choice)?.clone())))
        .collect()
}

/// Compares the choices that a program would make with the given ones.
pub(super) fn compare(program: &Program, values: &WholeValues, given: &NamedTensors) -> ChosenExperts {
    let mut found = ChosenExperts::default();
    for choice in choices(program) {
        let given = given.get(&given_name(&program.label(choice)));
        if let (Some(own), Ok(given)) = (values.whole(choice), given) {
            let chosen = own.shape.last().copied().unwrap_or_default();
            found.add(own.ints(), given.ints(), chosen);
        }
    }
    found
}
