//! Raw bindings of the C ABI of CANN: types, constants, a table of function pointers, and its
//! loader.
//!
//! - Input: `include/*.h`, this project's own declarations of AscendCL, HCCL and aclnn, one header
//!   per library. `cargo xtask bindings` generates the committed `bindings.rs` (types, constants),
//!   `names.rs` (names of status codes) and `symbols.rs` (functions).
//! - Output: the types, [`for_each_symbol!`] (the list of all C functions), [`Table`] (function
//!   pointers), and [`load`], which fills a table from an installed toolkit.
//! - Invariants: names and layouts match C. Each function is declared once, in its header.
//!   Functions of `include/dropin/`, which only the emulator's drop-in libraries implement, are in
//!   the list but not in the table. Nothing is linked.
//! - Not here: safe interfaces and policy. An emulator fills the same [`Table`] with its own
//!   functions.

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
