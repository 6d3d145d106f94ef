//! Parameters that a program sets for its process or for a context. Does not: act on them (see `abi::acl_options`).

/// By their numbers in `aclSysParamOpt`: the value, where one was set.
pub(crate) type Parameters = [Option<i64>; 3];
