//! Ascend C kernels compiled for this host.
//!
//! Invariants: a kernel requests all its memory, so it touches only allocations of its card. The
//! first broken rule ends the kernel.

use std::fmt;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::memory::access::{AccessMode, MemoryAccess};
use crate::memory::footprint::Footprint;
use crate::memory::location::Location;
use crate::memory::raw::{Allocation, RawSpan};
use crate::memory::store::DeviceMemory;
use crate::runtime::kernel::LaunchArgument;

/// Libraries and their names stay loaded.
#[derive(Debug)]
pub(crate) struct CompiledEntry {
    pub(crate) name: &'static str,
    pub(crate) params: Vec<CompiledParam>,
    /// Label of memory outside all parameters.
    pub(crate) other: &'static str,
}

#[derive(Debug)]
pub(crate) struct CompiledParam {
    pub(crate) name: &'static str,
    /// Label of the memory behind the parameter.
    pub(crate) label: &'static str,
    pub(crate) bytes: usize,
    pub(crate) is_address: bool,
}

pub(crate) trait CompiledLibrary: fmt::Debug + Send + Sync {
    fn entries(&self) -> &[CompiledEntry];

    fn run(&self, entry: usize, launch: &mut CompiledLaunch<'_>);
}

pub(crate) struct CompiledLaunch<'a> {
    pub(crate) blocks: u32,
    /// Number of blocks that run at once.
    pub(crate) cores: u32,
    pub(crate) seed: u64,
    pub(crate) arguments: &'a [Vec<u8>],
    /// Finds the memory at or just before an address.
    pub(crate) find: &'a mut dyn FnMut(usize) -> Result<FoundMemory, String>,
    pub(crate) run: KernelRun,
}

pub(crate) struct FoundMemory {
    pub(crate) span: RawSpan,
    pub(crate) name: &'static str,
}

/// Result of one launch of a compiled kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRun {
    /// Name of the entry function.
    pub kernel: &'static str,
    /// Card that ran the kernel.
    pub card: u32,
    /// Number of blocks of the launch.
    pub blocks: u32,
    /// Cycles of the slowest core.
    pub cycles: u64,
    /// Maximum busy cycles per pipe: scalar, vector, copies in (MTE2), copies out (MTE3).
    pub busy_cycles: [u64; 4],
    /// Bytes that all cores read and wrote in global memory.
    pub global_bytes: u64,
    /// Maximum unified buffer use of a core, in bytes.
    pub local_bytes: u64,
    /// Touched global memory. Each contiguous range appears once per kind of access.
    pub touched: Vec<KernelTouch>,
    /// The broken rule that ended the kernel.
    pub finding: Option<KernelFinding>,
}

/// Bytes that a kernel touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelTouch {
    /// First address of the range.
    pub address: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
    /// True for writes. Otherwise the launch did not write the bytes before it read them.
    pub is_write: bool,
}

/// A rule that a kernel broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFinding {
    /// Name of the entry function.
    pub kernel: String,
    /// Core that broke the rule, if known.
    pub core: Option<u32>,
    /// Source file as passed to the compiler. Empty if no line is responsible.
    pub file: String,
    /// Line in `file`. 0 if no line is responsible.
    pub line: u32,
    /// The Ascend C call that broke the rule.
    pub call: String,
    /// Operand of `call` that refers to the memory.
    pub operand: String,
    /// Kind of rule: `alignment`, `range`, `unwritten`, `queue`, `order`, `flag`, `mask`, `cores`,
    /// `end`.
    pub rule: String,
    /// Value or state that the rule expects.
    pub expected: String,
    /// Value or state that was found.
    pub found: String,
    /// True if a card would hang instead of computing a wrong result.
    pub is_hang: bool,
    /// The whole finding in one sentence.
    pub text: String,
}

