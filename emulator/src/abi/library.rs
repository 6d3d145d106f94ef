//! Shared kernel libraries for this host (`kernels/host`).
//!
//! Invariants: only a file that exports [`ENTRY`] is loaded, and never unloaded, because its fibers
//! and names stay in use. The structures match `kernels/host/library.h`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use object::{Object, ObjectKind};

use crate::base::failure::{Failure, code};
use crate::runtime::compiled::{
    CompiledEntry, CompiledLaunch, CompiledLibrary, CompiledParam, KernelFinding, KernelTouch,
};

/// The number changes when the structures change.
const ENTRY: &str = "ascend_host_kernels_1";

/// Prefix in every version.
const ENTRY_OF_ANY_VERSION: &[u8] = b"ascend_host_kernels_";

#[repr(C)]
struct EntryParameter {
    name: *const c_char,
    bytes: u32,
    is_address: u32,
}

#[repr(C)]
struct LibraryEntry {
    name: *const c_char,
    parameters: *const EntryParameter,
    count: u64,
}

#[repr(C)]
struct LibraryFinding {
    kernel: *const c_char,
    file: *const c_char,
    call: *const c_char,
    operand: *const c_char,
    rule: *const c_char,
    expected: *const c_char,
    found: *const c_char,
    text: *const c_char,
    core: i32,
    line: i32,
    is_hang: i32,
}

#[repr(C)]
struct LibraryCounts {
    cycles: u64,
    busy: [u64; 4],
    global_bytes: u64,
    local_bytes: u64,
}

#[repr(C)]
struct LibraryMemory {
    address: u64,
    bytes: u64,
    bytes_at: *mut u8,
    name: *const c_char,
    why: *const c_char,
}

#[repr(C)]
struct LibraryLaunch {
    blocks: u32,
    cores: u32,
    seed: u64,
    arguments: *const *const u8,
    user: *mut c_void,
    find: unsafe extern "C" fn(*mut c_void, u64, *mut LibraryMemory) -> i32,
    touched: unsafe extern "C" fn(*mut c_void, u64, u64, i32),
    counted: unsafe extern "C" fn(*mut c_void, *const LibraryCounts),
    found: unsafe extern "C" fn(*mut c_void, *const LibraryFinding),
}

#[repr(C)]
struct LibraryKernels {
    entries: *const LibraryEntry,
    count: u64,
    run: unsafe extern "C" fn(entry: u64, launch: *const LibraryLaunch),
}

#[derive(Debug)]
struct LoadedLibrary {
    entries: Vec<CompiledEntry>,
    run: unsafe extern "C" fn(entry: u64, launch: *const LibraryLaunch),
}

type Loaded = (Vec<u8>, Arc<dyn CompiledLibrary>);

/// Cards that load the same bytes share one library.
static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// Returns `None` if the file is not a library for this host.
///
/// Fails if such a library cannot be loaded.
pub(super) fn open(name: &str, bytes: Vec<u8>) -> Result<Option<Arc<dyn CompiledLibrary>>, Failure> {
    let wrong = |what: &dyn fmt::Display| Failure::new(code::INVALID_FILE, format!("{name}: {what}"));
    if !exports_kernels(&bytes).map_err(|what| wrong(&what))? {
        return Ok(None);
    }
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = loaded.iter().find(|(other, _)| *other == bytes) {
        return Ok(Some(Arc::clone(known)));
    }
    // The dynamic linker identifies files by name, so a rebuilt library needs a new one.
    let file =
        rustix::fs::memfd_create("ascend-kernels", rustix::fs::MemfdFlags::CLOEXEC).map_err(|e| wrong(&e))?;
    let file = Box::leak(Box::new(File::from(file)));
    file.write_all(&bytes).map_err(|error| wrong(&error))?;
    let library = load(&format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|error| wrong(&error))?;
    loaded.push((bytes, Arc::clone(&library)));
    Ok(Some(library))
}

/// Fails if the library is of another version.
fn exports_kernels(bytes: &[u8]) -> Result<bool, String> {
    let Ok(file) = object::File::parse(bytes) else { return Ok(false) };
    if file.kind() != ObjectKind::Dynamic {
        return Ok(false);
    }
    let exports = file.exports().unwrap_or_default();
    if exports.iter().any(|export| export.name() == ENTRY.as_bytes()) {
        return Ok(true);
    }
    match exports.iter().find(|export| export.name().starts_with(ENTRY_OF_ANY_VERSION)) {
        None => Ok(false),
        Some(other) => Err(format!(
            "it exports {}, this emulator wants {ENTRY}: build it again with this emulator's headers",
            String::from_utf8_lossy(other.name())
        )),
    }
}

fn load(path: &str) -> Result<Arc<dyn CompiledLibrary>, libloading::Error> {
    // SAFETY: initializers of kernel libraries only list their kernels.
    let library = unsafe { libloading::Library::new(path) }?;
    // SAFETY: the function of this name and version has this signature.
    let kernels = unsafe { library.get::<unsafe extern "C" fn() -> *const LibraryKernels>(ENTRY) }?;
    // SAFETY: the function may be called at any time.
    let kernels = unsafe { kernels() };
    // SAFETY: the structure lives as long as the library, which is never unloaded.
    let kernels = unsafe { &*kernels };
    // SAFETY: address and number of the entries.
    let listed = unsafe { std::slice::from_raw_parts(kernels.entries, kernels.count as usize) };
    let entries = listed.iter().map(entry).collect();
    let run = kernels.run;
    // Worker fibers and entry names refer to the library.
    let _stays: &'static libloading::Library = Box::leak(Box::new(library));
    Ok(Arc::new(LoadedLibrary { entries, run }))
}

