//! Checkpoints in the safetensors format: what is in them, and any slice of any tensor.
//!
//! Input → output: a folder with `model.safetensors` or `model.safetensors.index.json` →
//! [`Checkpoint`], or every problem of its files at once; a tensor's name, ranges and an element
//! type → bytes, contiguous and converted. Invariants: after [`Checkpoint::open`] every tensor lies
//! inside its file, overlaps no other and is as long as its shape and type say, so reading a slice
//! cannot go out of bounds; only what is wanted is read, piece by piece, and nothing is held twice.
//!
//! It knows no model: which tensors there must be, and which part belongs to which rank, is the
//! caller's. It prints nothing; [`fill_from`] tells its caller how far it is.

mod adapter;
mod checkpoint;
pub(crate) mod convert;
pub mod file;
mod header;
mod json;
mod load;
mod quantise;
mod slice;
mod weight;

pub use checkpoint::{Checkpoint, ExpectedTensor, TensorInfo};
pub(crate) use header::any_entries;
pub use load::fill_from;
pub use slice::Error;
