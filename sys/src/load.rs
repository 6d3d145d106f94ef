//! Finds an installed CANN toolkit and fills a [`Table`] from its libraries. The table keeps the
//! libraries loaded. Errors list all searched places or all missing symbols.
//!
//! Invariants: all libraries come from one place. If a folder is given, no other place is searched.
//! A missing required symbol is an error; a missing operator is not. CANN is not initialised.

use std::error::Error as _;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fmt};

#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "the list names most types of the C ABI")
)]
use crate::bindings::*;
use crate::table::{Library, MissingSymbol, Table};
use crate::{c_char, c_void};

/// Reason why no [`Table`] could be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No place contains the four libraries.
    #[error("no CANN toolkit was found; {HOW_TO}{}", list(.looked_at))]
    NotFound {
        /// Each searched place and the reason why it was rejected.
        looked_at: Vec<String>,
    },
    /// The toolkit lacks required functions.
    #[error("the CANN toolkit in {place} lacks {} of the functions needed; install CANN 8.1 or newer{}",
        .symbols.len(), list(.symbols))]
    MissingSymbols {
        /// Location of the loaded libraries.
        place: String,
        /// The functions that are missing.
        symbols: Vec<MissingSymbol>,
    },
}

const HOW_TO: &str = "install CANN 8.1 or newer and run `source <toolkit>/set_env.sh`, or set ASCEND_TOOLKIT_HOME to the \
                      folder that has lib64/libascendcl.so, or name that folder; looked at:";

fn list(items: &[impl fmt::Display]) -> String {
    items.iter().map(|item| format!("\n  {item}")).collect()
}

/// Loads the libraries of a CANN toolkit and fills a table with their functions.
///
/// `path` is the root of a toolkit or the folder of its libraries; no other place is then searched.
/// Without `path` the order is: `ASCEND_TOOLKIT_HOME`, `ASCEND_HOME_PATH`, the usual folders, and
/// the search path of the dynamic linker.
///
/// # Errors
/// [`LoadError::NotFound`] with every searched place, or [`LoadError::MissingSymbols`] with every
/// missing function.
pub fn load(path: Option<&Path>) -> Result<Table, LoadError> {
    let mut looked_at = Vec::new();
    for place in places(path) {
        match place.open() {
            Ok(libraries) => return table_of(libraries, place.to_string()),
            Err(reason) => looked_at.push(format!("{place}: {reason}")),
        }
    }
    Err(LoadError::NotFound { looked_at })
}

/// A possible location of the libraries.
enum LibraryPlace {
    /// A toolkit root or library folder, and the variable that names it.
    Folder { root: PathBuf, named_by: &'static str },
    /// The search path of the dynamic linker.
    LinkerPath,
}

impl fmt::Display for LibraryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder { root, named_by } => write!(f, "{} ({named_by})", root.display()),
            Self::LinkerPath => f.write_str("the search path of the dynamic linker (LD_LIBRARY_PATH)"),
        }
    }
}

fn places(path: Option<&Path>) -> Vec<LibraryPlace> {
    if let Some(path) = path {
        return vec![LibraryPlace::Folder { root: path.to_owned(), named_by: "named by the caller" }];
    }
    let folders =
        toolkit_folders().into_iter().map(|(root, named_by)| LibraryPlace::Folder { root, named_by });
    folders.chain([LibraryPlace::LinkerPath]).collect()
}

/// Origin of folders in [`toolkit_folders`] that no variable names.
pub const USUAL_FOLDER: &str = "usual folder";

/// Returns the folders that [`load`] searches for a toolkit, in order, each with its variable
/// or [`USUAL_FOLDER`].
#[must_use]
pub fn toolkit_folders() -> Vec<(PathBuf, &'static str)> {
    let variables = ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"].into_iter().filter_map(|name| {
        let root = env::var_os(name).filter(|value| !value.is_empty())?;
        Some((root.into(), name))
    });
    let home = env::var_os("HOME").map(PathBuf::from);
    let usual =
        ["/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann", "/usr/local/Ascend/latest"]
            .into_iter()
            .map(PathBuf::from)
            .chain(
                home.iter()
                    .flat_map(|home| [home.join("Ascend/ascend-toolkit/latest"), home.join("Ascend/cann")]),
            )
            .map(|root| (root, USUAL_FOLDER));
    variables.chain(usual).collect()
}

