//! Calls that are kernels of this project.
//!
//! A kernel's row of [`call`](super::call) has the name of its file in `kernels/`, which has an entry function for each element type.

use super::call::Call;
use crate::base::{DType, Kernels};

impl Call {
    /// Whether a text begins with the name of a call.
    #[must_use]
    pub fn is_named(word: &str) -> bool {
        word.starts_with("aclnn") || Kernels::ALL.has(word)
    }

    /// The entry function of a kernel, of its element type; none for an operator of the toolkit.
    #[must_use]
    pub fn kernel_entry(&self) -> Option<String> {
        let kernel = Some(self.name()).filter(|name| !name.starts_with("aclnn"))?;
        let ends = [(DType::F32, "float"), (DType::BF16, "bfloat16"), (DType::F16, "half"), (DType::I32, "int32")];
        let (_, end) =
            ends.into_iter().find(|(dtype, _)| self.reads().first().is_some_and(|view| view.dtype == *dtype))?;
        Some(format!("{kernel}_{end}"))
    }
}
