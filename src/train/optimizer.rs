//! Optimizers as ops that follow the gradients in a program. The norm of all gradients is a sum
//! over whole tensors, so it is the same in every layout.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::{DType, Diagnostic};
use crate::exec::NamedTensors;
use crate::program::grad::gradients;
use crate::program::{Builder, Kind, Op, Operand, Program, Role, ValueId};

/// Marks a param with a first moment from a compressed sum instead of a gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct SummedMoment {
    /// Inverse root of the frozen second moment, if the optimizer has one.
    pub inverse: Option<Operand>,
}

/// Params of an update. Gradients and states are in the order of the params.
#[derive(Clone, Copy)]
pub(super) struct TrainedParams<'a> {
    pub params: &'a [Operand],
    pub gradients: &'a [Operand],
    /// States of each param in the order of [`Optimizer::states`].
    pub states: &'a [Vec<Operand>],
    /// Empty, or marks the params with a moment instead of a gradient. Clipping then uses the norm
    /// of the moments.
    pub summed: &'a [Option<SummedMoment>],
}

/// Update rule of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
pub enum Optimizer {
    /// Adam with decoupled weight decay. Only matrices decay.
    Adamw {
        /// Decay rates of the first and second moment.
        #[serde(default = "Optimizer::betas")]
        betas: [f64; 2],
        /// Constant that is added to the root of the second moment.
        #[serde(default = "Optimizer::eps")]
        eps: f64,
        /// Decay coefficient, which the learning rate multiplies.
        #[serde(default = "Optimizer::weight_decay")]
        weight_decay: f64,
    },
    /// Gradient descent, with momentum if above 0.
    Sgd {
        /// Share of the old update in the new update.
        #[serde(default)]
        momentum: f64,
        /// Decay of matrices, added after clipping as in torch.
        #[serde(default)]
        weight_decay: f64,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Adamw { betas: Self::betas(), eps: Self::eps(), weight_decay: Self::weight_decay() }
    }
}

/// Names of the inputs of a step.
pub mod input {
    /// `[]` f32: the learning rate.
    pub const RATE: &str = "rate";
    /// `[]` f32: the number of earlier updates, for the bias correction of
    /// [`super::Optimizer::Adamw`].
    pub const STEP: &str = "step";
    /// `[]` f32: 1, the gradient of the loss, for [`super::Optimizer::minimize`].
    pub(super) const ONE: &str = "one";
    /// `[]` f32: the learning rate over the bias correction of the first moment, once second
    /// moments are frozen.
    pub(super) const CORRECTED: &str = "corrected_rate";
}

/// Name prefixes of optimizer states.
pub const STATES: [&str; 3] = ["first_moment.", "second_moment.", "momentum."];

impl Optimizer {
    const fn betas() -> [f64; 2] {
        [0.9, 0.95]
    }

    const fn eps() -> f64 {
        1e-8
    }

    const fn weight_decay() -> f64 {
        0.1
    }

    /// Adds a training step to a program: the gradients of the scalar `loss` in `params`, and their
    /// update.
    ///
    /// Returns the norm of all gradients before clipping to `clip_norm`; 0 disables clipping. Each
    /// run takes [`Optimizer::inputs`]. [`Builder::finish`] reports a loss that is not an f32
    /// scalar, missing params, and params that do not affect the loss.
    pub fn minimize(
        &self,
        build: &mut Builder,
        loss: Operand,
        params: &[Operand],
        clip_norm: f64,
    ) -> Operand {
        let one = build.input(input::ONE, [], DType::F32);
        let by_param = gradients(build, &[(loss, one)], params);
        for (param, _) in params.iter().zip(&by_param).filter(|(_, gradient)| gradient.is_none()) {
            let name = build.program().values[param.id()].name.clone();
            build.problem(Diagnostic::new(
                format!("param `{name}`"),
                "has no gradient: the loss does not depend on it",
            ));
        }
        let Some(gradients) = by_param.into_iter().collect::<Option<Vec<Operand>>>() else { return loss };
        let states = self.declare(build, params);
        let trained = TrainedParams { params, gradients: &gradients, states: &states, summed: &[] };
        let updated = self.update_summed(build, &trained, clip_norm);
        let Some((norm, _)) = updated else {
            build.problem(Diagnostic::new("params", "are missing").expected("one or more").found(0));
            return loss;
        };
        norm
    }

