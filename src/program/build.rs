//! Builds a program op by op. The builder infers shapes and types. [`Builder::finish`] reports all
//! problems together.

use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::{DType, Diagnostic, Diagnostics, Shape};

use super::graph::{Form, Op, OpId, Program, Role, Source, Value, ValueId};
use super::op::{Kind, result_types};
use super::rule::Einsum;
use super::tree::SumOrder;
use super::verify::verify;

/// A builder of a [`Program`].
///
/// ```
/// use ascend_tp::DType;
/// use ascend_tp::compiler::{Builder, Kind};
///
/// let mut build = Builder::new("feed-forward");
/// let x = build.input("x", [4, 8], DType::F32);
/// let [gate, up] = ["gate", "up"].map(|name| build.param(name, [16, 8], DType::F32));
/// let down = build.param("down", [8, 16], DType::F32);
/// let (g, u) = (build.matmul("bh,fh->bf", x, gate), build.matmul("bh,fh->bf", x, up));
/// let hidden = build.op(Kind::SwiGlu, &[g, u]);
/// let y = build.matmul("bf,hf->bh", hidden, down);
/// build.output("y", y);
/// let program = build.finish()?; // All mistakes are reported here.
/// assert_eq!(program.ops.len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    program: Program,
    problems: Diagnostics,
    in_trees: bool,
    goes_around: bool,
    /// Params and states that were declared before their use.
    declared: FxHashMap<String, ValueId>,
    mark: u64,
}

/// A value of the program under construction. Other builders reject it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operand {
    id: ValueId,
    mark: u64,
}

impl Operand {
    /// Returns the id of the value in the finished program.
    #[must_use]
    pub const fn id(self) -> ValueId {
        self.id
    }
}

/// The next unique builder id. Programs do not contain these ids.
static NEXT_MARK: AtomicU64 = AtomicU64::new(0);

impl Builder {
    /// Sets the order of sums over dims that can be sharded.
    #[must_use]
    #[doc(hidden)]
    pub fn in_order(self, order: SumOrder) -> Self {
        Self { in_trees: order == SumOrder::Tree, ..self }
    }

    /// Sets whether attention over sharded tokens exchanges keys and values in a ring, or gathers
    /// them.
    #[must_use]
    #[doc(hidden)]
    pub fn going_around(self, goes_around: bool) -> Self {
        Self { goes_around, ..self }
    }

    /// Returns whether sums use tree order.
    #[must_use]
    #[doc(hidden)]
    pub const fn is_in_trees(&self) -> bool {
        self.in_trees
    }

