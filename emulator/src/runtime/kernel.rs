//! Kernels of the program, from registered host functions or from a library compiled for this host.
//!
//! Invariants: looking up a name without a function fails. A launch uses the values that its
//! argument list has at that time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::failure::{Failure, code};
use crate::base::handle::HandleKind;
use crate::memory::location::Location;
use crate::memory::raw::{Allocation, RawSpan};
use crate::memory::store::DeviceMemory;
use crate::runtime::compiled::{CompiledCall, CompiledLibrary, KernelRun};

/// From the CANN runtime guide, kernels.
const MAX_PARAMS: usize = 128;

pub(crate) type HostKernel = Arc<dyn Fn(&KernelCall<'_>) -> Result<(), String> + Send + Sync>;

/// Receives the result of every launch of a compiled kernel.
pub(crate) type KernelWatcher = Arc<dyn Fn(&KernelRun) + Send + Sync>;

/// One launch, as a kernel's host function sees it.
#[derive(Debug)]
pub struct KernelCall<'a> {
    store: &'a DeviceMemory,
    card: u32,
    blocks: u32,
    params: &'a [Vec<u8>],
}

impl KernelCall<'_> {
    /// Returns the number of blocks of the launch.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of parameters.
    #[must_use]
    pub fn params(&self) -> usize {
        self.params.len()
    }

    /// Returns the bytes of a parameter. For a placeholder, returns the data behind it.
    ///
    /// # Errors
    ///
    /// There is no such parameter.
    pub fn bytes(&self, index: usize) -> Result<&[u8], String> {
        let given = self.params.len();
        self.params
            .get(index)
            .map(Vec::as_slice)
            .ok_or_else(|| format!("parameter {index}: {given} were given"))
    }

    /// Returns `len_bytes` of device memory behind a pointer parameter.
    ///
    /// # Errors
    ///
    /// The parameter is missing, is not a pointer, or points to less memory of this card.
    pub fn memory(&self, index: usize, len_bytes: usize) -> Result<KernelMemory, String> {
        let bytes = self.bytes(index)?;
        let address = <[u8; 8]>::try_from(bytes)
            .map_err(|_| format!("parameter {index}: {} bytes are no pointer, which has 8", bytes.len()))?;
        let address = u64::from_ne_bytes(address) as usize;
        let in_parameter = |failure: Failure| format!("parameter {index}: {}", failure.message);
        let span = self.store.device_span(address, len_bytes).map_err(in_parameter)?;
        match span.card() {
            Some(card) if card == self.card => Ok(KernelMemory(span)),
            other => {
                let found = other.map_or("the host".to_owned(), |card| format!("card {card}"));
                Err(format!(
                    "parameter {index}: points to memory of {found}, the kernel runs on card {}",
                    self.card
                ))
            }
        }
    }
}

/// Device memory that a kernel uses.
#[derive(Debug)]
pub struct KernelMemory(RawSpan);

impl KernelMemory {
    /// Copies bytes from the memory.
    ///
    /// # Errors
    /// The range exceeds the memory.
    pub fn read(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), String> {
        self.check(offset_bytes, into.len())?;
        self.0.read(offset_bytes, into);
        Ok(())
    }

    /// Copies bytes to the memory.
    ///
    /// # Errors
    /// The range exceeds the memory.
    pub fn write(&self, offset_bytes: usize, from: &[u8]) -> Result<(), String> {
        self.check(offset_bytes, from.len())?;
        self.0.write(offset_bytes, from);
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), String> {
        let size = self.0.len_bytes();
        if offset <= size && len <= size - offset {
            return Ok(());
        }
        Err(format!("bytes {offset} to {} of a buffer of {size} bytes", offset.saturating_add(len)))
    }
}

#[derive(Default)]
pub(crate) struct KernelRegistry {
    registered: BTreeMap<String, HostKernel>,
    pub(crate) watcher: Option<KernelWatcher>,
    binaries: BTreeMap<u64, KernelFile>,
    functions: BTreeMap<u64, KernelFunction>,
    lists: BTreeMap<u64, ArgumentList>,
}

impl std::fmt::Debug for KernelRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("registered", &self.registered.keys()).finish_non_exhaustive()
    }
}

struct KernelFile {
    card: u32,
    library: Option<Arc<dyn CompiledLibrary>>,
}

#[derive(Clone)]
pub(crate) struct KernelFunction {
    binary: u64,
    card: u32,
    name: Arc<str>,
    pub(crate) body: KernelBody,
}