    /// Returns the inputs of a step of [`Optimizer::minimize`] after `updates` earlier ones.
    #[must_use]
    pub fn inputs(&self, updates: usize, rate: f64) -> NamedTensors {
        let numbers = self.numbers(updates, rate).into_iter().map(|(name, number)| (name, number as f32));
        numbers.chain([(input::ONE, 1.0)]).collect()
    }

    pub(super) fn numbers(&self, updates: usize, rate: f64) -> Vec<(&'static str, f64)> {
        let mut inputs = vec![(input::RATE, rate)];
        inputs.extend(matches!(self, Self::Adamw { .. }).then_some((input::STEP, updates as f64)));
        inputs
    }

    /// Returns the extra input of steps with frozen second moments.
    pub(super) fn corrected_input(&self, updates: usize, rate: f64) -> Option<(&'static str, f64)> {
        match self {
            Self::Adamw { betas: [beta1, _], .. } => {
                Some((input::CORRECTED, rate / (1.0 - beta1.powf(updates as f64 + 1.0))))
            }
            Self::Sgd { .. } => None,
        }
    }

    /// Returns the factors of the old moment and of the gradient in the new moment.
    pub(super) const fn shares(&self) -> (f64, f64) {
        match *self {
            Self::Adamw { betas: [beta1, _], .. } => (beta1, 1.0 - beta1),
            Self::Sgd { momentum, .. } => (momentum, 1.0),
        }
    }

    /// Adds the divisor of first moments before compression, and its inverse. The second moment is
    /// frozen after `updates` updates.
    pub(super) fn scale(
        &self,
        build: &mut Builder,
        states: &[Operand],
        updates: usize,
    ) -> Option<[Operand; 2]> {
        match *self {
            Self::Adamw { betas: [_, beta2], eps, .. } => {
                let moment = states[1];
                let shape = build.program().values[moment.id()].shape.clone();
                let sum = (0..shape.rank())
                    .rev()
                    .fold(moment, |sum, dim| build.op(Kind::ReduceSum { dim }, &[sum]));
                // A weight without gradients counts as having had one of the mean magnitude.
                // Otherwise its first gradient would be divided by `eps`.
                let least = build.op(Kind::Scale { by: (1.0 - beta2) / shape.elems() as f64 }, &[sum]);
                let kind = Kind::AdamWScale { correction: 1.0 - beta2.powf(updates as f64), epsilon: eps };
                Some(build.several(kind, &[moment, least]))
            }
            Self::Sgd { .. } => None,
        }
    }

