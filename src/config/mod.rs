//! Configuration files as checked types.
//!
//! Input → output: the text of `config.json` and `generation_config.json` → [`ModelConfig`] and
//! [`GenerationConfig`], or every problem of the text at once. Invariants: a [`ModelConfig`] is
//! consistent in itself (heads are a multiple of kv heads, sizes are positive and below
//! [`LARGEST_SIZE`], the rotary embedding is fully resolved), so later stages do not check it
//! again; its field names mean the same in every family, whatever the file calls them.
//!
//! It does no IO, knows no tensor names and no cards, and it never guesses a value that changes the
//! numbers: what the file must say, and does not, is a problem, and so is what the file says and
//! nobody here reads, unless it is known to change nothing.

mod fields;
mod generation;
mod keys;
mod lora;
mod model;
mod presets;
mod rope;
mod rope_fields;

pub use fields::LARGEST_SIZE;
pub use generation::{GenerationConfig, SamplingDefaults};
pub use lora::{ALL_LINEAR, Lora, PEFT_PREFIX};
pub use model::{Family, LogN, ModelConfig};
pub use rope::{LengthDependence, Rope, RopeScaling};
