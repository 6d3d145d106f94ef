//! Kernels in Ascend C that were compiled for this host: what a launch of one is given, and what it tells.
//!
//! Input: arguments of a launch, the memory of its card. Output: a [`KernelRun`]. Invariants: a kernel reaches memory only by
//! asking for it, so nothing outside its card's allocations is touched; the first rule that it breaks ends it. Does not:
//! load libraries (see `abi::library`), or know the rules (see `kernels/host`).

use std::fmt;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::memory::footprint::Footprint;
use crate::memory::location::Location;
use crate::memory::raw::{Allocation, RawSpan};
use crate::memory::store::Memory;
use crate::runtime::kernel::Argument;
use crate::runtime::stream::{Access, AccessMode};

/// What one kernel of a library takes. Libraries stay loaded, and so do their names.
#[derive(Debug)]
pub(crate) struct CompiledEntry {
    pub(crate) name: &'static str,
    pub(crate) params: Vec<CompiledParam>,
    /// What reports call memory that no parameter points into.
    pub(crate) other: &'static str,
}

/// A parameter of a kernel's function.
#[derive(Debug)]
pub(crate) struct CompiledParam {
    pub(crate) name: &'static str,
    /// What reports call the memory it points into.
    pub(crate) label: &'static str,
    pub(crate) bytes: usize,
    pub(crate) is_address: bool,
}

/// A library of kernels.
pub(crate) trait CompiledLibrary: fmt::Debug + Send + Sync {
    fn entries(&self) -> &[CompiledEntry];

    /// Runs one of them.
    fn run(&self, entry: usize, launch: &mut CompiledLaunch<'_>);
}

/// What a running kernel is given, and what it tells.
pub(crate) struct CompiledLaunch<'a> {
    pub(crate) blocks: u32,
    /// How many blocks run at once.
    pub(crate) cores: u32,
    pub(crate) seed: u64,
    pub(crate) arguments: &'a [Vec<u8>],
    /// The memory an address lies in or behind, or why there is none.
    pub(crate) find: &'a mut dyn FnMut(usize) -> Result<FoundMemory, String>,
    pub(crate) run: KernelRun,
}

/// Memory of a kernel's card.
pub(crate) struct FoundMemory {
    pub(crate) span: RawSpan,
    pub(crate) name: &'static str,
}

/// What one launch of a compiled kernel did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRun {
    /// The entry function.
    pub kernel: &'static str,
    /// The card it ran on.
    pub card: u32,
    /// Blocks it was launched with.
    pub blocks: u32,
    /// Cycles of the slowest core.
    pub cycles: u64,
    /// Cycles that a core's pipes were busy at most: scalar, vector, copies in (MTE2), copies out (MTE3).
    pub busy_cycles: [u64; 4],
    /// Bytes of global memory read and written by all cores.
    pub global_bytes: u64,
    /// The most unified buffer a core took, in bytes.
    pub local_bytes: u64,
    /// Global memory it touched, each run of bytes once a way.
    pub touched: Vec<KernelTouch>,
    /// The rule it broke, after which nothing more ran.
    pub finding: Option<KernelFinding>,
}

/// Bytes a kernel touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelTouch {
    /// The first address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Written; otherwise read before this launch wrote them, if it did.
    pub is_write: bool,
}

/// A rule that a kernel broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFinding {
    /// The entry function.
    pub kernel: String,
    /// The core, where one is to blame.
    pub core: Option<u32>,
    /// The source file as the compiler was given it, and the line; empty and 0 where no line is to blame.
    pub file: String,
    /// Line of that place in `file`.
    pub line: u32,
    /// The call of Ascend C, and its operand.
    pub call: String,
    /// The operand of `call` that names the memory.
    pub operand: String,
    /// The kind of rule: `alignment`, `range`, `unwritten`, `queue`, `order`, `flag`, `mask`, `cores`, `end`.
    pub rule: String,
    /// What the rule expects.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// A card would not go on, rather than compute something else.
    pub is_hang: bool,
    /// All of it in one sentence.
    pub text: String,
}

impl KernelFinding {
    /// Why the stream of the launch fails.
    pub(crate) fn failure(&self) -> Failure {
        let code = if self.is_hang { code::VECTOR_CORE_TIMEOUT } else { code::VECTOR_CORE_EXCEPTION };
        Failure::new(code, self.text.clone()).quiet()
    }
}

/// A kernel of a loaded library.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) library: Arc<dyn CompiledLibrary>,
    pub(crate) entry: usize,
}