#[derive(Clone)]
pub(crate) enum KernelBody {
    Registered(HostKernel),
    Compiled(CompiledCall),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LaunchArgument {
    Value(Vec<u8>),
    /// Data behind an address from the runtime.
    Data(Vec<u8>),
}

struct ArgumentList {
    function: u64,
    params: Vec<Param>,
    is_final: bool,
}

enum Param {
    Value(Vec<u8>),
    /// The program fills a placeholder's data after requesting the memory.
    Reserved(Option<Arc<Allocation>>),
}

impl LaunchArgument {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Value(bytes) | Self::Data(bytes) => bytes,
        }
    }
}

impl KernelRegistry {
    pub(crate) fn register(&mut self, name: String, kernel: HostKernel) {
        self.registered.insert(name, kernel);
    }

    pub(crate) fn load(&mut self, id: u64, card: u32, library: Option<Arc<dyn CompiledLibrary>>) {
        self.binaries.insert(id, KernelFile { card, library });
    }

    /// Removes also the binary's functions and their argument lists.
    pub(crate) fn unload(&mut self, id: u64) -> Result<(), Failure> {
        self.binaries.remove(&id).ok_or_else(|| HandleKind::Binary.gone(id))?;
        self.functions.retain(|_, function| function.binary != id);
        let functions = &self.functions;
        self.lists.retain(|_, list| functions.contains_key(&list.function));
        Ok(())
    }

    /// Returns the function's existing number, or assigns `id`.
    pub(crate) fn look_up(&mut self, binary: u64, name: &str, id: u64) -> Result<u64, Failure> {
        let loaded = self.binaries.get(&binary).ok_or_else(|| HandleKind::Binary.gone(binary))?;
        let found =
            self.functions.iter().find(|(_, function)| function.binary == binary && *function.name == *name);
        if let Some((id, _)) = found {
            return Ok(*id);
        }
        let body = match (self.registered.get(name), &loaded.library) {
            (Some(kernel), _) => KernelBody::Registered(Arc::clone(kernel)),
            (None, Some(library)) => KernelBody::Compiled(find_entry(library, name)?),
            (None, None) => {
                let known: Vec<&String> = self.registered.keys().collect();
                let what = format!(
                    "kernel {name:?} has no host function, and an emulator cannot run one compiled for a card: compile it \
                     for this host with `ascend-tp kernel build`, or register it by Emulator::register_kernel, in C by \
                     ascend_emulator_register_kernel (registered: {known:?})"
                );
                return Err(Failure::new(code::KERNEL_NOT_FOUND, what));
            }
        };
        let function = KernelFunction { binary, card: loaded.card, name: name.into(), body };
        self.functions.insert(id, function);
        Ok(id)
    }

    pub(crate) fn function(&self, id: u64) -> Result<&KernelFunction, Failure> {
        self.functions.get(&id).ok_or_else(|| HandleKind::Function.gone(id))
    }

    pub(crate) fn begin_list(&mut self, function: u64, id: u64) -> Result<(), Failure> {
        self.function(function)?;
        self.lists.insert(id, ArgumentList { function, params: Vec::new(), is_final: false });
        Ok(())
    }

    fn list(&mut self, id: u64) -> Result<&mut ArgumentList, Failure> {
        self.lists.get_mut(&id).ok_or_else(|| HandleKind::Arguments.gone(id))
    }

    pub(crate) fn append(&mut self, list: u64, value: Vec<u8>) -> Result<usize, Failure> {
        self.append_param(list, Param::Value(value))
    }

    pub(crate) fn append_place_holder(&mut self, list: u64) -> Result<usize, Failure> {
        self.append_param(list, Param::Reserved(None))
    }

    fn append_param(&mut self, id: u64, param: Param) -> Result<usize, Failure> {
        let list = self.list(id)?;
        if list.is_final {
            return Err(out_of_turn(id, "is finalized and takes no further parameters"));
        }
        if list.params.iter().any(|param| matches!(param, Param::Reserved(Some(_)))) {
            return Err(out_of_turn(id, "already has a placeholder, which follows all parameters"));
        }
        if list.params.len() == MAX_PARAMS {
            return Err(out_of_turn(id, &format!("has {MAX_PARAMS} parameters, the most there can be")));
        }
        list.params.push(param);
        Ok(list.params.len())
    }