    /// Returns the prefixes of the states of a param, out of [`STATES`]. States begin as zeros.
    #[must_use]
    #[doc(hidden)]
    pub fn states(&self) -> &'static [&'static str] {
        match self {
            Self::Adamw { .. } => &STATES[..2],
            Self::Sgd { momentum, .. } if *momentum > 0.0 => &STATES[2..],
            Self::Sgd { .. } => &[],
        }
    }

    pub(super) fn declare(&self, build: &mut Builder, params: &[Operand]) -> Vec<Vec<Operand>> {
        let declare = |param: &Operand| {
            let value = build.program().values[param.id()].clone();
            let state = |prefix: &&str| {
                build.state(&format!("{prefix}{}", value.name), value.shape.clone(), value.dtype)
            };
            self.states().iter().map(state).collect()
        };
        params.iter().map(declare).collect()
    }

    /// Adds one update. Returns the norm before clipping and the updated params, or `None` without
    /// gradients.
    pub(super) fn update_summed(
        &self,
        build: &mut Builder,
        trained: &TrainedParams<'_>,
        clip_norm: f64,
    ) -> Option<(Operand, Vec<Operand>)> {
        let squares = squares(build, trained.gradients)?;
        let [norm, factor] = build.several(Kind::ClipFactor { largest: clip_norm }, &[squares]);
        let matrices = matrices(build.program());
        let moved = self.apply(build, trained, factor, &|param| matrices.contains(&param));
        Some((norm, moved))
    }

    /// Adds one update by the gradients times `factor`. Only params with `is_matrix` decay. Returns
    /// the updated params.
    pub(super) fn apply(
        &self,
        build: &mut Builder,
        trained: &TrainedParams<'_>,
        factor: Operand,
        is_matrix: &dyn Fn(ValueId) -> bool,
    ) -> Vec<Operand> {
        let TrainedParams { params, gradients, states, summed } = *trained;
        let rate = build.input(input::RATE, [], DType::F32);
        // `AdamW` subtracts its update and needs the earlier updates. SGD needs the negative
        // learning rate.
        let number = match self {
            Self::Adamw { .. } => build.input(input::STEP, [], DType::F32),
            Self::Sgd { .. } => build.op(Kind::Scale { by: -1.0 }, &[rate]),
        };
        let corrected = match self {
            Self::Adamw { .. } if !summed.is_empty() => build.input(input::CORRECTED, [], DType::F32),
            _ => rate,
        };
        let mut all = Vec::with_capacity(params.len());
        let summed = summed.iter().copied().chain(std::iter::repeat(None));
        for (((param, gradient), states), summed) in params.iter().zip(gradients).zip(states).zip(summed) {
            let moved = match (*self, summed) {
                (Self::Adamw { weight_decay, .. }, Some(SummedMoment { inverse: Some(inverse) })) => {
                    let decay = if is_matrix(param.id()) { weight_decay } else { 0.0 };
                    let operands = [*param, states[0], inverse, *gradient, factor, rate, corrected];
                    let [_, moved] = build.several(Kind::FrozenAdamW { decay }, &operands);
                    moved
                }
                (Self::Adamw { betas: [beta1, beta2], eps, weight_decay }, _) => {
                    let decay = if is_matrix(param.id()) { weight_decay } else { 0.0 };
                    let kind = Kind::AdamW { beta1, beta2, epsilon: eps, decay };
                    let operands = [*param, states[0], states[1], *gradient, factor, rate, number];
                    let [_, _, moved] = build.several(kind, &operands);
                    moved
                }
                (Self::Sgd { momentum, weight_decay }, summed) => {
                    let mut update = build.mul(*gradient, factor);
                    if weight_decay > 0.0 && is_matrix(param.id()) {
                        let decay = build.op(Kind::Scale { by: weight_decay }, &[*param]);
                        update = build.add(update, decay);
                    }
                    if let Some(state) = states.first() {
                        if summed.is_none() {
                            let kept = build.op(Kind::Scale { by: momentum }, &[*state]);
                            update = build.add(kept, update);
                        }
                        update = build.op(Kind::Assign, &[*state, update]);
                    }
                    let step = build.mul(update, number);
                    build.add(*param, step)
                }
            };
            all.push(build.op(Kind::Assign, &[*param, moved]));
        }
        all
    }
}

pub(super) fn squares(build: &mut Builder, gradients: &[Operand]) -> Option<Operand> {
    let square = |gradient: &Operand| {
        if build.is_in_trees() {
            let rank = build.program().values[gradient.id()].shape.rank();
            let squares = build.mul(*gradient, *gradient);
            return (0..rank).rev().fold(squares, |sum, dim| build.op(Kind::ReduceSum { dim }, &[sum]));
        }
        let rank = build.program().values[gradient.id()].shape.rank();
        let dims: String = (b'a'..=b'z').take(rank).map(char::from).collect();
        build.matmul(&format!("{dims},{dims}->"), *gradient, *gradient)
    };
    let squares: Vec<Operand> = gradients.iter().map(square).collect();
    squares.into_iter().reduce(|sum, square| build.op(Kind::Total, &[sum, square]))
}