impl LibraryPlace {
    /// Opens the four libraries, or returns the reason why this is impossible.
    fn open(&self) -> Result<Libraries, String> {
        let folder = match self {
            Self::LinkerPath => None,
            Self::Folder { root, .. } => Some(library_folder(root)?),
        };
        let mut libraries = Libraries { open: Vec::new() };
        for library in Library::ALL {
            for (file, role) in files_of(library) {
                let path = folder.as_ref().map_or_else(|| PathBuf::from(file), |folder| folder.join(file));
                match (open_library(&path), role) {
                    (Ok(handle), _) => libraries.open.push((library, handle)),
                    (Err(reason), LibraryRole::Main) => return Err(reason),
                    (Err(_), LibraryRole::Companion) => {}
                }
            }
        }
        Ok(libraries)
    }
}

#[derive(Clone, Copy)]
enum LibraryRole {
    /// A library that every toolkit contains.
    Main,
    /// Optional library. Since 8.5 the runtime, the communicators and each repository of operators
    /// have separate libraries.
    Companion,
}

fn files_of(library: Library) -> Vec<(&'static str, LibraryRole)> {
    let companions: &[&str] = match library {
        Library::AscendCl => &["libacl_rt.so", "libmsprofiler.so"],
        Library::Hccl => &["libhcomm.so"],
        // Since 8.5 each repository of operators has its own library.
        Library::OpApi => &[
            "libopapi_math.so",
            "libopapi_nn.so",
            "libopapi_cv.so",
            "libopapi_transformer.so",
            "libopapi_oam.so",
            "libopapi_legacy.so",
        ],
        Library::NnopBase => &[],
    };
    let main = (library.file_name(), LibraryRole::Main);
    [main].into_iter().chain(companions.iter().map(|file| (*file, LibraryRole::Companion))).collect()
}

/// Returns the folder below the toolkit `root` that contains `libascendcl.so`.
///
/// # Errors
/// Returns the searched folders.
pub fn library_folder(root: &Path) -> Result<PathBuf, String> {
    if !root.is_dir() {
        return Err("no such folder".to_owned());
    }
    let arch_lib64 = format!("{}-linux/lib64", env::consts::ARCH);
    let folders = ["lib64", arch_lib64.as_str(), "runtime/lib64", "acllib/lib64", ""];
    folders
        .iter()
        .map(|folder| root.join(folder))
        .find(|folder| folder.join(Library::AscendCl.file_name()).is_file())
        .ok_or_else(|| format!("no {} here or in {}", Library::AscendCl, folders[..4].join(", ")))
}

/// The open libraries of one toolkit, which a loaded [`Table`] owns.
struct Libraries {
    open: Vec<(Library, libloading::Library)>,
}

