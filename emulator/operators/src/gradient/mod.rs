//! Gradients of activations, norms, softmax and lookups.

pub(crate) mod rows;