    pub(crate) fn place_holder_room(
        &mut self,
        id: u64,
        place: usize,
        size: usize,
    ) -> Result<RawSpan, Failure> {
        let list = self.list(id)?;
        let param = place.checked_sub(1).and_then(|at| list.params.get_mut(at));
        let Some(Param::Reserved(room)) = param else {
            return Err(out_of_turn(id, &format!("has no place holder at place {place}")));
        };
        if size == 0 {
            return Err(Failure::new(
                code::INVALID_PARAM,
                "data_size is 0; a place holder needs room for its data",
            ));
        }
        let allocation = Allocation::new(size, Location::Host, None).map_err(|error| {
            Failure::new(
                code::MEMORY_ALLOCATION,
                format!("no host memory for {size} bytes of a place holder: {error}"),
            )
        })?;
        let span = room.insert(Arc::new(allocation)).span(0, size);
        Ok(span)
    }

    pub(crate) fn finalize(&mut self, id: u64) -> Result<(), Failure> {
        let list = self.list(id)?;
        if let Some(at) = list.params.iter().position(|param| matches!(param, Param::Reserved(None))) {
            let what = format!("has no data for its place holder at place {}", at + 1);
            return Err(out_of_turn(id, &what));
        }
        list.is_final = true;
        Ok(())
    }

    /// Fails if the list is incomplete or belongs to another function.
    pub(crate) fn values(&mut self, id: u64, function: u64) -> Result<Vec<LaunchArgument>, Failure> {
        let list = self.list(id)?;
        if list.function != function {
            return Err(out_of_turn(id, "was made for another kernel"));
        }
        if !list.is_final {
            return Err(out_of_turn(id, "is not finalized; call aclrtKernelArgsFinalize first"));
        }
        let value = |param: &Param| match param {
            Param::Value(value) => LaunchArgument::Value(value.clone()),
            Param::Reserved(None) => LaunchArgument::Data(Vec::new()),
            Param::Reserved(Some(room)) => {
                let mut bytes = vec![0; room.size()];
                room.span(0, room.size()).read(0, &mut bytes);
                LaunchArgument::Data(bytes)
            }
        };
        Ok(list.params.iter().map(value).collect())
    }
}

impl KernelFunction {
    pub(crate) fn card(&self) -> u32 {
        self.card
    }

    pub(crate) fn run(
        &self,
        kernel: &HostKernel,
        store: &DeviceMemory,
        blocks: u32,
        params: &[Vec<u8>],
    ) -> Result<(), Failure> {
        let call = KernelCall { store, card: self.card, blocks, params };
        kernel(&call)
            .map_err(|text| Failure::new(code::AICORE_EXCEPTION, format!("kernel {:?}: {text}", self.name)))
    }
}

fn find_entry(library: &Arc<dyn CompiledLibrary>, name: &str) -> Result<CompiledCall, Failure> {
    let entries = library.entries();
    let entry = entries.iter().position(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        Failure::new(code::KERNEL_NOT_FOUND, format!("the library has no kernel {name:?}, it has {known:?}"))
    })?;
    Ok(CompiledCall { library: Arc::clone(library), entry })
}

fn out_of_turn(list: u64, what: &str) -> Failure {
    Failure::new(code::PARAM_INVALID, format!("argument list {list} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_put_together_in_order() {
        let mut kernels = KernelRegistry::default();
        kernels.register("scale".into(), Arc::new(|_: &KernelCall<'_>| Ok(())));
        kernels.load(1, 0, None);
        let unknown = kernels.look_up(1, "other", 2).expect_err("not registered");
        assert!(
            unknown.message.contains("\"other\"") && unknown.message.contains("scale"),
            "{}",
            unknown.message
        );
        let function = kernels.look_up(1, "scale", 2).expect("registered");
        assert_eq!(kernels.look_up(1, "scale", 3).expect("known"), function);
        kernels.begin_list(function, 4).expect("a function");
        assert_eq!(kernels.append(4, vec![1, 2]).expect("open"), 1);
        assert_eq!(kernels.append_place_holder(4).expect("open"), 2);
        assert!(kernels.finalize(4).expect_err("no data").message.contains("place 2"));
        assert!(kernels.values(4, function).expect_err("open").message.contains("not finalized"));
        kernels.place_holder_room(4, 2, 3).expect("a place holder").write(0, &[7_u8, 8, 9]);
        assert!(kernels.place_holder_room(4, 1, 3).expect_err("a value").message.contains("no place holder"));
        assert!(
            kernels.append(4, vec![3]).expect_err("after room").message.contains("follows all parameters")
        );
        kernels.finalize(4).expect("complete");
        let values = vec![LaunchArgument::Value(vec![1, 2]), LaunchArgument::Data(vec![7, 8, 9])];
        assert_eq!(kernels.values(4, function).expect("complete"), values);
        kernels.unload(1).expect("loaded");
        assert!(kernels.function(function).is_err() && kernels.values(4, function).is_err());
    }
}
