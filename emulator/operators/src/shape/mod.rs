//! Operators that move elements or change a layout.

pub(crate) mod arrangement;
pub(crate) mod fractal_rows;
pub(crate) mod further_rows;
pub(crate) mod remap;
pub(crate) mod rows;