impl KernelFinding {
    pub(crate) fn failure(&self) -> Failure {
        let code = if self.is_hang { code::VECTOR_CORE_TIMEOUT } else { code::VECTOR_CORE_EXCEPTION };
        Failure::new(code, self.text.clone()).quiet()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CompiledCall {
    pub(crate) library: Arc<dyn CompiledLibrary>,
    pub(crate) entry: usize,
}

impl CompiledCall {
    pub(crate) fn entry(&self) -> &CompiledEntry {
        &self.library.entries()[self.entry]
    }

    /// Data behind addresses is copied to new memory.
    pub(crate) fn values(&self, card: u32, arguments: Vec<LaunchArgument>) -> Result<Values, Failure> {
        let mut values = Values { bytes: Vec::new(), data: Vec::new() };
        for argument in arguments {
            match argument {
                LaunchArgument::Value(value) => values.bytes.push(value),
                LaunchArgument::Data(data) => {
                    let room = Allocation::new(data.len(), Location::Card(card), None).map_err(|error| {
                        let what = format!("no memory for {} bytes behind an argument: {error}", data.len());
                        Failure::new(code::MEMORY_ALLOCATION, what)
                    })?;
                    values.bytes.push(room.base().to_ne_bytes().to_vec());
                    let room = Arc::new(room);
                    room.span(0, data.len()).write(0, &data);
                    values.data.push(room);
                }
            }
        }
        self.check(&values.bytes)?;
        Ok(values)
    }

    fn check(&self, values: &[Vec<u8>]) -> Result<(), Failure> {
        let entry = self.entry();
        let wrong =
            |what: String| Failure::new(code::PARAM_INVALID, format!("kernel {:?} {what}", entry.name));
        if values.len() != entry.params.len() {
            let names: Vec<&str> = entry.params.iter().map(|param| param.name).collect();
            let given = values.len();
            return Err(wrong(format!(
                "takes {} parameters ({}), the list has {given}",
                names.len(),
                names.join(", ")
            )));
        }
        for (param, value) in entry.params.iter().zip(values) {
            if param.bytes != value.len() {
                let what = format!(
                    "takes {} bytes for `{}`, the list has {} bytes",
                    param.bytes,
                    param.name,
                    value.len()
                );
                return Err(wrong(what));
            }
        }
        Ok(())
    }

    /// Each value uses a multiple of 8 bytes.
    pub(crate) fn unpack(&self, buffer: &[u8]) -> Result<Values, Failure> {
        let entry = self.entry();
        let (mut values, mut at) = (Vec::new(), 0);
        for param in &entry.params {
            let value = buffer.get(at..at + param.bytes).ok_or_else(|| {
                let what = format!(
                    "kernel {:?}: `{}` ends {} bytes into its arguments, args_size is {}",
                    entry.name,
                    param.name,
                    at + param.bytes,
                    buffer.len()
                );
                Failure::new(code::PARAM_INVALID, what)
            })?;
            values.push(value.to_vec());
            at += param.bytes.next_multiple_of(8);
        }
        Ok(Values { bytes: values, data: Vec::new() })
    }

    pub(crate) fn run(
        &self,
        store: &DeviceMemory,
        place: &LaunchPlace,
        values: &Values,
    ) -> (KernelRun, Vec<MemoryAccess>) {
        let entry = self.entry();
        let address = |value: &[u8]| <[u8; 8]>::try_from(value).map_or(0, u64::from_ne_bytes) as usize;
        let pointers: Vec<(usize, &'static str, &'static str)> = entry
            .params
            .iter()
            .zip(&values.bytes)
            .filter(|(param, _)| param.is_address)
            .map(|(param, value)| (address(value), param.name, param.label))
            .collect();
        let mut found: Vec<(Arc<Allocation>, &'static str)> = Vec::new();
        let mut find = |address: usize| {
            let own =
                values.data.iter().find(|data| (data.base()..data.base() + data.usable()).contains(&address));
            let allocation =
                own.map_or_else(|| on_card(store, place.card, address), |own| Ok(Arc::clone(own)))?;
            let (first, end) = (allocation.base(), allocation.base() + allocation.usable());
            let of = pointers.iter().find(|(pointer, _, _)| (first..end).contains(pointer));
            let (name, label) = of.map_or((entry.other, entry.other), |(_, name, label)| (*name, *label));
            if own.is_none() && !found.iter().any(|(known, _)| Arc::ptr_eq(known, &allocation)) {
                found.push((Arc::clone(&allocation), label));
            }
            Ok(FoundMemory { span: allocation.span(0, allocation.usable()), name })
        };
        let run =
            KernelRun { kernel: entry.name, card: place.card, blocks: place.blocks, ..KernelRun::default() };
        let LaunchPlace { blocks, cores, seed, .. } = *place;
        let mut launch =
            CompiledLaunch { blocks, cores, seed, arguments: &values.bytes, find: &mut find, run };
        self.library.run(self.entry, &mut launch);
        let run = launch.run;
        let accesses = accesses(&run, &found);
        (run, accesses)
    }
}

#[derive(Debug)]
pub(crate) struct Values {
    bytes: Vec<Vec<u8>>,
    data: Vec<Arc<Allocation>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchPlace {
    pub(crate) card: u32,
    pub(crate) blocks: u32,
    pub(crate) cores: u32,
    pub(crate) seed: u64,
}

fn on_card(store: &DeviceMemory, card: u32, address: usize) -> Result<Arc<Allocation>, String> {
    let span = store.device_span(address, 1).map_err(|failure| failure.message)?;
    match (span.card(), span.allocation()) {
        (Some(owner), Some(allocation)) if owner == card => Ok(Arc::clone(allocation)),
        (owner, _) => {
            let owner = owner.map_or("the host".to_owned(), |owner| format!("card {owner}"));
            Err(format!("memory of {owner}; the kernel runs on card {card}"))
        }
    }
}

fn accesses(run: &KernelRun, found: &[(Arc<Allocation>, &'static str)]) -> Vec<MemoryAccess> {
    let mut all = Vec::new();
    for (allocation, label) in found {
        for (is_write, mode) in [(false, AccessMode::Read), (true, AccessMode::Write)] {
            let (first, size) = (allocation.base(), allocation.usable());
            let touched = run.touched.iter().filter(|touch| {
                touch.is_write == is_write && (first..first + size).contains(&(touch.address as usize))
            });
            let lines = touched.map(|touch| {
                let from = touch.address as usize - first;
                from..from + touch.bytes as usize
            });
            let footprint = Footprint::lines(lines);
            if !footprint.is_empty() {
                all.push(MemoryAccess::new(label, &allocation.span(0, size), mode).within(Some(footprint)));
            }
        }
    }
    all
}
