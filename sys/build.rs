//! Makes the bindings when feature `bindgen` is on; otherwise the committed ones are used and nothing happens here.
//!
//! Input: the headers of the toolkit named by `ASCEND_TP_HEADERS` or `ASCEND_TOOLKIT_HOME`, else this crate's `include/`.
//! Output: `bindings.rs` (types and constants) and `prototypes.rs` (functions, used for their types only) in the folder
//! `ASCEND_TP_BINDINGS_DIR` if that is set, and in `OUT_DIR`.
//! What it does not do: link anything, or need CANN.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "bindgen")]
    generate::run();
}

#[cfg(feature = "bindgen")]
mod generate {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use bindgen::callbacks::{IntKind, ParseCallbacks};
    use bindgen::{Builder, EnumVariation};

    /// What both files have in common: C names of the three libraries.
    const NAMES: &str = "(acl|Hccl).*";
    const CONSTANTS: &str = "(ACL|HCCL|COMM)_.*";

    const LINTS_OF_LAYOUT_TESTS: &str = "#[allow(clippy::unnecessary_operation, clippy::identity_op)]\n";

    pub(super) fn run() {
        for name in ["ASCEND_TP_HEADERS", "ASCEND_TOOLKIT_HOME", "ASCEND_TP_BINDINGS_DIR"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        println!("cargo::rerun-if-changed=include");
        let bindings = generate(
            common()
                .allowlist_type(NAMES)
                .allowlist_var(CONSTANTS)
                .ignore_functions()
                .parse_callbacks(Box::new(StatusCodesAreSigned))
                .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false }),
        );
        let prototypes = generate(
            common()
                .allowlist_function(NAMES)
                .allowlist_recursively(false)
                .raw_line("use super::bindings::*;")
                .generate_comments(false),
        );
        let folders = [env::var_os("OUT_DIR"), env::var_os("ASCEND_TP_BINDINGS_DIR")];
        for folder in folders.into_iter().flatten().map(PathBuf::from) {
            write(&folder.join("bindings.rs"), &bindings);
            write(&folder.join("prototypes.rs"), &prototypes);
        }
    }

    /// `hccl_types.h` of a toolkit is C++ only, so everything is read as C++.
    fn common() -> Builder {
        let builder = bindgen::builder()
            .clang_args(["-x", "c++", "-std=c++14"])
            .generate_comments(true)
            .disable_header_comment()
            .sort_semantically(true)
            .merge_extern_blocks(true)
            .raw_line("// Made by `cargo xtask bindings`; do not edit.");
        match toolkit_include() {
            Some(include) => builder.clang_arg(format!("-I{}", include.display())).header_contents(
                "toolkit.h",
                "#include \"acl/acl.h\"\n#include \"acl/acl_prof.h\"\n#include \"hccl/hccl.h\"\n\
                 #include \"aclnn/acl_meta.h\"\n#include \"aclnn/aclnn_base.h\"\n#include \"aclnnop/aclnn_ops.h\"\n",
            ),
            None => builder.header("include/hccl.h").header("include/aclnn.h"),
        }
    }

    /// The folder `include` of a toolkit, if one is named.
    fn toolkit_include() -> Option<PathBuf> {
        let root = env::var_os("ASCEND_TP_HEADERS").or_else(|| env::var_os("ASCEND_TOOLKIT_HOME"))?;
        let include = PathBuf::from(root).join("include");
        assert!(
            include.join("acl/acl.h").is_file(),
            "{} has no acl/acl.h: point ASCEND_TP_HEADERS at a CANN toolkit (9.x or newer), or unset it and \
             ASCEND_TOOLKIT_HOME to use the declarations of this crate",
            include.display()
        );
        println!("cargo::rerun-if-changed={}", include.display());
        Some(include)
    }

    fn generate(builder: Builder) -> String {
        match builder.generate() {
            // The crate says once, with a reason, which lints generated code may break.
            Ok(bindings) => bindings.to_string().replace(LINTS_OF_LAYOUT_TESTS, ""),
            Err(error) => panic!("bindgen failed: {error}"),
        }
    }

    fn write(path: &Path, text: &str) {
        if let Err(error) = fs::write(path, text) {
            panic!("cannot write {}: {error}", path.display());
        }
    }

    /// Status codes are `int`, also where a header defines them as macros, which bindgen would make `u32`.
    #[derive(Debug)]
    struct StatusCodesAreSigned;

    impl ParseCallbacks for StatusCodesAreSigned {
        fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
            (name.starts_with("ACL_ERROR") || name == "ACL_SUCCESS").then_some(IntKind::Int)
        }
    }
}
