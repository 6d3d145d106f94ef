//! Configuration files as checked types.
//!
//! Input: the texts of `config.json` and `generation_config.json`, and descriptions of quantised
//! weights. Output: [`ModelConfig`], [`GenerationConfig`] and [`Formats`], or all problems of a
//! text.
//!
//! Invariants: a [`ModelConfig`] is consistent. Heads are a multiple of key heads, sizes are
//! positive and at most [`LARGEST_SIZE`], and the rotary embedding is resolved, so later stages do
//! not check them again. Its field names mean the same in every family. A value that changes
//! numbers is never guessed: if the file lacks it, or has a key that nobody reads and that may
//! change numbers, that is a problem.
//!
//! Not here: IO and cards.

mod adapter;
mod adapter_set;
mod architecture;
mod delta_fields;
pub(crate) mod families;
mod fields;
mod formats;
mod generation;
mod keys;
mod latent_fields;
mod layer;
mod lora;
mod mixture_fields;
mod model;
mod presets;
mod reader;
mod rope;
mod rope_fields;
mod tensors;
mod tower;

pub(crate) use adapter::PeftAdapter;
pub use adapter_set::AdapterSet;
pub use families::Family;
pub use fields::LARGEST_SIZE;
pub use formats::{DESCRIPTIONS, Description, Formats, QuantisedFormat, WeightFormat};
pub use generation::{GenerationConfig, SamplingDefaults};
pub use layer::{
    Activation, AttentionPart, ExpertGroups, FeedForwardPart, GatedDelta, GroupedAttention, LatentAttention,
    Layer, Mixture, NormPlaces, NormWeight, QkNorm, Rotary, Router, Scores, SharedExpert, SoftmaxAttention,
};
pub use lora::{ALL_LINEAR, Lora, PEFT_PREFIX};
pub use model::{LogN, ModelConfig};
pub use rope::{LengthDependence, Rope, RopeScaling, RotaryPairing};
pub use tensors::Parameters;
pub(crate) use tensors::TensorKind;
pub(crate) use tower::TEXT_NAMES;
