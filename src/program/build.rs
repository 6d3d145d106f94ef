//! Writing a program op by op. Shapes and types are inferred; a misfit is kept and reported, with
//! all others, by [`Builder::finish`].

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::base::{DType, Diagnostic, Diagnostics, Shape};

use super::graph::{Form, Op, OpId, Program, Role, Source, Value, ValueId};
use super::op::{Kind, result_types};
use super::rule::Einsum;
use super::tree::SumOrder;
use super::verify::verify;

/// Builds a [`Program`].
#[derive(Debug)]
pub struct Builder {
    program: Program,
    problems: Diagnostics,
    /// Whether sums over dims that may be cut are trees.
    in_trees: bool,
    /// Whether keys and values go from card to card.
    goes_around: bool,
    /// What its values are known by.
    mark: u64,
}

/// A value of the program that a builder builds; no other builder takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operand {
    id: ValueId,
    mark: u64,
}

impl Operand {
    /// Which value it is in the finished program.
    #[must_use]
    pub const fn id(self) -> ValueId {
        self.id
    }
}

/// Marks that builders have; programs know nothing of them.
static NEXT_MARK: AtomicU64 = AtomicU64::new(0);

impl Builder {
    /// The same builder, whose sums over dims that may be cut have this order.
    #[must_use]
    pub fn in_order(self, order: SumOrder) -> Self {
        Self { in_trees: order == SumOrder::Tree, ..self }
    }

    /// The same builder, whose attention lets keys and values go from card to card, or has them
    /// gathered.
    #[must_use]
    pub fn going_around(self, goes_around: bool) -> Self {
        Self { goes_around, ..self }
    }

    /// Whether sums are trees.
    #[must_use]
    pub const fn is_in_trees(&self) -> bool {
        self.in_trees
    }

