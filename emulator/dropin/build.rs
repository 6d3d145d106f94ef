//! Link options of the shared library.
//!
//! Input: nothing. Output: options of the linker. Invariant: the library has a name of its own, so that all that ask for
//! it share one; it is never unloaded, because its threads run in it. Does not: look for a toolkit.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libascend_tp_emulator_dropin.so");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
