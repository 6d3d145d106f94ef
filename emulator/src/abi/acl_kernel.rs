//! AscendCL: kernels of the program, and data buffers.

use std::ffi::{CStr, c_char, c_void};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ascend_tp_machine::{Launch, kernel};
use ascend_tp_sys::{
    aclDataBuffer, aclrtArgsHandle, aclrtBinHandle, aclrtBinaryLoadOptions, aclrtFuncHandle,
    aclrtLaunchKernelCfg, aclrtParamHandle, aclrtStream,
};

use crate::abi::library;
use crate::abi::out::Out;
use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::base::report::{Report, ReportKind};
use crate::machine::Machine;
use crate::memory::access::MemoryAccess;
use crate::memory::raw::{RawSpan, load_array};
use crate::runtime::compiled::{CompiledCall, CompiledLibrary, LaunchPlace};
use crate::runtime::kernel::{HostKernel, KernelBody, KernelFunction, LaunchArgument};
use crate::runtime::thread;
use crate::scheduler::pool::{StreamTask, Without, Workers};
use crate::scheduler::ran::{self, MeasuredKernel, Ran};
use crate::timed::VirtualCost;

/// Blocks per launch (Ascend C guide, calling kernels).
const MAX_BLOCKS: u32 = 65_535;

/// Argument buffer alignment (CANN runtime guide, aclrtKernelArgsGetMemSize).
const WORD_BYTES: usize = 8;

