//! Low-rank adapters of linear layers: `y = x Wᵀ + s · (x Aᵀ) Bᵀ`.
//!
//! Input: the adapter that a training run trains, or the adapters that a serving program has.
//! Output: the factors as params, and the products with them.
//!
//! Invariant: products with the rows of other adapters are replaced by zero, even if they are
//! infinite. So an adapter changes no sequence that did not choose it.

use crate::base::{DType, Diagnostic};
use crate::config::{AdapterSet, Lora, ModelConfig, PEFT_PREFIX};
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Role, Source};
use crate::program::op::Kind;
use crate::program::rule::Einsum;

use super::input;
use super::layers::LayerInputs;

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

impl LayerInputs<'_> {
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
