//! Choices of experts that a program is given.
//!
//! A router chooses experts by scores. In 16 bits, a rounding can change the order of two nearly
//! equal scores, and the token is then sent to another expert. That is no error of a card, but
//! changes the results by more than a rounding. Programs in 16 bits therefore get the choices of
//! the f32 program.
//!
//! - Input: a program, and the values of its f32 form.
//! - Output: the program with choices as inputs, and the number of choices that differ.
//! - Invariant: the program still computes its own choices, so that they can be counted.

use std::collections::BTreeMap;

use crate::exec::NamedTensors;
use crate::program::{Kind, Op, OpId, Program, Role, Value, ValueId};

use super::ChosenExperts;
use super::values::WholeValues;

fn choices(program: &Program) -> impl Iterator<Item = ValueId> + '_ {
    let ops = program.ops.values().iter();
    ops.filter(|op| matches!(op.kind, Kind::Choose { .. })).map(Op::result)
}

/// Returns whether a program chooses experts.
pub(super) fn has_choices(program: &Program) -> bool {
    choices(program).next().is_some()
}

fn input_of(program: &Program, choice: ValueId) -> String {
    format!("given.{}", program.label(choice))
}

/// Makes every choice of experts an input.
pub(super) fn give(program: &mut Program) {
    let chosen: Vec<ValueId> = choices(program).collect();
    let mut given: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for choice in chosen {
        let Value { shape, dtype, .. } = program.values[choice].clone();
        let name = input_of(program, choice);
        let input = program.values.push(Value { name, shape, dtype, role: Role::Input, source: None });
        given.insert(choice, input);
    }
    let ids: Vec<OpId> = program.ops.ids().collect();
    for id in ids {
        for operand in &mut program.ops[id].operands {
            *operand = given.get(operand).copied().unwrap_or(*operand);
        }
    }
}

/// Returns the choices of a run, as inputs of a program after [`give`].
pub(super) fn of_run(program: &Program, values: &WholeValues) -> NamedTensors {
    choices(program)
        .filter_map(|choice| Some((input_of(program, choice), values.whole(choice)?.clone())))
        .collect()
}

/// Compares the choices that a program would make with the given ones.
pub(super) fn compare(program: &Program, values: &WholeValues, given: &NamedTensors) -> ChosenExperts {
    let mut found = ChosenExperts::default();
    for choice in choices(program) {
        let (Some(own), Ok(given)) = (values.whole(choice), given.get(&input_of(program, choice))) else {
            continue;
        };
        let chosen = own.shape.last().copied().unwrap_or_default().max(1);
        for (own, given) in own.ints().chunks(chosen).zip(given.ints().chunks(chosen)) {
            let sorted = |row: &[i64]| {
                let mut row = row.to_vec();
                row.sort_unstable();
                row
            };
            found.rows += 1;
            found.differing += usize::from(sorted(own) != sorted(given));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::program::{Builder, verify::verify};

    #[test]
    fn users_of_a_choice_read_the_given_one() {
        let mut build = Builder::new("router");
        let scores = build.input("scores", [2, 8], DType::F32);
        let choice = build.op(Kind::Choose { chosen: 2, groups: 1, kept: 1, summed: 1 }, &[scores]);
        let choice = build.name(choice, "experts");
        let weights = build.op(Kind::Pick, &[scores, choice]);
        build.output("weights", weights);
        let mut program = build.finish().unwrap();
        assert!(has_choices(&program));
        give(&mut program);
        verify(&program).unwrap();
        let input = program.find(Role::Input, "given.experts").unwrap();
        let pick = program.ops.values().iter().find(|op| op.kind == Kind::Pick).unwrap();
        assert_eq!(pick.operands[1], input);
    }
}
