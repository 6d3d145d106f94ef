//! Calls that launch kernels of this project.
//!
//! The name of such a call in [`call`](crate::call) is the name of a file in `kernels/`. The file
//! has one entry function per element type.

use crate::base::{DType, Kernels};
use crate::call::{Call, View};

impl Call {
    /// Returns whether `word` starts with the name of a call.
    #[must_use]
    pub fn is_named(word: &str) -> bool {
        word.starts_with("aclnn") || Kernels::ALL.has(word)
    }

    /// Returns the entry function of a kernel, or `None` for a toolkit operator. The first tensor
    /// with a supported element type selects the function.
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
