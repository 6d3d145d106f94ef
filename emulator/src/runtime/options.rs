//! Parameters that a program sets for its process or for a context. Not here: their effects (see
//! `abi::acl_options`).

/// Indexed by the numbers of `aclSysParamOpt`.
pub(crate) type ContextParameters = [Option<i64>; 3];
