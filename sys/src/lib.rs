//! The C ABI of CANN: types, constants, one table of function pointers, and the loader that fills it.
//!
//! Input: `include/*.h`, this project's own declarations of AscendCL, HCCL and aclnn, read by bindgen into the committed
//! `bindings.rs` (types, constants) and `prototypes.rs` (functions). Output: those types, [`for_each_symbol!`] (the list of
//! all C functions), [`Table`] (one function pointer for each), and [`load`], which fills a table from an installed toolkit.
//!
//! Invariants: names and layouts are those of C; each function is declared once, in [`for_each_symbol!`], and a constant
//! of [`Table`]'s module does not compile if that line and the header disagree; nothing is linked.
//! What it does not do: no safe interface and no policy; an emulator fills the same [`Table`] with its own functions.

mod codes;
mod load;
mod symbols;
mod table;

#[cfg(not(feature = "bindgen"))]
#[rustfmt::skip]
#[expect(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    clippy::identity_op,
    clippy::doc_markdown,
    clippy::use_self,
    reason = "made by bindgen from C declarations"
)]
mod bindings;
#[cfg(not(feature = "bindgen"))]
#[rustfmt::skip]
#[expect(unsafe_code, unreachable_pub, reason = "made by bindgen from C declarations")]
#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "made by bindgen from C declarations"))]
mod prototypes;

#[cfg(feature = "bindgen")]
#[expect(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    clippy::identity_op,
    clippy::doc_markdown,
    clippy::use_self,
    reason = "made by bindgen from C declarations"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[cfg(feature = "bindgen")]
#[expect(unsafe_code, unreachable_pub, reason = "made by bindgen from C declarations")]
#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "made by bindgen from C declarations"))]
mod prototypes {
    include!(concat!(env!("OUT_DIR"), "/prototypes.rs"));
}

pub use core::ffi::{c_char, c_void};

pub use bindings::*;
pub use codes::{acl_error_name, aclnn_status_name, hccl_result_name};
pub use load::{LoadError, MissingSymbol, load};
pub use table::{Library, Owner, Table};
