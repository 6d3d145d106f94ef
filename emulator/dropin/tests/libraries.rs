//! The written libraries with a linker and a loader.
#![expect(unsafe_code, reason = "loads libraries and calls C functions")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ascend_tp_emulator_dropin::{Coverage, OWN, exports, real_library, write_libraries};
use ascend_tp_sys::{Library, load};
use object::elf;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder for the libraries");
        write_libraries(folder.path(), &real_library().expect("cargo built the shared library"))
            .expect("written");
        folder
    });
    made.path()
}

#[derive(Debug)]
struct Shared {
    soname: Vec<String>,
    needed: Vec<String>,
    filter: Vec<String>,
    defines: BTreeSet<String>,
}

fn read(path: &Path) -> Shared {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = ElfFile64::<Endianness>::parse(bytes.as_slice()).expect("an ELF file");
    let header = file.elf_header();
    let endian = file.endian();
    let sections = header.sections(endian, bytes.as_slice()).expect("sections");
    let (dynamic, link) =
        sections.dynamic(endian, bytes.as_slice()).expect("readable").expect("a dynamic section");
    let strings = sections.strings(endian, bytes.as_slice(), link).expect("strings");
    let text = |tag: u32| {
        let entries = dynamic.iter().filter(|entry| entry.tag32(endian) == Some(tag));
        let text = entries.map(|entry| entry.string(endian, strings).expect("a string"));
        text.map(|text| String::from_utf8(text.to_vec()).expect("UTF-8")).collect()
    };
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    Shared {
        soname: text(elf::DT_SONAME),
        needed: text(elf::DT_NEEDED),
        filter: text(elf::DT_FILTER),
        defines: defined.map(|symbol| symbol.name().expect("UTF-8").to_owned()).collect(),
    }
}

fn names_of(library: Option<Library>) -> BTreeSet<String> {
    let owned = exports().into_iter().filter(|export| Some(export.library) == library);
    let own: &[&str] = if library == Some(Library::AscendCl) { OWN } else { &[] };
    owned.map(|export| export.name.to_owned()).chain(own.iter().map(|name| (*name).to_owned())).collect()
}

#[test]
fn each_library_defines_what_it_owns_and_hands_it_to_the_shared_one() {
    let parts = [
        ("libascendcl.so", Some(Library::AscendCl)),
        ("libacl_rt.so", Some(Library::AscendCl)),
        ("libhccl.so", Some(Library::Hccl)),
        ("libhcomm.so", Some(Library::Hccl)),
        ("libnnopbase.so", Some(Library::NnopBase)),
        ("libopapi.so", Some(Library::OpApi)),
        ("libopapi_math.so", Some(Library::OpApi)),
        ("libopapi_nn.so", Some(Library::OpApi)),
        ("libopapi_cv.so", Some(Library::OpApi)),
        ("libopapi_transformer.so", Some(Library::OpApi)),
        ("libopapi_oam.so", Some(Library::OpApi)),
        ("libopapi_legacy.so", Some(Library::OpApi)),
        ("libatb.so", Some(Library::AscendCl)),
        ("libacl_op_compiler.so", None),
        ("libfmk_parser.so", None),
        ("libascend_protobuf.so", None),
        ("libge_runner.so", None),
        ("libgraph.so", None),
        ("libacl_tdt_channel.so", None),
        ("libacl_tdt_queue.so", None),
        ("libacl_rt_impl.so", None),
        ("libmsprofiler.so", None),
        ("libprofapi.so", None),
        ("libascend_dump.so", None),
        ("libc_sec.so", None),
    ];
    for (file, library) in parts {
        let found = read(&folder().join(file));
        assert_eq!(found.soname, [file]);
        assert_eq!(found.filter, ["libascend_tp_emulator_dropin.so"], "{file}");
        assert!(
            found.defines == names_of(library),
            "{file}: {:?}",
            found.defines.symmetric_difference(&names_of(library))
        );
        let needed: &[&str] = if library == Some(Library::OpApi) { &["libnnopbase.so"] } else { &[] };
        assert_eq!(found.needed, needed, "{file}");
    }
}

#[test]
fn the_shared_library_exports_the_names_of_cann_and_of_its_own_header_and_no_other() {
    let found = read(&folder().join("libascend_tp_emulator_dropin.so"));
    let names = exports().into_iter().map(|export| export.name);
    let expected: BTreeSet<String> = names.chain(OWN.iter().copied()).map(str::to_owned).collect();
    assert_eq!(expected.len(), exports().len() + OWN.len(), "a name belongs to two libraries");
    assert!(
        found.defines == expected,
        "{:?}",
        found.defines.symmetric_difference(&expected).collect::<Vec<_>>()
    );
    assert_eq!(found.soname, ["libascend_tp_emulator_dropin.so"]);
    for needed in &found.needed {
        let system =
            ["libc.so", "libm.so", "libgcc_s.so", "ld-linux", "libdl.so", "libpthread.so", "librt.so"];
        assert!(system.iter().any(|name| needed.starts_with(name)), "needs {needed}");
    }
}

