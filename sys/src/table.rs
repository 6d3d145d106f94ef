//! The table of C functions, generated from [`for_each_symbol!`], with the names of its functions
//! and of the drop-in functions.
//!
//! Invariants: a field has the name of its C function. A function newer than CANN 8.1 is an
//! `Option`. The table does not decide where functions come from.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the list names most types of the C ABI")
)]
use crate::bindings::*;
use crate::{c_char, c_void};

/// Owner of the code behind a [`Table`]: the loaded libraries, or an emulator.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// A library of CANN that programs link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    /// `libascendcl.so`: devices, streams, memory.
    AscendCl,
    /// `libhccl.so`: communicators and collectives.
    Hccl,
    /// `libnnopbase.so`: tensors and executors.
    NnopBase,
    /// `libopapi.so`: operators of aclnn.
    OpApi,
}

impl Library {
    /// Lists every library, in loading order.
    pub const ALL: [Self; 4] = [Self::AscendCl, Self::Hccl, Self::NnopBase, Self::OpApi];

    /// Returns the file name on Linux.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::AscendCl => "libascendcl.so",
            Self::Hccl => "libhccl.so",
            Self::NnopBase => "libnnopbase.so",
            Self::OpApi => "libopapi.so",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file_name())
    }
}

/// A function that is missing in a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSymbol {
    /// Name of the missing function.
    pub name: &'static str,
    /// The library that should contain the function.
    pub library: Library,
    /// The first CANN version with the function.
    pub since: &'static str,
}

impl fmt::Display for MissingSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}, in CANN {} and newer", self.name, self.library, self.since)
    }
}

