//! Detection of CANN's own libraries in the dynamic linker's list. Libraries loaded after the first
//! call are not detected.
#![expect(unsafe_code, reason = "asks the dynamic linker")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

/// A library, and a function of every release.
const LIBRARIES: [(&str, &CStr); 6] = [
    ("libascendcl.so", c"aclrtSetDevice"),
    ("libacl_rt.so", c"aclrtSetDevice"),
    ("libhccl.so", c"HcclAllReduce"),
    ("libhcomm.so", c"HcclGetRootInfo"),
    ("libnnopbase.so", c"aclCreateTensor"),
    ("libopapi.so", c"aclnnAdd"),
];

/// The library does not resolve to this one.
pub(crate) fn foreign_library() -> Option<String> {
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: `note` receives `paths`, which is alive and unused during the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut paths).cast()) };
    let own = object_of(foreign_library as *const c_void)?;
    let foreign = |path: &CString| {
        let name = Path::new(path.to_str().ok()?).file_name()?.to_str()?;
        let (_, function) = LIBRARIES.iter().find(|(library, _)| name == *library)?;
        let found_in = object_of(function_of(path, function)?)?;
        (found_in != own).then(|| path.to_string_lossy().into_owned())
    };
    paths.iter().find_map(foreign)
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
    // SAFETY: the pointer given to `dl_iterate_phdr`, a `Vec<CString>`.
    let paths = unsafe { &mut *paths.cast::<Vec<CString>>() };
    // SAFETY: the dynamic linker passes a valid description.
    let name = unsafe { (*info).dlpi_name };
    if !name.is_null() {
        // SAFETY: a name that is not NULL is a C string, valid during the call.
        paths.push(unsafe { CStr::from_ptr(name) }.to_owned());
    }
    0
}

fn function_of(path: &CStr, function: &CStr) -> Option<*const c_void> {
    // SAFETY: a C string; RTLD_NOLOAD loads nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a live handle and a C string.
    let address = unsafe { libc::dlsym(handle, function.as_ptr()) };
    // SAFETY: releases the reference of dlopen; the owner keeps the library loaded.
    unsafe { libc::dlclose(handle) };
    (!address.is_null()).then_some(address.cast_const())
}

fn object_of(address: *const c_void) -> Option<usize> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is a live variable; any address may be passed.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    (found != 0).then(|| info.dli_fbase.addr())
}