fn entry(listed: &LibraryEntry) -> CompiledEntry {
    let name = text(listed.name);
    // SAFETY: address and number of the parameters; the number may be 0.
    let parameters = unsafe { array(listed.parameters, listed.count as usize) };
    let param = |parameter: &EntryParameter| {
        let own = leaked(text(parameter.name));
        CompiledParam {
            name: own,
            label: leaked(format!("`{own}` of {name}")),
            bytes: parameter.bytes as usize,
            is_address: parameter.is_address != 0,
        }
    };
    let params = parameters.iter().map(param).collect();
    CompiledEntry { params, other: leaked(format!("memory of {name}")), name: leaked(name) }
}

/// # Safety
///
/// `first` points to `count` values that live as long as the library.
unsafe fn array<T>(first: *const T, count: usize) -> &'static [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller upholds this contract.
    unsafe { std::slice::from_raw_parts(first, count) }
}

fn leaked(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

/// NULL becomes an empty string.
fn text(place: *const c_char) -> String {
    if place.is_null() {
        return String::new();
    }
    // SAFETY: `library.h` promises NUL-terminated strings during the call.
    unsafe { CStr::from_ptr(place) }.to_string_lossy().into_owned()
}

struct RunningLaunch<'a, 'b> {
    launch: &'a mut CompiledLaunch<'b>,
    /// Kept alive until the launch ends.
    names: Vec<CString>,
}

impl CompiledLibrary for LoadedLibrary {
    fn entries(&self) -> &[CompiledEntry] {
        &self.entries
    }

    fn run(&self, entry: usize, launch: &mut CompiledLaunch<'_>) {
        let arguments: Vec<*const u8> = launch.arguments.iter().map(|value| value.as_ptr()).collect();
        let (blocks, cores, seed) = (launch.blocks, launch.cores, launch.seed);
        let mut running = RunningLaunch { launch, names: Vec::new() };
        let told = LibraryLaunch {
            blocks,
            cores,
            seed,
            arguments: arguments.as_ptr(),
            user: (&raw mut running).cast(),
            find,
            touched,
            counted,
            found,
        };
        // SAFETY: the entry belongs to this library. `CompiledCall::check` has verified the
        // argument sizes.
        unsafe { (self.run)(entry as u64, &raw const told) };
    }
}

/// # Safety
///
/// `user` points to the `RunningLaunch` of a running launch, without other users.
unsafe fn running<'a>(user: *mut c_void) -> &'a mut RunningLaunch<'a, 'a> {
    // SAFETY: the caller upholds this contract.
    unsafe { &mut *user.cast::<RunningLaunch<'_, '_>>() }
}

unsafe extern "C" fn find(user: *mut c_void, address: u64, memory: *mut LibraryMemory) -> i32 {
    // SAFETY: the library passes back the pointer of the launch.
    let running = unsafe { running(user) };
    let found = (running.launch.find)(address as usize);
    let is_found = found.is_ok();
    let (span, said) = match found {
        Ok(found) => (Some(found.span), found.name.to_owned()),
        Err(why) => (None, why),
    };
    let said = CString::new(said).unwrap_or_default();
    let place = said.as_ptr();
    running.names.push(said);
    let given = match span {
        Some(span) => LibraryMemory {
            address: span.address() as u64,
            bytes: span.len_bytes() as u64,
            bytes_at: span.bytes(),
            name: place,
            why: std::ptr::null(),
        },
        None => LibraryMemory {
            address: 0,
            bytes: 0,
            bytes_at: std::ptr::null_mut(),
            name: std::ptr::null(),
            why: place,
        },
    };
    // SAFETY: the library passes a pointer to its own structure.
    unsafe { memory.write(given) };
    i32::from(!is_found)
}

unsafe extern "C" fn touched(user: *mut c_void, address: u64, bytes: u64, is_write: i32) {
    // SAFETY: the library passes back the pointer of the launch.
    let running = unsafe { running(user) };
    running.launch.run.touched.push(KernelTouch { address, bytes, is_write: is_write != 0 });
}

unsafe extern "C" fn counted(user: *mut c_void, counts: *const LibraryCounts) {
    // SAFETY: the library passes back the pointer of the launch.
    let running = unsafe { running(user) };
    // SAFETY: the library passes a pointer to its own structure.
    let counts = unsafe { &*counts };
    let run = &mut running.launch.run;
    (run.cycles, run.busy_cycles) = (counts.cycles, counts.busy);
    (run.global_bytes, run.local_bytes) = (counts.global_bytes, counts.local_bytes);
}

unsafe extern "C" fn found(user: *mut c_void, finding: *const LibraryFinding) {
    // SAFETY: the library passes back the pointer of the launch.
    let running = unsafe { running(user) };
    // SAFETY: the library passes a pointer to its own structure.
    let told = unsafe { &*finding };
    running.launch.run.finding = Some(KernelFinding {
        kernel: text(told.kernel),
        core: u32::try_from(told.core).ok(),
        file: text(told.file),
        line: told.line.unsigned_abs(),
        call: text(told.call),
        operand: text(told.operand),
        rule: text(told.rule),
        expected: text(told.expected),
        found: text(told.found),
        is_hang: told.is_hang != 0,
        text: text(told.text),
    });
}
