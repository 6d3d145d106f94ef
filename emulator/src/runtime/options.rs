//! Parameters that a program sets for its process or for a context. Not here: their effects (see
//! `abi::acl_options`).

/// Parameter values by their number in `aclSysParamOpt`.
pub(crate) type Parameters = [Option<i64>; 3];