#[expect(unsafe_code, reason = "opening a library runs its initialisers")]
fn open_library(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: these are CANN's libraries. Their initialisers only set up their own state, and no
    // other thread of this project uses them before this call returns.
    let opened = unsafe { libloading::Library::new(path) };
    opened.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

/// Looks up symbols and records the missing ones.
struct Lookup {
    libraries: Libraries,
    missing: Vec<MissingSymbol>,
}

impl Lookup {
    /// Returns the function `name` as a pointer of type `F`, which the caller takes from the list
    /// in `symbols.rs`.
    #[expect(unsafe_code, reason = "a symbol has the type its header says")]
    fn find<F: Copy>(&self, library: Library, name: &str) -> Option<F> {
        let symbol = CString::new(name).ok()?;
        self.libraries.open.iter().filter(|(of, _)| *of == library).find_map(|(_, handle)| {
            // SAFETY: `F` is the function pointer type of `name` in `symbols.rs`, which is
            // generated from the prototype in the header. CANN never changes the signature of a C
            // function between releases.
            let found = unsafe { handle.get::<F>(symbol.as_bytes_with_nul()) };
            found.ok().map(|function| *function)
        })
    }

    /// Looks up a function like `find` and records a missing one.
    fn require<F: Copy>(&mut self, library: Library, name: &'static str) -> Option<F> {
        let found = self.find(library, name);
        if found.is_none() {
            self.missing.push(MissingSymbol { name, library, since: "8.1" });
        }
        found
    }
}

macro_rules! define_table_of {
    (
        required { $( [$library:ident] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty; )* }
        optional { $( [$young_library:ident, $since:literal]
                      fn $young:ident($($young_arg:ident: $young_ty:ty),* $(,)?) -> $young_ret:ty; )* }
        operators { $( $run:ident, $plan:ident($($op_arg:ident: $op_ty:ty),* $(,)?); )* }
        dropin { $($dropin:tt)* }
    ) => {
        /// Replacements for missing operators.
        #[expect(non_snake_case, reason = "functions are named as the C functions")]
        mod absent {
            use super::*;

            $( pub(super) extern "C" fn $plan(
                $(_: $op_ty,)* _: *mut u64, _: *mut *mut aclOpExecutor,
            ) -> aclnnStatus {
                ACL_ERROR_API_NOT_SUPPORT
            } )*

            pub(super) extern "C" fn run(
                _: *mut c_void, _: u64, _: *mut aclOpExecutor, _: aclrtStream,
            ) -> aclnnStatus {
                ACL_ERROR_API_NOT_SUPPORT
            }
        }

        /// Fills a table. All symbols are looked up first, so one error can list every missing
        /// symbol.
        #[expect(non_snake_case, reason = "variables are named as the C functions")]
        fn table_of(libraries: Libraries, place: String) -> Result<Table, LoadError> {
            let mut lookup = Lookup { libraries, missing: Vec::new() };
            let mut missing_operators = Vec::new();
            $(
                let $name: Option<unsafe extern "C" fn($($ty),*) -> $ret> =
                    lookup.require(define_table_of!(@library $library), stringify!($name));
            )*
            $(
                let operator = (
                    lookup.find(Library::OpApi, stringify!($plan)),
                    lookup.find(Library::OpApi, stringify!($run)),
                );
                let ($plan, $run): (
                    unsafe extern "C" fn($($op_ty,)* *mut u64, *mut *mut aclOpExecutor) -> aclnnStatus,
                    unsafe extern "C" fn(*mut c_void, u64, *mut aclOpExecutor, aclrtStream) -> aclnnStatus,
                ) = match operator {
                    (Some(plan), Some(run)) => (plan, run),
                    _ => {
                        missing_operators.push(stringify!($run));
                        (absent::$plan, absent::run)
                    }
                };
            )*
            $( let $young = lookup.find(define_table_of!(@library $young_library), stringify!($young)); )*
            let Lookup { libraries, missing } = lookup;
            $( let Some($name) = $name else { return Err(LoadError::MissingSymbols { place, symbols: missing }) }; )*
            Ok(Table { owner: Arc::new(libraries), missing_operators, $( $name, )* $( $young, )* $( $plan, $run, )* })
        }
    };
    (@library acl) => { Library::AscendCl };
    (@library hccl) => { Library::Hccl };
    (@library nnopbase) => { Library::NnopBase };
    (@library opapi) => { Library::OpApi };
}

crate::for_each_symbol!(define_table_of);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn looked_at(path: &Path) -> Vec<String> {
        match load(Some(path)) {
            Err(LoadError::NotFound { looked_at }) => looked_at,
            other => panic!("expected NotFound, found {other:?}"),
        }
    }

    #[test]
    fn a_named_folder_is_the_only_place() {
        let missing = Path::new("/nonexistent/cann");
        assert_eq!(looked_at(missing), ["/nonexistent/cann (named by the caller): no such folder"]);
    }

    #[test]
    fn an_empty_folder_says_where_the_library_should_be() {
        let folder = tempfile::tempdir().unwrap();
        let looked_at = looked_at(folder.path());
        assert!(looked_at[0].contains("no libascendcl.so here or in lib64"), "{looked_at:?}");
    }

    #[test]
    fn a_file_that_is_no_library_gives_the_linkers_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lib64")).unwrap();
        fs::write(folder.path().join("lib64/libascendcl.so"), "no library").unwrap();
        let looked_at = looked_at(folder.path());
        assert!(looked_at[0].contains("lib64/libascendcl.so"), "{looked_at:?}");
    }

    #[test]
    fn the_error_says_how_to_point_at_a_toolkit() {
        let text = load(Some(Path::new("/nonexistent/cann"))).unwrap_err().to_string();
        assert!(text.contains("ASCEND_TOOLKIT_HOME") && text.contains("/nonexistent/cann"), "{text}");
    }

    #[test]
    fn without_a_name_the_usual_places_are_listed() {
        let places: Vec<String> = places(None).iter().map(ToString::to_string).collect();
        assert!(
            places.iter().any(|place| place.contains("/usr/local/Ascend/ascend-toolkit/latest")),
            "{places:?}"
        );
        assert!(places.last().unwrap().contains("dynamic linker"), "{places:?}");
    }

    #[test]
    fn missing_symbols_are_all_named() {
        let symbols = vec![
            MissingSymbol { name: "aclInit", library: Library::AscendCl, since: "8.1" },
            MissingSymbol { name: "HcclSend", library: Library::Hccl, since: "8.1" },
        ];
        let text = LoadError::MissingSymbols { place: "/opt/cann".to_owned(), symbols }.to_string();
        assert!(
            text.contains("aclInit of libascendcl.so") && text.contains("HcclSend of libhccl.so"),
            "{text}"
        );
    }
}