/// # Safety
///
/// `text` is NULL or NUL-terminated.
unsafe fn text(argument: &str, text: *const c_char) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: not NULL, so NUL-terminated by this function's contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Machine {
    /// A library for this host runs its own kernels. Kernels of any other existing file run as
    /// registered functions.
    pub(super) unsafe fn aclrtBinaryLoadFromFile(
        &self,
        bin_path: *const c_char,
        _options: *mut aclrtBinaryLoadOptions,
        bin_handle: Out<aclrtBinHandle>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller upholds this contract.
        let path = unsafe { text("bin_path", bin_path) }?;
        if !Path::new(&path).is_absolute() {
            return Err(Failure::new(code::INVALID_PARAM, format!("bin_path {path:?} must be absolute")));
        }
        if !Path::new(&path).is_file() {
            return Err(Failure::new(code::INVALID_FILE, format!("bin_path {path:?} names no file")));
        }
        let bytes = fs::read(&path)
            .map_err(|error| Failure::new(code::INVALID_FILE, format!("bin_path {path:?}: {error}")))?;
        self.load_binary(bin_handle, library::open(&path, bytes)?)
    }

    pub(super) unsafe fn aclrtBinaryLoadFromData(
        &self,
        data: *const c_void,
        length: usize,
        _options: *const aclrtBinaryLoadOptions,
        bin_handle: Out<aclrtBinHandle>,
    ) -> Result<(), Failure> {
        if data.is_null() || length == 0 {
            let what = format!("data is {data:p} and length {length}: a binary has at least a byte");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        // SAFETY: the C caller passes `length` bytes of host memory.
        let bytes = unsafe { load_array("data", data.cast::<u8>(), length) }?;
        self.load_binary(bin_handle, library::open("data", bytes)?)
    }

    fn load_binary(
        &self,
        bin_handle: Out<aclrtBinHandle>,
        library: Option<Arc<dyn CompiledLibrary>>,
    ) -> Result<(), Failure> {
        if bin_handle.is_null() {
            return Err(Failure::null("bin_handle"));
        }
        let card = self.current_card()?;
        let id = self.update(|state| {
            let id = state.fresh_number();
            state.runtime.kernels.load(id, card, library);
            id
        });
        bin_handle.set("bin_handle", HandleKind::Binary.encode(id))
    }

    pub(super) fn aclrtBinaryUnLoad(&self, bin_handle: aclrtBinHandle) -> Result<(), Failure> {
        let id = HandleKind::Binary.decode(bin_handle)?;
        self.update(|state| state.runtime.kernels.unload(id))
    }

    pub(super) unsafe fn aclrtBinaryGetFunction(
        &self,
        bin_handle: aclrtBinHandle,
        kernel_name: *const c_char,
        func_handle: Out<aclrtFuncHandle>,
    ) -> Result<(), Failure> {
        let binary = HandleKind::Binary.decode(bin_handle)?;
        // SAFETY: the caller upholds this contract.
        let name = unsafe { text("kernel_name", kernel_name) }?;
        let id = self.update(|state| {
            let fresh = state.fresh_number();
            state.runtime.kernels.look_up(binary, &name, fresh)
        })?;
        func_handle.set("func_handle", HandleKind::Function.encode(id))
    }

    pub(super) fn aclrtKernelArgsInit(
        &self,
        func_handle: aclrtFuncHandle,
        args_handle: Out<aclrtArgsHandle>,
    ) -> Result<(), Failure> {
        let function = HandleKind::Function.decode(func_handle)?;
        let id = self.update(|state| {
            let fresh = state.fresh_number();
            state.runtime.kernels.begin_list(function, fresh).map(|()| fresh)
        })?;
        args_handle.set("args_handle", HandleKind::Arguments.encode(id))
    }

    pub(super) unsafe fn aclrtKernelArgsAppend(
        &self,
        args_handle: aclrtArgsHandle,
        param: *mut c_void,
        param_size: usize,
        param_handle: Out<aclrtParamHandle>,
    ) -> Result<(), Failure> {
        let list = HandleKind::Arguments.decode(args_handle)?;
        if param_size == 0 {
            return Err(Failure::new(
                code::INVALID_PARAM,
                "param_size is 0; a parameter has at least a byte",
            ));
        }
        // SAFETY: the C caller passes `param_size` bytes of host memory.
        let value = unsafe { load_array("param", param.cast::<u8>().cast_const(), param_size) }?;
        let place = self.update(|state| state.runtime.kernels.append(list, value))?;
        param_handle.set("param_handle", std::ptr::without_provenance_mut(place))
    }

    pub(super) fn aclrtKernelArgsAppendPlaceHolder(
        &self,
        args_handle: aclrtArgsHandle,
        param_handle: Out<aclrtParamHandle>,
    ) -> Result<(), Failure> {
        let list = HandleKind::Arguments.decode(args_handle)?;
        let place = self.update(|state| state.runtime.kernels.append_place_holder(list))?;
        param_handle.set("param_handle", std::ptr::without_provenance_mut(place))
    }

    pub(super) fn aclrtKernelArgsGetPlaceHolderBuffer(
        &self,
        args_handle: aclrtArgsHandle,
        param_handle: aclrtParamHandle,
        data_size: usize,
        buffer_addr: Out<*mut c_void>,
    ) -> Result<(), Failure> {
        let list = HandleKind::Arguments.decode(args_handle)?;
        let room = self
            .update(|state| state.runtime.kernels.place_holder_room(list, param_handle.addr(), data_size))?;
        buffer_addr.set("buffer_addr", std::ptr::with_exposed_provenance_mut(room.address()))
    }

    pub(super) fn aclrtKernelArgsFinalize(&self, args_handle: aclrtArgsHandle) -> Result<(), Failure> {
        let list = HandleKind::Arguments.decode(args_handle)?;
        self.update(|state| state.runtime.kernels.finalize(list))
    }

    /// Attributes are ignored: they affect only scheduling on a card.
    pub(super) fn aclrtLaunchKernelWithConfig(
        &self,
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        stream: aclrtStream,
        _cfg: *mut aclrtLaunchKernelCfg,
        args_handle: aclrtArgsHandle,
        reserve: *mut c_void,
    ) -> Result<(), Failure> {
        if !reserve.is_null() {
            return Err(Failure::new(code::INVALID_PARAM, "reserve must be NULL"));
        }
        let function = HandleKind::Function.decode(func_handle)?;
        let list = HandleKind::Arguments.decode(args_handle)?;
        let arguments = self.update(|state| state.runtime.kernels.values(list, function))?;
        self.launch_kernel(
            "aclrtLaunchKernelWithConfig",
            function,
            num_blocks,
            stream,
            Params::List(arguments),
        )
    }

    /// The arguments are words in device memory. The stream reads them when the launch starts.
    pub(super) fn aclrtLaunchKernel(
        &self,
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        args_data: *const c_void,
        args_size: usize,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        let function = HandleKind::Function.decode(func_handle)?;
        if args_size == 0 || !args_size.is_multiple_of(WORD_BYTES) {
            let what =
                format!("args_size is {args_size}; every argument takes a multiple of {WORD_BYTES} bytes");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let span = self.device_span(args_data, args_size)?;
        self.launch_kernel("aclrtLaunchKernel", function, num_blocks, stream, Params::OnCard(span))
    }

    pub(super) fn aclrtLaunchKernelV2(
        &self,
        func_handle: aclrtFuncHandle,
        num_blocks: u32,
        args_data: *const c_void,
        args_size: usize,
        _cfg: *mut aclrtLaunchKernelCfg,
        stream: aclrtStream,
    ) -> Result<(), Failure> {
        self.aclrtLaunchKernel(func_handle, num_blocks, args_data, args_size, stream)
    }

    fn launch_kernel(
        &self,
        name: &'static str,
        function: u64,
        blocks: u32,
        stream: aclrtStream,
        params: Params,
    ) -> Result<(), Failure> {
        if blocks == 0 {
            return Err(Failure::new(
                code::INVALID_PARAM,
                "num_blocks is 0; a kernel runs on at least one core",
            ));
        }
        let function = self.lock().runtime.kernels.function(function)?.clone();
        let card = self.stream_card(stream)?;
        if function.card() != card {
            let what = format!(
                "the kernel was loaded on card {}, the stream belongs to card {card}",
                function.card()
            );
            return Err(Failure::new(code::PARAM_INVALID, what));
        }
        let accesses = match &params {
            Params::OnCard(span) => vec![MemoryAccess::read("args_data", span)],
            Params::List(_) => Vec::new(),
        };
        let (cost, task) = match function.body.clone() {
            KernelBody::Registered(kernel) => {
                (VirtualCost::Kernel, self.registered_task(function, kernel, blocks, params))
            }
            KernelBody::Compiled(kernel) => (
                VirtualCost::Counted(self.timed().and_then(|_| known(&kernel, &params))),
                self.compiled_task(kernel, card, blocks, stream, params)?,
            ),
        };
        let entry = self.work(name, &cost, Without::Nothing, task);
        self.enqueue(stream, entry, accesses).map(|_| ())
    }

    fn registered_task(
        &self,
        function: KernelFunction,
        kernel: HostKernel,
        blocks: u32,
        params: Params,
    ) -> StreamTask {
        let machine = self.weak();
        let params = match params {
            Params::OnCard(span) => Ok(span),
            Params::List(list) => Err(list.into_iter().map(LaunchArgument::into_bytes).collect::<Vec<_>>()),
        };
        Arc::new(move |_: &Workers| {
            let machine = machine.upgrade().ok_or_else(machine_ended)?;
            match &params {
                Err(values) => function.run(&kernel, machine.memory(), blocks, values),
                Ok(span) => {
                    let words: Vec<Vec<u8>> = read_all(span).chunks(WORD_BYTES).map(<[u8]>::to_vec).collect();
                    function.run(&kernel, machine.memory(), blocks, &words)
                }
            }
        })
    }

    fn compiled_task(
        &self,
        kernel: CompiledCall,
        card: u32,
        blocks: u32,
        stream: aclrtStream,
        params: Params,
    ) -> Result<StreamTask, Failure> {
        if blocks > MAX_BLOCKS {
            let what = format!("num_blocks is {blocks}; a kernel runs on at most {MAX_BLOCKS}");
            return Err(Failure::new(code::INVALID_PARAM, what));
        }
        let params = match params {
            Params::OnCard(span) => Ok(span),
            Params::List(arguments) => Err(kernel.values(card, arguments)?),
        };
        let (number, site) = {
            let mut state = self.lock();
            let stream = state.resolve_stream(stream, thread::context(self.key()))?;
            (state.fresh_number(), self.site(&state, Some(stream)))
        };
        let seed = self.strict().map_or(0, |strict| strict.seed()).wrapping_add(number);
        let place = LaunchPlace { card, blocks, cores: self.config().soc.vector_cores(), seed };
        let machine = self.weak();
        Ok(Arc::new(move |_: &Workers| {
            let machine = machine.upgrade().ok_or_else(machine_ended)?;
            let (run, accesses) = match &params {
                Err(values) => kernel.run(machine.memory(), &place, values),
                Ok(span) => kernel.run(machine.memory(), &place, &kernel.unpack(&read_all(span))?),
            };
            let measured = Some(MeasuredKernel { cycles: run.cycles, bytes: run.global_bytes });
            ran::tell(Ran { accesses, measured });
            let watcher = machine.lock().runtime.kernels.watcher.clone();
            if let Some(watcher) = watcher {
                watcher(&run);
            }
            let Some(finding) = run.finding else { return Ok(()) };
            if let Some(strict) = machine.strict() {
                let sites = site.iter().cloned().collect();
                strict.report_once(Report::new(ReportKind::Kernel, finding.text.clone(), sites));
            }
            Err(finding.failure())
        }))
    }

    pub(super) fn aclCreateDataBuffer(
        &self,
        data: *mut c_void,
        size: usize,
    ) -> Result<*mut aclDataBuffer, Failure> {
        let id = self.update(|state| {
            let id = state.fresh_number();
            state.runtime.data_buffers.insert(id, (data.expose_provenance(), size));
            id
        });
        Ok(HandleKind::DataBuffer.encode(id).cast())
    }

    pub(super) fn aclDestroyDataBuffer(&self, data_buffer: *const aclDataBuffer) -> Result<(), Failure> {
        let id = HandleKind::DataBuffer.decode(data_buffer.cast())?;
        let removed = self.update(|state| state.runtime.data_buffers.remove(&id));
        removed.map(|_| ()).ok_or_else(|| HandleKind::DataBuffer.gone(id))
    }

    pub(super) fn aclGetDataBufferAddr(
        &self,
        data_buffer: *const aclDataBuffer,
    ) -> Result<*mut c_void, Failure> {
        self.data_buffer(data_buffer).map(|(address, _)| std::ptr::with_exposed_provenance_mut(address))
    }

    pub(super) fn aclGetDataBufferSizeV2(&self, data_buffer: *const aclDataBuffer) -> Result<usize, Failure> {
        self.data_buffer(data_buffer).map(|(_, size)| size)
    }

    pub(super) fn aclUpdateDataBuffer(
        &self,
        data_buffer: *mut aclDataBuffer,
        data: *mut c_void,
        size: usize,
    ) -> Result<(), Failure> {
        self.data_buffer(data_buffer)?;
        let id = HandleKind::DataBuffer.decode(data_buffer.cast())?;
        self.update(|state| state.runtime.data_buffers.insert(id, (data.expose_provenance(), size)));
        Ok(())
    }

    fn data_buffer(&self, data_buffer: *const aclDataBuffer) -> Result<(usize, usize), Failure> {
        let id = HandleKind::DataBuffer.decode(data_buffer.cast())?;
        self.lock().runtime.data_buffers.get(&id).copied().ok_or_else(|| HandleKind::DataBuffer.gone(id))
    }
}

enum Params {
    List(Vec<LaunchArgument>),
    OnCard(RawSpan),
}

/// Returns only launches of kernels of this project.
fn known(kernel: &CompiledCall, params: &Params) -> Option<Launch> {
    let Params::List(arguments) = params else { return None };
    let number = |argument: &LaunchArgument| match argument {
        LaunchArgument::Value(bytes) => {
            Some(u64::from(u32::from_ne_bytes(bytes.as_slice().try_into().ok()?)))
        }
        LaunchArgument::Data(_) => None,
    };
    let numbers: Vec<u64> = arguments.iter().filter_map(number).collect();
    kernel::launch(kernel.library.entries()[kernel.entry].name, &numbers)
}

fn read_all(span: &RawSpan) -> Vec<u8> {
    let mut bytes = vec![0_u8; span.len_bytes()];
    span.read(0, &mut bytes);
    bytes
}

fn machine_ended() -> Failure {
    Failure::new(code::INTERNAL, "the machine ended before the kernel ran")
}