macro_rules! define_table {
    (
        required { $( [$library:ident] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty; )* }
        optional { $( [$young_library:ident, $since:literal]
                      fn $young:ident($($young_arg:ident: $young_ty:ty),* $(,)?) -> $young_ret:ty; )* }
        operators { $( $run:ident, $plan:ident($($op_arg:ident: $op_ty:ty),* $(,)?); )* }
        dropin {
            functions { $( [$dropin_library:ident, $dropin_since:literal]
                           fn $dropin:ident $dropin_arguments:tt -> $dropin_ret:ty; )* }
            operators { $( [$dropin_op_since:literal] $dropin_run:ident, $dropin_plan:ident $dropin_op_args:tt; )* }
        }
    ) => {
        /// One function pointer for each C function that this project calls, under its C name.
        ///
        /// [`load`](crate::load) fills the table from an installed toolkit; an emulator fills it
        /// with a struct literal. The functions may be called only while `owner` is alive, so a
        /// copied pointer requires a copy of `owner`.
        #[expect(non_snake_case, reason = "fields are named as the C functions")]
        #[derive(Clone)]
        pub struct Table {
            /// Keeps the code behind the pointers loaded.
            pub owner: Owner,
            /// Operators that the library lacks, by the names of their second phases. Their
            /// functions return `ACL_ERROR_API_NOT_SUPPORT`; programs that do not call them work.
            pub missing_operators: Vec<&'static str>,
            $(
                #[doc = concat!("`", stringify!($name), "(", stringify!($($arg),*), ")`")]
                pub $name: unsafe extern "C" fn($($ty),*) -> $ret,
            )*
            $(
                #[doc = concat!("`", stringify!($young), "(", stringify!($($young_arg),*), ")`, in CANN ", $since)]
                pub $young: Option<unsafe extern "C" fn($($young_ty),*) -> $young_ret>,
            )*
            $(
                #[doc = concat!("`", stringify!($plan), "(", stringify!($($op_arg),*), ")`: first phase")]
                pub $plan: unsafe extern "C" fn($($op_ty,)* *mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
                #[doc = concat!("`", stringify!($run), "(workspace, workspace_size, executor, stream)`: second phase")]
                pub $run: unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> aclnnStatus,
            )*
        }

        impl Table {
            /// Every function: its C name, its library, and the first CANN version with it.
            pub const SYMBOLS: &[(&str, Library, &str)] = &[
                $( (stringify!($name), define_table!(@library $library), "8.1"), )*
                $( (stringify!($young), define_table!(@library $young_library), $since), )*
                $( (stringify!($plan), Library::OpApi, "8.1"), (stringify!($run), Library::OpApi, "8.1"), )*
            ];

            /// The operators, by the names of their second phases.
            pub const OPERATORS: &[&str] = &[$( stringify!($run), )*];

            /// Returns the functions newer than CANN 8.1 that the library lacks.
            #[must_use]
            pub fn missing_functions(&self) -> Vec<MissingSymbol> {
                let all = [$( (
                    self.$young.is_some(),
                    MissingSymbol {
                        name: stringify!($young),
                        library: define_table!(@library $young_library),
                        since: $since,
                    },
                ), )*];
                all.into_iter().filter(|(is_there, _)| !is_there).map(|(_, symbol)| symbol).collect()
            }
        }

        /// Functions declared only for the emulator's drop-in libraries, in the form of
        /// [`Table::SYMBOLS`]. They are in no table, because this project never calls them.
        pub const DROPIN_SYMBOLS: &[(&str, Library, &str)] = &[
            $( (stringify!($dropin), define_table!(@library $dropin_library), $dropin_since), )*
            $( (stringify!($dropin_plan), Library::OpApi, $dropin_op_since),
               (stringify!($dropin_run), Library::OpApi, $dropin_op_since), )*
        ];
    };
    (@library acl) => { Library::AscendCl };
    (@library hccl) => { Library::Hccl };
    (@library nnopbase) => { Library::NnopBase };
    (@library opapi) => { Library::OpApi };
}

crate::for_each_symbol!(define_table);

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("symbols", &Self::SYMBOLS.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_symbol_is_declared_once() {
        let mut seen = HashSet::new();
        for (name, _, _) in Table::SYMBOLS.iter().chain(DROPIN_SYMBOLS) {
            assert!(seen.insert(name), "{name} is declared twice");
        }
        assert!(seen.len() > 400, "only {} symbols", seen.len());
    }

    #[test]
    fn the_table_of_releases_has_each_symbol_once_and_no_release_before_its_evidence() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/VERSIONS.md");
        let text = std::fs::read_to_string(path).expect("the document");
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let mut known = std::collections::HashMap::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 7, "{row}");
            for name in cells[0].split(' ').map(|name| name.trim_matches('`')) {
                assert!(
                    known.insert(name.to_owned(), cells[1].to_owned()).is_none(),
                    "{name} is listed twice"
                );
            }
        }
        for (name, _, since) in Table::SYMBOLS {
            // Both phases of an operator share one version.
            let name = name.strip_suffix("GetWorkspaceSize").unwrap_or(name);
            let in_8_1 = known.get(name).unwrap_or_else(|| panic!("{name} is not in docs/VERSIONS.md"));
            assert_eq!(*since == "8.1", in_8_1.starts_with("yes"), "{name}: since {since}, in 8.1 {in_8_1}");
        }
        let names = Table::SYMBOLS.iter().filter(|(name, ..)| !name.ends_with("GetWorkspaceSize")).count();
        assert_eq!(known.len(), names, "the document has more than the table");
    }

    #[test]
    fn libraries_follow_the_names() {
        for (name, library, _) in Table::SYMBOLS.iter().chain(DROPIN_SYMBOLS) {
            match library {
                Library::Hccl => assert!(name.starts_with("Hccl"), "{name}"),
                Library::OpApi => assert!(name.starts_with("aclnn"), "{name}"),
                Library::AscendCl | Library::NnopBase => assert!(name.starts_with("acl"), "{name}"),
            }
        }
    }

    #[test]
    fn layouts_are_those_of_the_abi() {
        assert_eq!(size_of::<HcclRootInfo>(), 4108);
        assert_eq!(size_of::<HcclCommConfig>(), 2248);
        assert_eq!(size_of::<HcclSendRecvItem>(), 32);
        assert_eq!(size_of::<HcclConfigValue>(), 4);
        assert_eq!(size_of::<aclrtIpcEventHandle>(), 64);
        assert_eq!(size_of::<aclrtPtrAttributes>(), 28);
        assert_eq!(size_of::<aclrtPhysicalMemProp>(), 32);
        assert_eq!(size_of::<aclrtMallocAttribute>(), 12);
        assert_eq!(size_of::<aclrtErrorInfo>(), 2576);
        assert_eq!(size_of::<aclrtRandomNumTaskInfo>(), 104);
        assert_eq!(size_of::<aclmdlRICondTaskParams>(), 24);
        assert_eq!(size_of::<aclrtBinaryLoadOption>(), 20);
        assert_eq!(size_of::<aclCANNPackageVersion>(), 512);
        assert_eq!(std::mem::offset_of!(HcclCommConfig, hcclBufferSize), 24);
        assert_eq!(std::mem::offset_of!(HcclCommConfig, hcclRdmaServiceLevel), 296);
        assert_eq!(std::mem::offset_of!(HcclCommConfig, hcclChannelSqDepth), 2240);
        assert_eq!(std::mem::offset_of!(HcclSendRecvItem, remoteRank), 28);
        assert_eq!(std::mem::offset_of!(aclrtPhysicalMemProp, reserve), 24);
    }

    #[test]
    fn values_that_differ_between_the_libraries() {
        assert_eq!(aclDataType::ACL_FLOAT.0, 0);
        assert_eq!(HcclDataType::HCCL_DATA_TYPE_FP32.0, 4);
        assert_eq!(aclDataType::ACL_BF16.0, 27);
        assert_eq!(HcclDataType::HCCL_DATA_TYPE_BFP16.0, 11);
        assert_eq!(aclrtEventRecordedStatus::ACL_EVENT_RECORDED_STATUS_COMPLETE.0, 1);
        assert_eq!(aclrtStreamStatus::ACL_STREAM_STATUS_COMPLETE.0, 0);
    }
}
