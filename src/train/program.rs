//! The programs of a step: its micro-batches, the last of which moves the weights.
//!
//! A step of one micro-batch is one program; else the first leaves its gradients in states, further ones add theirs, and the
//! last adds its own, so that what cards hold in parts is reduced once a step, while the last micro-batch goes back.

use crate::base::{DType, Diagnostics};
use crate::config::ModelConfig;
use crate::program::grad::gradients;
use crate::program::models::loss;
use crate::program::{Builder, Kind, Operand, Program};

use super::layouts::{ACCUMULATED, GRADIENT};
use super::optimizer::Optimizer;

/// Names of outputs and of inputs that are not the model's.
pub mod name {
    /// Output `[]` f32: what the labels of the micro-batch add to the loss.
    pub const LOSS: &str = "loss";
    /// Output `[]` f32: the norm of all gradients before clipping; of the last micro-batch alone.
    pub const NORM: &str = "norm";
    /// Input `[]` f32: the cotangent of the loss.
    pub const LOSS_SCALE: &str = "loss_scale";
}

/// Which micro-batch of a step a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The only one.
    Only,
    /// The first of several.
    First,
    /// One between.
    Middle,
    /// The last of several.
    Last,
}

impl Part {
    /// The parts of a step of `count` micro-batches, in order.
    #[must_use]
    pub fn of_step(count: usize) -> Vec<Self> {
        match count {
            0 | 1 => vec![Self::Only],
            _ => {
                let between = std::iter::repeat_n(Self::Middle, count - 2);
                std::iter::once(Self::First).chain(between).chain([Self::Last]).collect()
            }
        }
    }
}

/// What the programs of one run have in common.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Sequences of a micro-batch, over all cards.
    pub batch: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Element type of products and attention.
    pub products: DType,
    /// How weights move.
    pub optimizer: Optimizer,
    /// The largest norm of all gradients; 0: none.
    pub clip_norm: f64,
    /// Micro-batches of a step.
    pub count: usize,
}

impl Parts<'_> {
    /// The loss alone.
    ///
    /// # Errors
    /// What `verify` finds.
    pub fn loss(&self) -> Result<Program, Diagnostics> {
        let mut build = Builder::new("loss");
        let found = loss(&mut build, self.config, self.batch, self.sequence, self.products);
        build.output(name::LOSS, found.loss);
        build.finish()
    }

    /// The program of one micro-batch.
    ///
    /// # Errors
    /// What `verify` finds.
    pub fn program(&self, part: Part) -> Result<Program, Diagnostics> {
        let mut build = Builder::new(format!("train {part:?} b={} s={}", self.batch, self.sequence));
        let found = loss(&mut build, self.config, self.batch, self.sequence, self.products);
        let scale = build.input(name::LOSS_SCALE, [], DType::F32);
        let params = found.params;
        let names: Vec<String> = params.iter().map(|param| build.program().values[param.id()].name.clone()).collect();
        let states = self.optimizer.declare(&mut build, &params);
        // All programs of a run have the same states.
        let accumulated: Vec<Operand> = (0..if self.count > 1 { params.len() } else { 0 })
            .map(|at| {
                let value = build.program().values[params[at].id()].clone();
                build.state(&format!("{ACCUMULATED}{}", names[at]), value.shape, value.dtype)
            })
            .collect();
        let of_params = gradients(&mut build, &[(found.loss, scale)], &params);
        build.output(name::LOSS, found.loss);
        let mut whole = Vec::with_capacity(params.len());
        for (at, gradient) in of_params.into_iter().enumerate() {
            // Every param of a model is used.
            let Some(mut gradient) = gradient else { continue };
            if part != Part::Only {
                build.name(gradient, format!("micro.{}", names[at]));
            }
            if matches!(part, Part::Middle | Part::Last) {
                gradient = build.add(accumulated[at], gradient);
            }
            match part {
                Part::First | Part::Middle => drop(build.op(Kind::Assign, &[accumulated[at], gradient])),
                Part::Only | Part::Last => {
                    build.name(gradient, format!("{GRADIENT}{}", names[at]));
                    whole.push(gradient);
                }
            }
        }
        if matches!(part, Part::Only | Part::Last) {
            let norm = self.optimizer.update(&mut build, &params, &whole, &states, self.clip_norm);
            build.output(name::NORM, norm);
        }
        build.finish()
    }
}
