//! Writing a program op by op. Shapes and types are inferred; a misfit is kept and reported, with all others, by
//! [`Builder::finish`].

use crate::base::{DType, Diagnostic, Diagnostics, Shape};

use super::graph::{Form, Op, Program, Role, Source, Value, ValueId};
use super::op::{Kind, result_type};
use super::verify::verify;

/// Builds a [`Program`].
#[derive(Debug)]
pub struct Builder {
    program: Program,
    problems: Diagnostics,
}

impl Builder {
    /// An empty program of that name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { program: Program { name: name.into(), ..Program::default() }, problems: Diagnostics::new() }
    }

    fn given(&mut self, role: Role, name: &str, shape: Shape, dtype: DType, source: Option<Source>) -> ValueId {
        self.program.values.push(Value { name: name.to_owned(), shape, dtype, role, source })
    }

    /// A tensor given at each run.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> ValueId {
        self.given(Role::Input, name, shape.into(), dtype, None)
    }

    /// A weight, read from the checkpoint tensor of the same name.
    pub fn param(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> ValueId {
        self.param_from(name, shape, dtype, Source { tensor: name.to_owned(), element_offset: 0, form: Form::Numbers })
    }

    /// A weight that is part of a checkpoint tensor.
    pub fn param_from(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType, source: Source) -> ValueId {
        self.given(Role::Param, name, shape.into(), dtype, Some(source))
    }

    /// A tensor kept between runs.
    pub fn state(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> ValueId {
        self.given(Role::State, name, shape.into(), dtype, None)
    }

    /// Any op.
    pub fn op(&mut self, kind: Kind, operands: &[ValueId]) -> ValueId {
        let values: Vec<&Value> = operands.iter().map(|id| &self.program.values[*id]).collect();
        let (shape, dtype) = match result_type(&kind, &values) {
            Ok(found) => found,
            Err(message) => {
                let names: Vec<String> = operands.iter().map(|id| self.program.label(*id)).collect();
                let place = format!("{} of {}", kind.row().name, names.join(", "));
                self.problems.push(Diagnostic::new(place, message));
                (Shape::default(), DType::F32)
            }
        };
        let result =
            self.program.values.push(Value { name: String::new(), shape, dtype, role: Role::Result, source: None });
        self.program.ops.push(Op { kind, operands: operands.to_vec(), result });
        result
    }

    /// Names a value; the answer is the value.
    pub fn name(&mut self, value: ValueId, name: impl Into<String>) -> ValueId {
        self.program.values[value].name = name.into();
        value
    }

    /// A product in einsum form.
    pub fn matmul(&mut self, spec: &str, x: ValueId, w: ValueId) -> ValueId {
        self.op(Kind::MatMul { spec: spec.to_owned() }, &[x, w])
    }

    /// `x + y`.
    pub fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.op(Kind::Add, &[x, y])
    }

    /// `x · y`.
    pub fn mul(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.op(Kind::Mul, &[x, y])
    }

    /// Normalises the last dim.
    pub fn rms_norm(&mut self, x: ValueId, gamma: ValueId, epsilon: f64) -> ValueId {
        self.op(Kind::RmsNorm { epsilon }, &[x, gamma])
    }

    /// Makes a value an output.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.program.outputs.push((name.to_owned(), value));
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
