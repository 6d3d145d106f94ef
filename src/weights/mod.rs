//! Reads tensors, and slices of tensors, from checkpoints in the safetensors format.
//!
//! Input: a folder with `model.safetensors` or `model.safetensors.index.json`.
//!
//! Output: a [`Checkpoint`], or a list of all problems of the files. A slice of a tensor is
//! returned as contiguous bytes of the requested element type. [`quantise`](fn@quantise) writes a
//! folder with quantised weights.
//!
//! Invariants:
//! - After [`Checkpoint::open`], the bytes of each tensor are inside its file, overlap no other
//!   tensor and match its shape and type. Slice reads therefore stay within the file.
//! - Only the requested bytes are read, in pieces of limited size.
//!
//! Not here: the tensors that a model needs and their shards, which the caller chooses; printing,
//! because [`fill_from`] reports its progress to the caller.

mod adapter;
mod checkpoint;
pub(crate) mod convert;
pub mod file;
pub(crate) mod folder;
mod header;
mod json;
mod load;
mod mxfp4;
mod packed;
mod permuted;
mod quantise;
mod quantised;
mod slice;
mod weight;

pub use checkpoint::{Checkpoint, ExpectedTensor, TensorInfo};
pub use folder::FolderError;
pub(crate) use header::any_entries;
pub use load::fill_from;
pub use quantised::{LayerError, Quantised, quantise};
pub use slice::Error;