impl Compiled {
    pub(crate) fn entry(&self) -> &CompiledEntry {
        &self.library.entries()[self.entry]
    }

    /// Its parameters' values on `card`, where data behind addresses gets room.
    ///
    /// # Errors
    /// These are no arguments of this kernel; the host has no memory for the data.
    pub(crate) fn values(&self, card: u32, arguments: Vec<Argument>) -> Result<Values, Failure> {
        let mut values = Values { bytes: Vec::new(), data: Vec::new() };
        for argument in arguments {
            match argument {
                Argument::Value(value) => values.bytes.push(value),
                Argument::Data(data) => {
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
        let wrong = |what: String| Failure::new(code::PARAM_INVALID, format!("kernel {:?} {what}", entry.name));
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
                let what =
                    format!("takes {} bytes for `{}`, the list has {} bytes", param.bytes, param.name, value.len());
                return Err(wrong(what));
            }
        }
        Ok(())
    }

    /// Values of its parameters, from a buffer where each takes a multiple of 8 bytes.
    ///
    /// # Errors
    /// The buffer is too short for them.
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

    /// Runs it on `card` and says what it did, and what it touched.
    pub(crate) fn run(&self, store: &Memory, place: &LaunchPlace, values: &Values) -> (KernelRun, Vec<Access>) {
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
            let own = values.data.iter().find(|data| (data.base()..data.base() + data.size()).contains(&address));
            let allocation = own.map_or_else(|| on_card(store, place.card, address), |own| Ok(Arc::clone(own)))?;
            let (first, end) = (allocation.base(), allocation.base() + allocation.size());
            let of = pointers.iter().find(|(pointer, _, _)| (first..end).contains(pointer));
            let (name, label) = of.map_or((entry.other, entry.other), |(_, name, label)| (*name, *label));
            if own.is_none() && !found.iter().any(|(known, _)| Arc::ptr_eq(known, &allocation)) {
                found.push((Arc::clone(&allocation), label));
            }
            Ok(FoundMemory { span: allocation.span(0, allocation.size()), name })
        };
        let run = KernelRun { kernel: entry.name, card: place.card, blocks: place.blocks, ..KernelRun::default() };
        let LaunchPlace { blocks, cores, seed, .. } = *place;
        let mut launch = CompiledLaunch { blocks, cores, seed, arguments: &values.bytes, find: &mut find, run };
        self.library.run(self.entry, &mut launch);
        let run = launch.run;
        let accesses = accesses(&run, &found);
        (run, accesses)
    }
}

/// The arguments of a launch.
#[derive(Debug)]
pub(crate) struct Values {
    /// Of each parameter.
    bytes: Vec<Vec<u8>>,
    /// What some of them are the addresses of.
    data: Vec<Arc<Allocation>>,
}

/// Where and how a launch runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchPlace {
    pub(crate) card: u32,
    pub(crate) blocks: u32,
    pub(crate) cores: u32,
    pub(crate) seed: u64,
}

/// The allocation of a card that an address lies in.
fn on_card(store: &Memory, card: u32, address: usize) -> Result<Arc<Allocation>, String> {
    let span = store.device_span(address, 1).map_err(|failure| failure.message)?;
    match (span.card(), span.allocation()) {
        (Some(owner), Some(allocation)) if owner == card => Ok(Arc::clone(allocation)),
        (owner, _) => {
            let owner = owner.map_or("the host".to_owned(), |owner| format!("card {owner}"));
            Err(format!("memory of {owner}; the kernel runs on card {card}"))
        }
    }
}

/// What a kernel touched, in the words of strict mode.
fn accesses(run: &KernelRun, found: &[(Arc<Allocation>, &'static str)]) -> Vec<Access> {
    let mut all = Vec::new();
    for (allocation, label) in found {
        for (is_write, mode) in [(false, AccessMode::Read), (true, AccessMode::Write)] {
            let (first, size) = (allocation.base(), allocation.size());
            let touched = run.touched.iter().filter(|touch| {
                touch.is_write == is_write && (first..first + size).contains(&(touch.address as usize))
            });
            let lines = touched.map(|touch| {
                let from = touch.address as usize - first;
                from..from + touch.bytes as usize
            });
            let footprint = Footprint::lines(lines);
            if !footprint.is_empty() {
                all.push(Access::new(label, &allocation.span(0, size), mode).within(Some(footprint)));
            }
        }
    }
    all
}