    /// An empty program of that name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let program = Program { name: name.into(), ..Program::default() };
        let mark = NEXT_MARK.fetch_add(1, Ordering::Relaxed);
        Self { program, problems: Diagnostics::new(), in_trees: false, goes_around: false, mark }
    }

    /// A builder that goes on with a program.
    #[must_use]
    pub fn on(program: Program) -> Self {
        Self { program, ..Self::new("") }
    }

    /// The program so far.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// A value of the program so far.
    #[must_use]
    pub const fn operand(&self, id: ValueId) -> Operand {
        Operand { id, mark: self.mark }
    }

    /// What is known of a value of this builder.
    #[must_use]
    pub(super) fn value(&self, operand: Operand) -> &Value {
        &self.program.values[operand.id]
    }

    /// Keeps a problem for [`Builder::finish`].
    pub fn problem(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    /// Result `index` of an op, also one that it did not name before.
    pub(super) fn result(&mut self, op: OpId, index: usize) -> Operand {
        let Op { kind, operands, results } = &self.program.ops[op];
        let values: Vec<&Value> = operands.iter().map(|id| &self.program.values[*id]).collect();
        // The op was checked when it was written.
        let missing = result_types(kind, &values).unwrap_or_default().into_iter().skip(results.len());
        let missing: Vec<_> = missing.take((index + 1).saturating_sub(results.len())).collect();
        for (shape, dtype) in missing {
            let result = self.given(Role::Result, "", shape, dtype, None).id;
            self.program.ops[op].results.push(result);
        }
        self.operand(self.program.ops[op].results[index])
    }

    /// The value, if it is of this builder; else that is a problem.
    fn own(&mut self, operand: Operand, what: &str) -> Option<ValueId> {
        if operand.mark == self.mark {
            return Some(operand.id);
        }
        let problem = Diagnostic::new(what, "a value of another builder");
        self.problems
            .push(problem.expected(format!("a value of \"{}\"", self.program.name)).found(operand.id));
        None
    }

    fn given(
        &mut self,
        role: Role,
        name: &str,
        shape: Shape,
        dtype: DType,
        source: Option<Source>,
    ) -> Operand {
        let id = self.program.values.push(Value { name: name.to_owned(), shape, dtype, role, source });
        Operand { id, mark: self.mark }
    }

    /// A tensor given at each run.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Operand {
        self.given(Role::Input, name, shape.into(), dtype, None)
    }

    /// A weight, read from the checkpoint tensor of the same name.
    pub fn param(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Operand {
        self.param_from(
            name,
            shape,
            dtype,
            Source { tensor: name.to_owned(), element_offset: 0, form: Form::Numbers },
        )
    }

    /// A weight that is part of a checkpoint tensor.
    pub fn param_from(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        dtype: DType,
        source: Source,
    ) -> Operand {
        self.given(Role::Param, name, shape.into(), dtype, Some(source))
    }

    /// A tensor kept between runs.
    pub fn state(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Operand {
        self.given(Role::State, name, shape.into(), dtype, None)
    }

    /// Any op, for its first result.
    pub fn op(&mut self, kind: Kind, operands: &[Operand]) -> Operand {
        let [result] = self.several(kind, operands);
        result
    }

    /// Any op, for its first `N` results.
    pub fn several<const N: usize>(&mut self, kind: Kind, operands: &[Operand]) -> [Operand; N] {
        let kind = if self.in_trees { kind.in_tree() } else { kind };
        let kind = if self.goes_around { kind.around() } else { kind };
        let own: Vec<Option<ValueId>> =
            operands.iter().map(|operand| self.own(*operand, kind.row().name)).collect();
        let Some(operands) = own.into_iter().collect::<Option<Vec<ValueId>>>() else {
            return [(); N].map(|()| self.given(Role::Result, "", Shape::default(), DType::F32, None));
        };
        let values: Vec<&Value> = operands.iter().map(|id| &self.program.values[*id]).collect();
        let found = result_types(&kind, &values).and_then(|types| match types.len() {
            has if has < N => Err(format!("has {has} results, wanted {N}")),
            _ => Ok(types),
        });
        let types = found.unwrap_or_else(|message| {
            let names: Vec<String> = operands.iter().map(|id| self.program.label(*id)).collect();
            let place = format!("{} of {}", kind.row().name, names.join(", "));
            self.problems.push(Diagnostic::new(place, message));
            SmallVec::new()
        });
        let mut types = types.into_iter();
        let results = [(); N].map(|()| {
            let (shape, dtype) = types.next().unwrap_or((Shape::default(), DType::F32));
            self.given(Role::Result, "", shape, dtype, None)
        });
        self.program.ops.push(Op {
            kind,
            operands,
            results: results.iter().map(|result| result.id).collect(),
        });
        results
    }

    /// Names a value; the answer is the value.
    pub fn name(&mut self, value: Operand, name: impl Into<String>) -> Operand {
        let name = name.into();
        if let Some(id) = self.own(value, &name) {
            self.program.values[id].name = name;
        }
        value
    }

    /// A product in einsum form.
    pub fn matmul(&mut self, spec: &str, x: Operand, w: Operand) -> Operand {
        let spec = self.einsum(spec);
        self.op(Kind::MatMul { spec }, &[x, w])
    }

    /// The product of a text such as `bsi,oi->bso`; where it is none, that is a problem, and the
    /// answer a product of numbers.
    pub fn einsum(&mut self, text: &str) -> Einsum {
        text.parse().unwrap_or_else(|message: String| {
            self.problems.push(Diagnostic::new("matmul", message));
            Einsum::default()
        })
    }

    /// `x + y`.
    pub fn add(&mut self, x: Operand, y: Operand) -> Operand {
        self.op(Kind::Add, &[x, y])
    }

    /// `x · y`.
    pub fn mul(&mut self, x: Operand, y: Operand) -> Operand {
        self.op(Kind::Mul, &[x, y])
    }

    /// Normalises the last dim.
    pub fn rms_norm(&mut self, x: Operand, gamma: Operand, epsilon: f64) -> Operand {
        self.op(Kind::RmsNorm { epsilon }, &[x, gamma])
    }

    /// Makes a value an output.
    pub fn output(&mut self, name: &str, value: Operand) {
        if let Some(id) = self.own(value, name) {
            self.program.outputs.push((name.to_owned(), id));
        }
    }

    /// The program.
    ///
    /// # Errors
    /// Every op that did not fit its operands, and all that `verify` finds.
    pub fn finish(mut self) -> Result<Program, Diagnostics> {
        if self.problems.is_empty()
            && let Err(found) = verify(&self.program)
        {
            self.problems.append(found);
        }
        self.problems.into_result(self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_another_builder_are_refused_wherever_they_stand() {
        let mut other = Builder::new("other");
        let foreign = other.input("z", [2], DType::F32);
        let mut build = Builder::new("own");
        let x = build.input("x", [2], DType::F32);
        let y = build.add(x, foreign);
        build.output("y", y);
        build.output("z", foreign);
        build.name(foreign, "name");
        let problems = build.finish().unwrap_err().to_string();
        let expected = [
            "add: a value of another builder: expected a value of \"own\", found %0",
            "z: a value of another builder: expected a value of \"own\", found %0",
            "name: a value of another builder: expected a value of \"own\", found %0",
        ];
        assert_eq!(problems, expected.join("\n"));
    }
}
