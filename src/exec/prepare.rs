//! Prepares one call of a plan.

use crate::base::{Argument, Diagnostic, KERNEL_BLOCKS};
use crate::call::{Call, View};
use crate::device::{
    BufferSlice, Communicator, KernelArgument, LoadedKernels, Prepared, PreparedKernel, Result, Tensor,
    operator,
};

/// Checks a call with the device's library and prepares it. `lengths` are the rows per sequence
/// that attention over blocks reads; `None` means all.
///
/// # Errors
/// The library or `tensor` refuses.
pub fn prepare(
    call: &Call,
    tensor: &dyn Fn(&View) -> Result<Tensor>,
    lengths: Option<&[i64]>,
) -> Result<Prepared> {
    let arguments = call.arguments().into_iter();
    let arguments = arguments.map(|argument| argument.try_map(|operand| tensor(operand.view)));
    let mut arguments = arguments.collect::<Result<Vec<_>>>()?;
    if let Some(((at, _), lengths)) = call.lengths().zip(lengths) {
        arguments[at] = Argument::Ints(lengths.to_vec());
    }
    operator::prepare(call.name(), arguments)
}

/// Prepares a fused product and collective. The library may not name the communicator.
pub(super) fn prepare_joined(
    call: &Call,
    tensor: &dyn Fn(&View) -> Result<Tensor>,
    communicator: &Communicator,
) -> Result<Prepared> {
    let arguments = call.arguments().into_iter();
    let arguments = arguments.map(|argument| argument.try_map(|operand| tensor(operand.view)));
    let mut arguments = arguments.collect::<Result<Vec<_>>>()?;
    if let Some(at) = call.group_name() {
        arguments[at] = communicator.name()?.into();
    }
    operator::prepare(call.name(), arguments)
}

/// `memory` returns the bytes from the first to the last element of a view.
pub(super) fn prepare_kernel(
    call: &Call,
    entry: &str,
    kernels: &LoadedKernels,
    memory: &dyn Fn(&View) -> Result<BufferSlice>,
) -> Result<PreparedKernel> {
    let arguments = call.arguments().into_iter().map(|argument| match argument {
        Argument::Tensor(operand) => Ok(KernelArgument::Memory(memory(operand.view)?)),
        Argument::Int(number) => {
            let beyond = |_| Diagnostic::new(entry, "a number that does not fit 32 bits").found(number);
            Ok(KernelArgument::Value(u32::try_from(number).map_err(beyond)?.to_ne_bytes().to_vec()))
        }
        Argument::Float(number) => Ok(KernelArgument::Value((number as f32).to_ne_bytes().to_vec())),
        other => {
            let problem = Diagnostic::new(entry, "an argument that no kernel takes");
            Err(problem.expected("memory or a number").found(format!("{other:?}")).into())
        }
    });
    kernels.entry(call.name(), entry)?.prepare(KERNEL_BLOCKS, arguments.collect::<Result<_>>()?)
}
