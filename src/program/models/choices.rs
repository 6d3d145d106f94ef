//! Choices of experts that a program is given, or that it shows.
//!
//! A router chooses experts by scores. In 16 bits, a rounding can change the order of two nearly
//! equal scores, and the token is then sent to another expert. That is no error of a card, but
//! changes the results by more than a rounding. Programs in 16 bits therefore get the choices of
//! another run before their results are compared with it.
//!
//! - Input: a program with routers.
//! - Output: the program with choices as inputs, or as outputs.
//! - Invariant: the program still computes its own choices, so that they can be counted.

use std::collections::BTreeMap;

use crate::program::graph::{Op, OpId, Program, Role, Value, ValueId};
use crate::program::op::Kind;

/// Number of choices of experts, compared with the choices of another run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChosenExperts {
    /// Number of choices: one per token and router.
    pub rows: usize,
    /// Number of choices of other experts than in the other run.
    pub differing: usize,
}

impl ChosenExperts {
    /// Adds the choices of a router, `chosen` experts per token. Their order does not matter.
    pub(crate) fn add(&mut self, own: &[i64], given: &[i64], chosen: usize) {
        let sorted = |row: &[i64]| {
            let mut row = row.to_vec();
            row.sort_unstable();
            row
        };
        let chosen = chosen.max(1);
        for (own, given) in own.chunks(chosen).zip(given.chunks(chosen)) {
            self.rows += 1;
            self.differing += usize::from(sorted(own) != sorted(given));
        }
    }
}

/// Returns the choices of a program, in program order.
pub(crate) fn choices(program: &Program) -> impl Iterator<Item = ValueId> + '_ {
    let ops = program.ops.values().iter();
    ops.filter(|op| matches!(op.kind, Kind::Choose { .. })).map(Op::result)
}

/// Returns whether a program chooses experts.
pub(crate) fn has_choices(program: &Program) -> bool {
    choices(program).next().is_some()
}

/// Returns the name of the value with the choices of a layer.
pub(crate) fn choice_of(layer: usize) -> String {
    format!("layers.{layer}.mlp.router.experts")
}

/// Returns the name of the input that replaces the choices of this name.
pub(crate) fn given_name(choice: &str) -> String {
    format!("given.{choice}")
}

/// Makes every choice of experts an output.
pub(crate) fn show(program: &mut Program) {
    let shown = choices(program).map(|choice| (program.label(choice), choice));
    let shown: Vec<(String, ValueId)> = shown.collect();
    program.outputs.extend(shown);
}

/// Makes every choice of experts an input.
pub(crate) fn give(program: &mut Program) {
    let chosen: Vec<ValueId> = choices(program).collect();
    let mut given: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for choice in chosen {
        let Value { shape, dtype, .. } = program.values[choice].clone();
        let name = given_name(&program.label(choice));
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