#[test]
fn what_tiers_of_real_programs_call_is_exported() {
    let all: BTreeSet<&str> = exports().iter().map(|export| export.name).collect();
    for name in [
        "aclopCompileAndExecute",
        "acltdtCreateChannel",
        "aclprofMarkEx",
        "aclmdlLoadFromFile",
        "HcclGroupStart",
        "HcommChannelCreate",
        "aclnnScaledMaskedSoftmax",
        "AclSetTensorAddr",
    ] {
        assert!(all.contains(name), "{name}");
    }
    assert!(!all.contains("HcclCommConfigInit"));
}

#[test]
fn a_table_loads_from_the_folder_and_every_optional_function_is_there() {
    let table = load(Some(folder())).expect("the table fills");
    assert!(table.aclrtCreateNotify.is_some() && table.HcclAlltoAllVC.is_some());
    let mut count = 0;
    // SAFETY: `count` is a live `u32`.
    let code = unsafe { (table.aclrtGetDeviceCount)(&raw mut count) };
    assert_eq!((code, count), (0, 8));
}

fn function<F: Copy>(path: &Path, name: &str) -> (libloading::Library, F) {
    // SAFETY: the library's initialisers do nothing.
    let library = unsafe { libloading::Library::new(path) }.unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: callers pass the type of the C declaration.
    let found = *unsafe { library.get::<F>(name) }.unwrap_or_else(|error| panic!("{error}"));
    (library, found)
}

#[test]
fn every_library_and_every_copy_of_the_folder_leads_to_one_machine() {
    type GetDevice = unsafe extern "C" fn(*mut i32) -> i32;
    type SetDevice = unsafe extern "C" fn(i32) -> i32;
    type Init = unsafe extern "C" fn(*const std::ffi::c_char) -> i32;
    let copy = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(folder()).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            continue;
        }
        fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let (_first, set) = function::<SetDevice>(&folder().join("libascendcl.so"), "aclrtSetDevice");
    let others: [PathBuf; 4] = [
        folder().join("libacl_rt.so"),
        folder().join("libopapi.so"),
        copy.path().join("libascendcl.so"),
        copy.path().join("libmsprofiler.so"),
    ];
    let (_runtime, init) = function::<Init>(&copy.path().join("libacl_rt.so"), "aclInit");
    // SAFETY: NULL means no configuration.
    assert_eq!(unsafe { init(std::ptr::null()) }, 0);
    // SAFETY: this function has no conditions.
    assert_eq!(unsafe { set(5) }, 0);
    for path in &others {
        let (_library, get) = function::<GetDevice>(path, "aclrtGetDevice");
        let mut device = -1;
        // SAFETY: `device` is a live `i32`.
        assert_eq!((unsafe { get(&raw mut device) }, device), (0, 5), "{}", path.display());
    }
}

#[test]
fn functions_that_no_table_has_are_answered() {
    type Convert = unsafe extern "C" fn(f32) -> u16;
    type Plan = unsafe extern "C" fn(*const u8, *const u8, *mut u8, i8, *mut u64, *mut *mut u8) -> i32;
    let (_acl, convert) = function::<Convert>(&folder().join("libascendcl.so"), "aclFloatToFloat16");
    // SAFETY: this function has no conditions.
    assert_eq!(unsafe { convert(1.0) }, 0x3c00);
    let (_operators, plan) = function::<Plan>(&folder().join("libopapi.so"), "aclnnMmGetWorkspaceSize");
    let (null, mut size, mut executor) = (std::ptr::null_mut(), 0, std::ptr::null_mut());
    // SAFETY: the function refuses NULL tensors before it reads anything.
    let code = unsafe { plan(null, null, null, 0, &raw mut size, &raw mut executor) };
    assert_eq!(code, 161_001, "ACLNN_ERR_PARAM_NULLPTR, from the operator's row");
}

/// `torch_npu` looks these up and only warns once if one is refused, so a refusal would leave wrong
/// data.
#[test]
fn functions_whose_refusal_callers_ignore_are_modelled_or_absent() {
    let modelled = [
        "aclrtCmoAsync",
        "aclrtDeviceGetUuid",
        "aclrtGetMemUceInfo",
        "aclrtGetPrimaryCtxState",
        "aclrtGetStreamResLimit",
        "aclrtHostRegisterV2",
        "aclrtMallocHostWithCfg",
        "aclrtMemUceRepair",
        "aclrtMemcpyAsyncWithCondition",
        "aclrtMemcpyBatch",
        "aclrtMemcpyBatchAsync",
        "aclrtRepairError",
        "aclrtResetStreamResLimit",
        "aclrtSetStreamAttribute",
        "aclrtSetStreamResLimit",
        "aclrtUnuseStreamResInCurrentThread",
        "aclrtUseStreamResInCurrentThread",
    ];
    let exports = exports();
    let answer = |name: &str| exports.iter().find(|export| export.name == name).map(|export| export.answer);
    for name in modelled {
        assert_eq!(answer(name), Some(Coverage::Modelled), "{name}");
    }
    // Without it, a program reads no table of memory per component.
    assert_eq!(answer("aclrtGetMemUsageInfo"), None);
}
