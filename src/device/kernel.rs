//! Kernels from loaded binaries.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use super::buffer::BufferSlice;
use super::card::{Device, same_device};
use super::error::Result;
use super::handle::Handle;
use super::stream::Stream;
use crate::base::Diagnostic;

/// Kernels on one card: an object of the Ascend C compiler, or a host library on emulated cards.
#[derive(Debug)]
pub struct KernelBinary {
    device: Arc<Device>,
    handle: Handle,
}

/// An entry function of a binary, which it keeps loaded.
#[derive(Clone, Debug)]
pub struct Kernel {
    binary: Arc<KernelBinary>,
    handle: Handle,
}

/// Argument of a kernel launch.
#[derive(Clone, Debug)]
pub enum KernelArgument {
    /// The address of device memory.
    Memory(BufferSlice),
    /// Bytes of a value.
    Value(Vec<u8>),
}

impl KernelBinary {
    /// Loads a file from an absolute path.
    ///
    /// # Errors
    /// The library fails.
    pub fn load(device: &Arc<Device>, path: &Path) -> Result<Arc<Self>> {
        let text = c_string("kernel binary", path.as_os_str().as_bytes())?;
        let table = device.enter()?;
        let mut handle = Handle::NULL;
        // SAFETY: the path ends in a NUL, no options are given, and `handle` is valid for a write.
        let code = unsafe {
            (table.aclrtBinaryLoadFromFile)(text.as_ptr(), std::ptr::null_mut(), &raw mut handle.0)
        };
        device.check("aclrtBinaryLoadFromFile", code)?;
        Ok(Arc::new(Self { device: Arc::clone(device), handle }))
    }

    /// Returns an entry function.
    ///
    /// # Errors
    /// The binary has no such function.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel> {
        let text = c_string("kernel", name.as_bytes())?;
        let table = self.device.enter()?;
        let mut handle = Handle::NULL;
        // SAFETY: the binary is loaded, the name ends in a NUL, and `handle` is valid for a write.
        let code = unsafe { (table.aclrtBinaryGetFunction)(self.handle.0, text.as_ptr(), &raw mut handle.0) };
        self.device.check("aclrtBinaryGetFunction", code)?;
        Ok(Kernel { binary: Arc::clone(self), handle })
    }
}

impl Drop for KernelBinary {
    fn drop(&mut self) {
        // Launches may still be running.
        self.device.synchronize_teardown();
        let Some(table) = self.device.enter_teardown() else { return };
        // SAFETY: this is the only owner of the binary, and its work is done.
        let code = unsafe { (table.aclrtBinaryUnLoad)(self.handle.0) };
        self.device.park("aclrtBinaryUnLoad", code);
    }
}

/// A kernel launch that can be enqueued repeatedly. Keeps the arguments' memory alive.
#[derive(Debug)]
pub struct PreparedKernel {
    kernel: Kernel,
    list: Handle,
    blocks: u32,
    _memory: Vec<KernelArgument>,
}

impl Kernel {
    /// Prepares a launch on `blocks` cores.
    ///
    /// # Errors
    /// An argument belongs to another card.
    pub fn prepare(&self, blocks: u32, arguments: Vec<KernelArgument>) -> Result<PreparedKernel> {
        let device = &self.binary.device;
        for argument in &arguments {
            if let KernelArgument::Memory(slice) = argument {
                same_device("prepare", device, slice.device())?;
            }
        }
        let table = device.enter()?;
        let mut list = Handle::NULL;
        // SAFETY: the function's binary is loaded, and `list` is valid for a write.
        let code = unsafe { (table.aclrtKernelArgsInit)(self.handle.0, &raw mut list.0) };
        device.check("aclrtKernelArgsInit", code)?;
        for argument in &arguments {
            let mut value = match argument {
                KernelArgument::Memory(slice) => slice.address().addr().to_ne_bytes().to_vec(),
                KernelArgument::Value(bytes) => bytes.clone(),
            };
            let mut place = Handle::NULL;
            // SAFETY: the list is open; the value has as many bytes as are said, which the call
            // copies.
            let code = unsafe {
                (table.aclrtKernelArgsAppend)(
                    list.0,
                    value.as_mut_ptr().cast(),
                    value.len(),
                    &raw mut place.0,
                )
            };
            device.check("aclrtKernelArgsAppend", code)?;
        }
        // SAFETY: the list is open.
        let code = unsafe { (table.aclrtKernelArgsFinalize)(list.0) };
        device.check("aclrtKernelArgsFinalize", code)?;
        Ok(PreparedKernel { kernel: self.clone(), list, blocks, _memory: arguments })
    }

    /// Enqueues the kernel on `blocks` cores. Dropped memory of the arguments is freed after the
    /// card's work is done.
    ///
    /// # Errors
    /// An argument or the stream belongs to another card.
    pub fn enqueue(&self, stream: &Stream, blocks: u32, arguments: &[KernelArgument]) -> Result<()> {
        self.prepare(blocks, arguments.to_vec())?.enqueue(stream)
    }
}

impl PreparedKernel {
    /// Enqueues the launch.
    ///
    /// # Errors
    /// The stream belongs to another card. Waiting for the stream reports errors of the work
    /// itself.
    pub fn enqueue(&self, stream: &Stream) -> Result<()> {
        let device = &self.kernel.binary.device;
        same_device("enqueue", device, stream.device())?;
        let table = device.enter()?;
        let (function, config, reserve) = (self.kernel.handle.0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the function, the list made for it and the stream are alive; memory waits for the
        // stream before it is freed.
        let code = unsafe {
            (table.aclrtLaunchKernelWithConfig)(
                function,
                self.blocks,
                stream.raw(),
                config,
                self.list.0,
                reserve,
            )
        };
        device.check("aclrtLaunchKernelWithConfig", code)
    }
}

fn c_string(what: &str, bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| {
        Diagnostic::new(what, "a name with a zero byte").found(String::from_utf8_lossy(bytes)).into()
    })
}
