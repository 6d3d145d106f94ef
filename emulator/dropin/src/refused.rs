//! The functions CANN's libraries export and the table does not have. Input: nothing. Output: [`lists`], and one exported
//! function a name. Invariant: no name stands here that the table has; a duplicate does not compile. Does not: know
//! arguments; a C function may ignore those it is given.
//!
//! The names are those of CANN 8.1.RC1 and 9.x, from their libraries and public headers. Whoever adds one of them to the
//! table takes it off here (else: "symbol is already defined").

mod acl;
mod hccl;
mod nnopbase;
mod opapi;

use ascend_tp_sys::Library;

/// Every name, by library.
pub(crate) fn lists() -> [(Library, &'static [&'static str]); 4] {
    [acl::NAMES, hccl::NAMES, nnopbase::NAMES, opapi::NAMES]
}
