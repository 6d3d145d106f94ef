//! Low-rank adapters of linear layers: `y = x Wᵀ + s · (x Aᵀ) Bᵀ`.
//!
//! Input: the adapter that a training run trains, or the adapters that a serving program has.
//! Output: the factors as params, and the products with them.
//!
//! Each expert of a mixture has its own factors. Their product is added to the weight of the
//! expert, as in peft, because only the grouped products know which rows an expert has.
//!
//! Invariant: products with the rows of other adapters are replaced by zero, even if they are
//! infinite. So an adapter changes no sequence that did not choose it.

use std::collections::BTreeSet;

use crate::base::{DType, Diagnostic};
use crate::config::families::ExpertStack;
use crate::config::{ALL_LINEAR, AdapterSet, Lora, ModelConfig, PEFT_PREFIX, TensorKind};
use crate::program::TensorNames;
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Role, Source};
use crate::program::op::Kind;
use crate::program::rule::Einsum;

use super::layers::{LayerInputs, whole};
use super::{input, layer_of_weight};

/// Low-rank adapters of linear layers.
#[derive(Clone, Copy)]
pub(super) enum Adapters<'a> {
    /// One adapter, which alone is trained.
    Trained(&'a Lora),
    /// Several adapters in stacked factors. `hidden` is the input [`input::ADAPTERS`].
    Chosen { set: &'a AdapterSet, hidden: Operand },
}

impl<'a> Adapters<'a> {
    /// Adds the input of a serving program that chooses adapters, if the model has adapters.
    pub(super) fn of_serving(build: &mut Builder, config: &'a ModelConfig, batch: usize) -> Option<Self> {
        let set: &AdapterSet = &config.adapters;
        let rank = set.rank();
        (rank > 0).then(|| Self::Chosen {
            set,
            hidden: build.input(input::ADAPTERS, [batch, 1, rank], DType::Bool),
        })
    }

    /// Returns the rows of factor `A`.
    pub(super) fn rank(&self) -> usize {
        match self {
            Self::Trained(lora) => lora.rank,
            Self::Chosen { set, .. } => set.rank(),
        }
    }

    pub(super) fn is_target(&self, layer: &str) -> bool {
        match self {
            Self::Trained(lora) => lora.is_target(layer),
            Self::Chosen { set, .. } => set.has_layer(layer),
        }
    }

    /// Returns the scaled product with factor `A`. Projections in one tensor share it, so that each
    /// factor has one use.
    pub(super) fn narrow(
        &self,
        build: &mut Builder,
        layer: &str,
        spec: Einsum,
        operands: [Operand; 2],
    ) -> Operand {
        let name = format!("{layer}.lora_A.out");
        let values = &build.program().values;
        if let Some(known) = values.ids().find(|id| values[*id].name == name) {
            return build.operand(known);
        }
        let narrow = build.op(Kind::MatMul { spec }, &operands);
        let narrow = match self {
            Self::Trained(lora) => build.op(Kind::Scale { by: lora.scale() }, &[narrow]),
            // Stacked factors have their scales already.
            Self::Chosen { hidden, .. } => build.op(Kind::Hide, &[narrow, *hidden]),
        };
        build.name(narrow, name)
    }

    /// Refuses adapters of layers that no product of the program has.
    pub(super) fn check(&self, build: &mut Builder) {
        let Self::Chosen { set, .. } = self else { return };
        let program = build.program();
        let is_used = |layer: &str| {
            let name = format!("{layer}.lora_A.weight");
            program.with_role(Role::Param).any(|id| program.values[id].name == name)
        };
        let unused: Vec<&str> = set.layers().filter(|layer| !is_used(layer)).collect();
        let Some(first) = unused.first() else { return };
        let problem = Diagnostic::new(*first, "an adapter of this layer cannot be chosen by request");
        let problem =
            problem.expected("projections of attention, and of feed-forward blocks without experts");
        let problem = problem.found(format!("{} such layers", unused.len()));
        build.problem(problem.help("merge the adapter into the weights"));
    }
}

/// Returns the name of a factor in the checkpoint. `letter` is `A` or `B`.
pub(crate) fn factor_tensor(layer: &str, letter: &str) -> String {
    format!("{PEFT_PREFIX}{layer}.lora_{letter}.weight")
}

/// Returns the last part of the name of a layer.
fn last_part(layer: &str) -> &str {
    layer.rsplit('.').next().unwrap_or(layer)
}

/// Reports targets that name no linear layer, and targets that experts cannot have.
pub(super) fn check_targets(build: &mut Builder, config: &ModelConfig, lora: &Lora) {
    let tensors: Vec<_> = (0..config.layers).flat_map(|layer| config.layer_tensors(layer)).collect();
    let names = |kind: TensorKind| -> BTreeSet<&str> {
        let of_kind = tensors.iter().filter(|tensor| tensor.kind == kind);
        of_kind.map(|tensor| last_part(layer_of_weight(&tensor.name))).collect()
    };
    let linear = names(TensorKind::Linear);
    let (stacks, absorbed) = (names(TensorKind::Interleaved), names(TensorKind::Absorbed));
    let expected = linear.iter().copied().collect::<Vec<_>>().join(", ");
    for target in lora.targets.iter().map(String::as_str).filter(|target| *target != ALL_LINEAR) {
        let text = match target {
            target if linear.contains(target) => continue,
            target if stacks.contains(target) => {
                "the experts of a layer are one tensor, so an expert has no adapter"
            }
            target if absorbed.contains(target) => "latent attention multiplies queries by this weight",
            _ => "no linear layer of the model is called so",
        };
        let problem = Diagnostic::new("lora: targets", text);
        build.problem(problem.expected(format!("of {expected} or {ALL_LINEAR}")).found(target));
    }
    let experts = &config.family.table().tensors.experts;
    if !config.has_mixture() || experts.stack != ExpertStack::Separate {
        return;
    }
    let [gate, up, down] = [experts.gate, experts.up, experts.down].map(last_part);
    let found = lora.targets.join("+");
    if lora.is_target(gate) != lora.is_target(up) {
        let text = "an expert has adapters of its gate and its up projection together";
        let problem = Diagnostic::new("lora: targets", text).found(&found);
        build.problem(problem.expected(format!("both of {gate} and {up}, or neither")));
    }
    if build.is_in_trees() && [gate, up, down].iter().any(|name| lora.is_target(name)) {
        // The gradients of the factors are products with the gradient of the weight, which is
        // summed over the sequences of a micro-batch first.
        let text = "the gradients of adapters of experts have no fixed order of sums";
        let problem = Diagnostic::new("lora: targets", text).expected("targets that no expert has");
        build.problem(problem.found(found).help("name projections of attention, or remove --exact"));
    }
}

impl LayerInputs<'_> {
    /// Adds a param with the weights of all experts. The trained adapters of the experts are added
    /// to it.
    pub(super) fn stack(&self, build: &mut Builder, name: &str, shape: &[usize], source: Source) -> Operand {
        let (tensor, is_one) = (source.tensor.clone(), source.form.dims().is_some());
        let weight = self.param(build, name, shape, source);
        let (Some(Adapters::Trained(lora)), false) = (self.adapters, is_one) else { return weight };
        let names = TensorNames::parse(&tensor).map(|names| names.iter().collect::<Vec<String>>());
        if !names.is_ok_and(|names| names.iter().all(|name| lora.is_target(layer_of_weight(name)))) {
            return weight;
        }
        let factor = |build: &mut Builder, letter: &str, dim: usize| {
            let mut shape = shape.to_vec();
            shape[dim] = lora.rank;
            let source = whole(&factor_tensor(layer_of_weight(&tensor), letter));
            self.factor(build, &format!("{name}.lora_{letter}.weight"), &shape, source)
        };
        let inner = factor(build, "A", shape.len() - 2);
        let outer = factor(build, "B", shape.len() - 1);
        let inner = build.op(Kind::Scale { by: lora.scale() }, &[inner]);
        let spec = if shape.len() == 4 { "egfr,egrh->egfh" } else { "ehr,erf->ehf" };
        let spec = build.einsum(spec);
        build.op(Kind::AddMatMul { spec }, &[weight, outer, inner])
    }

    /// Adds a factor of an adapter, converted to the type of products. Projections in one tensor
    /// share one `A`.
    pub(super) fn factor(&self, build: &mut Builder, name: &str, shape: &[usize], source: Source) -> Operand {
        let known =
            build.program().with_role(Role::Param).find(|id| build.program().values[*id].name == name);
        let param = match known {
            Some(id) => build.operand(id),
            None => build.param_from(name, shape, self.stored, source),
        };
        self.cast(build, param, self.dtype)
    }
}
