//! The C ABI of CANN: types, constants, one table of function pointers, and the loader that fills it.
//!
//! Input: `include/*.h`, this project's own declarations of AscendCL, HCCL and aclnn, one header a library, of which `cargo
//! xtask bindings` makes the committed `bindings.rs` (types, constants), `names.rs` (status codes by name) and `symbols.rs`
//! (functions). Output: those types, [`for_each_symbol!`] (the list of all C functions), [`Table`] (one function pointer for
//! each this project calls), and [`load`], which fills a table from an installed toolkit.
//!
//! Invariants: names and layouts are those of C; each function is declared once, in its header; the functions of
//! `include/dropin/`, which only the emulator's drop-in libraries answer, are on the list and not in the table; nothing is linked.
//! What it does not do: no safe interface and no policy; an emulator fills the same [`Table`] with its own functions.

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
mod codes;
mod load;
#[rustfmt::skip]
mod names;
mod symbols;
mod table;

pub use core::ffi::{c_char, c_void};

pub use bindings::*;
pub use codes::{aclnn_status_name, hccl_result_name};
pub use load::{LoadError, USUAL_FOLDER, library_folder, load, toolkit_folders};
pub use table::{DROPIN_SYMBOLS, Library, MissingSymbol, Owner, Table};