    /// Creates an empty program with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let program = Program { name: name.into(), ..Program::default() };
        let mark = NEXT_MARK.fetch_add(1, Ordering::Relaxed);
        let (problems, declared) = (Diagnostics::new(), FxHashMap::default());
        Self { program, problems, in_trees: false, goes_around: false, declared, mark }
    }

    /// Creates a builder that continues a program.
    #[must_use]
    #[doc(hidden)]
    pub fn on(program: Program) -> Self {
        Self { program, ..Self::new("") }
    }

    /// Returns the program so far.
    #[must_use]
    #[doc(hidden)]
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the program so far, to be changed. Values keep their ids.
    pub(crate) const fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Returns a value of the program so far.
    #[must_use]
    #[doc(hidden)]
    pub const fn operand(&self, id: ValueId) -> Operand {
        Operand { id, mark: self.mark }
    }

    #[must_use]
    pub(super) fn value(&self, operand: Operand) -> &Value {
        &self.program.values[operand.id]
    }

    /// Adds a problem, which [`Builder::finish`] reports.
    #[doc(hidden)]
    pub fn problem(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }

    /// Returns result `index` of an op, and adds this result if the op does not have it yet.
    pub(super) fn result(&mut self, op: OpId, index: usize) -> Operand {
        let Op { kind, operands, results } = &self.program.ops[op];
        let values: Vec<&Value> = operands.iter().map(|id| &self.program.values[*id]).collect();
        let missing = result_types(kind, &values).unwrap_or_default().into_iter().skip(results.len());
        let missing: Vec<_> = missing.take((index + 1).saturating_sub(results.len())).collect();
        for (shape, dtype) in missing {
            let result = self.given(Role::Result, "", shape, dtype, None).id;
            self.program.ops[op].results.push(result);
        }
        self.operand(self.program.ops[op].results[index])
    }

    /// Returns the id of the value. A value of another builder is a problem.
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
        if matches!(role, Role::Param | Role::State)
            && let Some(id) = self.declared.get(name).copied()
            && (self.program.values[id].shape == shape && self.program.values[id].dtype == dtype)
        {
            return self.operand(id);
        }
        let id = self.program.values.push(Value { name: name.to_owned(), shape, dtype, role, source });
        Operand { id, mark: self.mark }
    }

    /// Declares the params and states of another program in its order. Later params and states of
    /// the same names are these ones.
    pub(super) fn declare_memory_of(&mut self, other: &Program) {
        let kept = |value: &&Value| matches!(value.role, Role::Param | Role::State);
        for value in other.values.values().iter().filter(kept) {
            let id = self.program.values.push(value.clone());
            self.declared.insert(value.name.clone(), id);
        }
    }

    /// Adds an input, which each run receives.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Operand {
        self.given(Role::Input, name, shape.into(), dtype, None)
    }

    /// Adds a weight, read from the checkpoint tensor of the same name.
    pub fn param(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Operand {
        self.param_from(
            name,
            shape,
            dtype,
            Source { tensor: name.to_owned(), element_offset: 0, form: Form::Numbers },
        )
    }

    /// Adds a weight, read from a part of a checkpoint tensor.
    #[doc(hidden)]
    pub fn param_from(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        dtype: DType,
        source: Source,
    ) -> Operand {
        self.given(Role::Param, name, shape.into(), dtype, Some(source))
    }

    /// Adds a state, which is kept between runs.
    pub fn state(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Operand {
        self.given(Role::State, name, shape.into(), dtype, None)
    }

    /// Adds an op and returns its first result.
    pub fn op(&mut self, kind: Kind, operands: &[Operand]) -> Operand {
        let [result] = self.several(kind, operands);
        result
    }

    /// Adds an op and returns its first `N` results.
    #[doc(hidden)]
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

    /// Names a value and returns it.
    #[doc(hidden)]
    pub fn name(&mut self, value: Operand, name: impl Into<String>) -> Operand {
        let name = name.into();
        if let Some(id) = self.own(value, &name) {
            self.program.values[id].name = name;
        }
        value
    }

    /// Adds a product in einsum form.
    pub fn matmul(&mut self, spec: &str, x: Operand, w: Operand) -> Operand {
        let spec = self.einsum(spec);
        self.op(Kind::MatMul { spec }, &[x, w])
    }

    /// Parses an einsum such as `bsi,oi->bso`. Invalid text is a problem and yields a default
    /// einsum.
    pub fn einsum(&mut self, text: &str) -> Einsum {
        text.parse().unwrap_or_else(|message: String| {
            self.problems.push(Diagnostic::new("matmul", message));
            Einsum::default()
        })
    }

    /// Adds the sum `x + y`.
    pub fn add(&mut self, x: Operand, y: Operand) -> Operand {
        self.op(Kind::Add, &[x, y])
    }

    /// Adds the product `x · y`.
    pub fn mul(&mut self, x: Operand, y: Operand) -> Operand {
        self.op(Kind::Mul, &[x, y])
    }

    /// Adds an RMS norm over the last dim.
    #[doc(hidden)]
    pub fn rms_norm(&mut self, x: Operand, gamma: Operand, epsilon: f64) -> Operand {
        self.op(Kind::RmsNorm { epsilon }, &[x, gamma])
    }

    /// Declares a value as an output.
    pub fn output(&mut self, name: &str, value: Operand) {
        if let Some(id) = self.own(value, name) {
            self.program.outputs.push((name.to_owned(), id));
        }
    }

    /// Returns the program.
    ///
    /// # Errors
    /// All ops that do not fit their operands; without such ops, all problems that `verify` finds.
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