/// Returns the params of products and lookups, through casts and scales. Biases and norms do not
/// decay.
pub(super) fn matrices(program: &Program) -> BTreeSet<ValueId> {
    let is_same = |op: &&Op| op.kind.row().is_copy || matches!(op.kind, Kind::Scale { .. });
    let ops = program.ops.values().iter();
    let origin_of: BTreeMap<ValueId, ValueId> =
        ops.clone().filter(is_same).map(|op| (op.result(), op.operands[0])).collect();
    let products = ops.filter(|op| !op.kind.row().weights.operands().is_empty());
    let operands = products.flat_map(|op| op.operands.iter().copied());
    let origins = operands.map(|operand| {
        let origins = std::iter::successors(Some(operand), |id| origin_of.get(id).copied());
        origins.last().unwrap_or(operand)
    });
    origins.filter(|id| program.values[*id].role == Role::Param).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{HostTensor, interpret};

    /// Reference for `torch.optim.SGD` in f64, with dampening 0 and without Nesterov.
    struct TorchSgd {
        momentum: f64,
        weight_decay: f64,
        buffer: Option<Vec<f64>>,
    }

    impl TorchSgd {
        fn step(&mut self, param: &mut [f64], gradient: &[f64], rate: f64) {
            let decayed =
                gradient.iter().zip(&*param).map(|(gradient, weight)| gradient + self.weight_decay * weight);
            let mut update: Vec<f64> = decayed.collect();
            if self.momentum != 0.0 {
                if let Some(buffer) = &self.buffer {
                    update.iter_mut().zip(buffer).for_each(|(new, old)| *new += self.momentum * old);
                }
                self.buffer = Some(update.clone());
            }
            param.iter_mut().zip(update).for_each(|(weight, update)| *weight -= rate * update);
        }
    }

    const GRADIENTS: [([f64; 4], [f64; 2]); 3] =
        [([0.5, -1.0, 2.0, 0.25], [1.0, -0.5]), ([-0.75, 0.5, 0.1, 1.5], [0.2, 0.3]), ([0.0; 4], [0.0, 0.0])];
    const CLIP: f64 = 1.5;
    const RATES: [f64; 3] = [0.1, 0.05, 0.2];

    /// Returns a matrix and a bias after each of three steps.
    fn by_program(optimizer: Optimizer) -> Vec<(Vec<f32>, Vec<f32>)> {
        let mut build = Builder::new("step".to_owned());
        let x = build.input("x", [2], DType::F32);
        let params = [build.param("w", [2, 2], DType::F32), build.param("b", [2], DType::F32)];
        let product = build.matmul("i,oi->o", x, params[0]);
        let y = build.add(product, params[1]);
        build.output("y", y);
        let gradients = [build.input("of w", [2, 2], DType::F32), build.input("of b", [2], DType::F32)];
        let states = optimizer.declare(&mut build, &params);
        let trained = TrainedParams { params: &params, gradients: &gradients, states: &states, summed: &[] };
        let (norm, moved) = optimizer.update_summed(&mut build, &trained, CLIP).unwrap();
        build.output("norm", norm);
        let program = build.finish().unwrap();
        let mut kept: BTreeMap<String, Vec<f32>> = [("w", vec![1.0, -2.0, 0.5, 4.0]), ("b", vec![3.0, -1.0])]
            .map(|(name, all)| (name.to_owned(), all))
            .into();
        let mut steps = Vec::new();
        for ((of_w, of_b), rate) in GRADIENTS.into_iter().zip(RATES) {
            let floats = |numbers: &[f64]| numbers.iter().map(|number| *number as f32).collect::<Vec<f32>>();
            let all = interpret(&program, |_, value| {
                let data = match value.name.as_str() {
                    "of w" => floats(&of_w),
                    "of b" => floats(&of_b),
                    input::RATE => vec![rate as f32],
                    name => kept.get(name).cloned().unwrap_or_else(|| vec![0.0; value.shape.elems()]),
                };
                HostTensor::float(value.shape.clone(), value.dtype, data)
            });
            for op in program.ops.values().iter().filter(|op| matches!(op.kind, Kind::Assign)) {
                let name = program.values[op.operands[0]].name.clone();
                kept.insert(name, all[crate::base::Id::index(op.result())].floats().to_vec());
            }
            steps.push((kept["w"].clone(), kept["b"].clone()));
        }
        assert_eq!(moved.len(), 2);
        steps
    }

    #[test]
    fn sgd_decays_matrices_as_torch_does() {
        for (momentum, weight_decay) in [(0.0, 0.0), (0.0, 0.3), (0.9, 0.0), (0.9, 0.3)] {
            let found = by_program(Optimizer::Sgd { momentum, weight_decay });
            let of = |weight_decay| TorchSgd { momentum, weight_decay, buffer: None };
            // In torch, params without decay form a separate group.
            let (mut matrix, mut bias) = (of(weight_decay), of(0.0));
            let (mut w, mut b) = ([1.0, -2.0, 0.5, 4.0], [3.0, -1.0]);
            for (step, ((of_w, of_b), rate)) in GRADIENTS.into_iter().zip(RATES).enumerate() {
                let norm = of_w.iter().chain(&of_b).map(|x| x * x).sum::<f64>().sqrt();
                let factor = (CLIP / (norm + 1e-6)).min(1.0);
                matrix.step(&mut w, &of_w.map(|x| x * factor), rate);
                bias.step(&mut b, &of_b.map(|x| x * factor), rate);
                let (found_w, found_b) = &found[step];
                for (found, expected) in found_w.iter().chain(found_b).zip(w.iter().chain(&b)) {
                    let error = (f64::from(*found) - expected).abs();
                    assert!(
                        error <= 1e-6 * expected.abs().max(1.0),
                        "{momentum} {weight_decay}, step {step}: {found} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_param_that_the_loss_does_not_depend_on_is_named() {
        let mut build = Builder::new("step");
        let [used, unused] = ["used", "unused"].map(|name| build.param(name, [3], DType::F32));
        let loss = build.matmul("i,i->", used, used);
        Optimizer::Sgd { momentum: 0.0, weight_decay: 0.0 }.minimize(&mut build, loss, &[used, unused], 0.0);
        let problems = build.finish().unwrap_err().to_string();
        assert!(
            problems.contains("param `unused`: has no gradient") && !problems.contains("`used`"),
            "{problems}"
        );
        let mut build = Builder::new("step");
        let x = build.input("x", [3], DType::F32);
        let loss = build.matmul("i,i->", x, x);
        Optimizer::default().minimize(&mut build, loss, &[], 0.0);
        let problems = build.finish().unwrap_err().to_string();
        assert!(problems.contains("params: are missing"), "{problems}");
    }

    #[test]
    fn a_step_takes_the_inputs_of_its_optimizer() {
        for optimizer in [Optimizer::default(), Optimizer::Sgd { momentum: 0.9, weight_decay: 0.01 }] {
            let mut build = Builder::new("step");
            let param = build.param("param", [3], DType::F32);
            let loss = build.matmul("i,i->", param, param);
            let norm = optimizer.minimize(&mut build, loss, &[param], 1.0);
            build.output("norm", norm);
            let program = build.finish().unwrap();
            let wanted: BTreeSet<&str> =
                program.with_role(Role::Input).map(|id| program.values[id].name.as_str()).collect();
            let given = optimizer.inputs(0, 0.1);
            assert_eq!(given.iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), wanted);
        }
    }
}
