//! Calls that are kernels of this project.
//!
//! A kernel's row of [`call`](crate::call) has the name of its file in `kernels/`, which has an
//! entry function for each element type.

use crate::base::{DType, Kernels};
use crate::call::{Call, View};

impl Call {
    /// Whether a text begins with the name of a call.
    #[must_use]
    pub fn is_named(word: &str) -> bool {
        word.starts_with("aclnn") || Kernels::ALL.has(word)
    }

    /// The entry function of a kernel, of the element type of its first tensor that has one; none
    /// for an operator of the toolkit.
    #[must_use]
    pub fn kernel_entry(&self) -> Option<String> {
        let kernel = Some(self.name()).filter(|name| !name.starts_with("aclnn"))?;
        let ends =
            [(DType::F32, "float"), (DType::BF16, "bfloat16"), (DType::F16, "half"), (DType::I32, "int32")];
        let (reads, writes) = (self.reads(), self.writes());
        let of = |view: &&View| ends.into_iter().find(|(dtype, _)| view.dtype == *dtype);
        let (_, end) = reads.iter().chain(&writes).find_map(of)?;
        Some(format!("{kernel}_{end}"))
    }
}
