//! Generates the C ABI of `ascend-tp-sys` from its headers.
//!
//! - Input: `sys/include`, one header per CANN library; `dropin/` for functions outside the table;
//!   optionally types and signatures of a toolkit.
//! - Output in `sys/src`: `bindings.rs` (types, constants), `names.rs` (status codes), `symbols.rs`
//!   (functions).
//! - Invariants: the header determines the library and whether the table has a function. `@since`
//!   gives the first CANN version, by default [`OLDEST`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use bindgen::callbacks::{IntKind, ParseCallbacks};
use bindgen::{Builder, CodegenConfig, EnumVariation, Formatter};

use super::since::marks;

const LIBRARIES: [&str; 4] = ["acl", "hccl", "nnopbase", "opapi"];
const OPERATORS: &str = "opapi";
const FIRST_PHASE: &str = "GetWorkspaceSize";
const FIRST_PHASE_TAIL: &str = "workspace_size: *mut u64, executor: *mut *mut aclOpExecutor";
const SECOND_PHASE: &str =
    "workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream";
/// Oldest supported CANN version.
const OLDEST: &str = "8.1";

const NAMES: &str = "(acl|Hccl).*";
const CONSTANTS: &str = "(ACL|HCCL|COMM)_.*";
const TOOLKIT: &str = "#include \"acl/acl.h\"\n#include \"acl/acl_prof.h\"\n#include \"hccl/hccl.h\"\n\
     #include \"aclnn/acl_meta.h\"\n#include \"aclnn/aclnn_base.h\"\n#include \"aclnnop/aclnn_ops.h\"\n";

const MADE_BY: &str = "// Made by `cargo xtask bindings`; do not edit.";

pub(crate) fn write(toolkit: Option<&Path>) -> Result<String> {
    let files = generate(toolkit)?;
    for (path, text) in &files {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let written: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    Ok(format!("wrote {}", written.join(", ")))
}

pub(crate) fn check() -> Result<String> {
    for (path, generated) in generate(None)? {
        let committed =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if committed != generated {
            let same =
                committed.lines().zip(generated.lines()).take_while(|(left, right)| left == right).count();
            bail!(
                "{} differs from line {} on; run `cargo xtask bindings` and commit the result",
                path.display(),
                same + 1
            );
        }
    }
    Ok("the generated files in sys/src match sys/include".to_owned())
}

fn generate(toolkit: Option<&Path>) -> Result<Vec<(PathBuf, String)>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sys")
        .canonicalize()
        .context("the package folder sys is missing")?;
    let headers = Header::all(&package.join("include"));
    let all = |builder: Builder| match toolkit {
        Some(root) => builder
            .clang_arg(format!("-I{}", root.join("include").display()))
            .header_contents("all.h", TOOLKIT),
        None => {
            headers.iter().fold(own(builder), |builder, header| builder.header(header.path.to_string_lossy()))
        }
    };
    let types = all(builder())
        .allowlist_type(NAMES)
        .allowlist_var(CONSTANTS)
        .ignore_functions()
        .parse_callbacks(Box::new(StatusCodesAreSigned))
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
        .generate()?
        .to_string()
        .replace("#[allow(clippy::unnecessary_operation, clippy::identity_op)]\n", "");
    let mut sections = Vec::new();
    for header in &headers {
        let of_file =
            own(builder()).header(header.path.to_string_lossy()).allowlist_file(regex_of(&header.path));
        let text = fs::read_to_string(&header.path).with_context(|| header.path.display().to_string())?;
        let mut functions = functions(of_file)?;
        mark(&mut functions, &marks(&text)).with_context(|| header.path.display().to_string())?;
        sections.push((functions, header));
    }
    if toolkit.is_some() {
        let theirs: BTreeMap<String, HeaderPrototype> = functions(all(builder()).allowlist_function(NAMES))?
            .into_iter()
            .map(|function| (function.name.clone(), function))
            .collect();
        for function in sections.iter_mut().flat_map(|(functions, _)| functions) {
            let Some(same) = theirs.get(&function.name) else {
                bail!("the toolkit does not declare {}", function.name)
            };
            (function.arguments, function.result) = (same.arguments.clone(), same.result.clone());
        }
    }
    let list = list(&sections)?;
    let files = [("bindings.rs", &types), ("names.rs", &names(&types)?), ("symbols.rs", &list)];
    Ok(files.map(|(file, text)| (package.join("src").join(file), text.clone())).into())
}

struct Header {
    path: PathBuf,
    library: &'static str,
    in_table: bool,
}

impl Header {
    fn all(include: &Path) -> Vec<Self> {
        let folders = [(include.to_owned(), true), (include.join("dropin"), false)];
        let headers = folders.iter().flat_map(|(folder, in_table)| {
            LIBRARIES.map(|library| Self {
                path: folder.join(format!("{library}.h")),
                library,
                in_table: *in_table,
            })
        });
        headers.filter(|header| header.path.is_file()).collect()
    }
}

/// Reads C++, because a toolkit's `hccl_types.h` is C++ only. The fixed target makes results
/// machine-independent.
fn builder() -> Builder {
    bindgen::builder()
        .clang_args(["-x", "c++", "-std=c++14", "--target=x86_64-unknown-linux-gnu"])
        .disable_header_comment()
        .formatter(Formatter::Prettyplease)
        .sort_semantically(true)
        .raw_line(MADE_BY)
}

/// Adds minimal C headers, so that libclang suffices.
fn own(builder: Builder) -> Builder {
    builder.clang_args(["-nostdinc", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/src/bindings/freestanding")])
}

fn regex_of(path: &Path) -> String {
    let escaped = |c: char| if c.is_alphanumeric() || c == '/' { c.to_string() } else { format!("\\{c}") };
    path.to_string_lossy().chars().map(escaped).collect()
}

/// Status codes are `int`, but bindgen would make macros `u32`.
#[derive(Debug)]
struct StatusCodesAreSigned;

impl ParseCallbacks for StatusCodesAreSigned {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        (name.starts_with("ACL_ERROR") || name == "ACL_SUCCESS").then_some(IntKind::Int)
    }
}

#[derive(Debug)]
struct HeaderPrototype {
    name: String,
    /// First CANN version with the function.
    since: String,
    arguments: String,
    result: String,
}

fn functions(builder: Builder) -> Result<Vec<HeaderPrototype>> {
    let code = builder
        .with_codegen_config(CodegenConfig::FUNCTIONS)
        .allowlist_recursively(false)
        .generate()?
        .to_string();
    let mut functions = Vec::new();
    for item in syn::parse_file(&code).context("bindgen generated invalid Rust")?.items {
        let syn::Item::ForeignMod(block) = item else { continue };
        for item in block.items {
            let syn::ForeignItem::Fn(function) = item else { continue };
            let name = function.sig.ident.to_string();
            functions.push(HeaderPrototype::read(&function).with_context(|| name)?);
        }
    }
    Ok(functions)
}

impl HeaderPrototype {
    fn read(function: &syn::ForeignItemFn) -> Result<Self> {
        let mut arguments = Vec::new();
        for argument in &function.sig.inputs {
            let syn::FnArg::Typed(argument) = argument else { bail!("an argument has no type") };
            let syn::Pat::Ident(name) = argument.pat.as_ref() else { bail!("an argument has no name") };
            arguments.push(format!("{}: {}", name.ident, type_name(&argument.ty)?));
        }
        let result = match &function.sig.output {
            syn::ReturnType::Type(_, result) => type_name(result)?,
            syn::ReturnType::Default => bail!("the return type is void, which the list does not support"),
        };
        let since = OLDEST.to_owned();
        Ok(Self { name: function.sig.ident.to_string(), since, arguments: arguments.join(", "), result })
    }

    fn signature(&self) -> String {
        format!("fn {}({}) -> {};", self.name, self.arguments, self.result)
    }
}

/// A mark applies to both phases of an operator.
fn mark(functions: &mut [HeaderPrototype], marks: &BTreeMap<&str, &str>) -> Result<()> {
    if let Some(name) = marks.keys().find(|name| functions.iter().all(|function| function.name != **name)) {
        bail!("`@since` marks {name}, which is not a function");
    }
    for function in functions {
        let name = function.name.strip_suffix(FIRST_PHASE).unwrap_or(&function.name);
        let version = marks.get(function.name.as_str()).or_else(|| marks.get(name));
        function.since = version.map_or(OLDEST, |version| *version).to_owned();
    }
    Ok(())
}

fn type_name(of: &syn::Type) -> Result<String> {
    match of {
        syn::Type::Ptr(pointer) => {
            let kind =
                if matches!(pointer.mutability, syn::PointerMutability::Mut(_)) { "*mut" } else { "*const" };
            Ok(format!("{kind} {}", type_name(&pointer.elem)?))
        }
        syn::Type::Path(path) => {
            let name = path.path.segments.last().context("a type has no name")?.ident.to_string();
            Ok(if name == "c_int" { "i32".to_owned() } else { name })
        }
        _ => bail!("unsupported type: expected a name or a pointer; add a typedef"),
    }
}

fn list(sections: &[(Vec<HeaderPrototype>, &Header)]) -> Result<String> {
    let mut seen = BTreeSet::new();
    let mut parts: BTreeMap<&str, String> = BTreeMap::new();
    for (functions, header) in sections {
        for function in functions {
            if !seen.insert(function.name.as_str()) {
                bail!("{} is declared again in {}", function.name, header.path.display());
            }
        }
        for function in functions {
            let (part, line) = match (operator(function, functions, header.library)?, header.in_table) {
                (OperatorPhase::SecondPhase, _) => continue,
                (OperatorPhase::FirstPhase { line }, true) if function.since == OLDEST => ("operators", line),
                (OperatorPhase::FirstPhase { .. }, true) => {
                    bail!("{}: all operators of the table must be in CANN {OLDEST}", function.name)
                }
                (OperatorPhase::FirstPhase { line }, false) => {
                    ("dropin operators", format!("[\"{}\"] {line}", function.since))
                }
                (OperatorPhase::None, in_table) => {
                    let (library, since, signature) = (header.library, &function.since, function.signature());
                    match (in_table, since == OLDEST) {
                        (true, true) => ("required", format!("[{library}] {signature}")),
                        (true, false) => ("optional", format!("[{library}, \"{since}\"] {signature}")),
                        (false, _) => ("dropin functions", format!("[{library}, \"{since}\"] {signature}")),
                    }
                }
            };
            let _ = writeln!(parts.entry(part).or_default(), "        {line}");
        }
    }
    let section = |name: &str, part: &str| {
        format!("    {name} {{\n{}    }}\n", parts.get(part).map_or("", String::as_str))
    };
    Ok([
        format!("{MADE_BY}\n{LIST_DOC}#[macro_export]\nmacro_rules! for_each_symbol {{\n"),
        "    ($callback:ident) => { $callback! {\n".to_owned(),
        section("required", "required"),
        section("optional", "optional"),
        section("operators", "operators"),
        "    dropin {\n".to_owned(),
        section("functions", "dropin functions"),
        section("operators", "dropin operators"),
        "    }\n    } };\n}\n".to_owned(),
    ]
    .concat())
}

const LIST_DOC: &str = "\
/// Calls `$callback!` with the list of all C functions.
///
/// The list has four parts. The first three are the fields of the [`Table`](crate::Table):
/// * `required { [library] fn name(arguments) -> result; … }`: every supported CANN (8.1 and newer) has the function.
/// * `optional { [library, \"since\"] fn name(arguments) -> result; … }`: younger than 8.1; `since` names the CANN with it.
/// * `operators { run, plan(arguments); … }`: an aclnn operator of `libopapi.so`, in CANN 8.1. `plan` takes the arguments
///   and then `workspace_size: *mut u64, executor: *mut *mut aclOpExecutor`; `run` takes `workspace: *mut c_void,
///   workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream`. Both return `aclnnStatus`.
///
/// The fourth, `dropin { functions { … } operators { … } }`, has functions that this project never calls and the
/// drop-in libraries of the emulator may answer, as those of `optional`, and operators, `[\"since\"]` before each.
///
/// `library` is `acl`, `hccl`, `nnopbase` or `opapi`. Types are named as in the root of this crate (`c_void` and `c_char` are
/// those of [`core::ffi`]), so the caller needs them in scope.
";

fn names(types: &str) -> Result<String> {
    let (mut acl, mut hccl) = (String::new(), String::new());
    let value = |constant: &syn::Expr| match constant {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(value), .. }) => Some(value.to_string()),
        _ => None,
    };
    for item in syn::parse_file(types).context("bindgen generated invalid Rust")?.items {
        match item {
            syn::Item::Const(constant) => {
                let name = constant.ident.to_string();
                if let Some(value) =
                    value(&constant.expr).filter(|_| name.starts_with("ACL_ERROR") || name == "ACL_SUCCESS")
                {
                    let _ = writeln!(acl, "    ({value}, \"{name}\"),");
                }
            }
            syn::Item::Impl(block) if type_name(&block.self_ty)? == "HcclResult" => {
                for item in block.items {
                    let syn::ImplItem::Const(constant) = item else { continue };
                    let syn::Expr::Call(number) = &constant.expr else { continue };
                    let name = constant.ident.to_string();
                    // Reserved numbers are not results.
                    if let Some(value) =
                        number.args.first().and_then(value).filter(|_| !name.ends_with("_RESERVED"))
                    {
                        let _ = writeln!(hccl, "    ({value}, \"{name}\"),");
                    }
                }
            }
            _ => {}
        }
    }
    Ok(format!(
        "{MADE_BY}\n/// The status codes of AscendCL.\npub(crate) const ACL_ERRORS: &[(i64, &str)] = &[\n{acl}];\n\
         /// The results of HCCL.\npub(crate) const HCCL_RESULTS: &[(i64, &str)] = &[\n{hccl}];\n"
    ))
}

enum OperatorPhase {
    None,
    /// Stands for both phases of an operator: `run, plan(arguments);`.
    FirstPhase {
        line: String,
    },
    SecondPhase,
}

fn operator(
    function: &HeaderPrototype,
    functions: &[HeaderPrototype],
    library: &str,
) -> Result<OperatorPhase> {
    let find = |name: &str| functions.iter().find(|other| other.name == name);
    let name = &function.name;
    if library != OPERATORS {
        return Ok(OperatorPhase::None);
    }
    let Some(run) = name.strip_suffix(FIRST_PHASE) else {
        return Ok(if find(&format!("{name}{FIRST_PHASE}")).is_some() {
            OperatorPhase::SecondPhase
        } else {
            OperatorPhase::None
        });
    };
    let Some(second) = find(run) else { bail!("{name}: the second phase {run} is missing") };
    // Argument names differ in toolkit headers.
    let types = |arguments: &str| {
        arguments.split(", ").map(|each| each.rsplit(": ").next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let (found, tail) = (types(&function.arguments), types(FIRST_PHASE_TAIL));
    if !found.ends_with(&tail) || function.result != "aclnnStatus" {
        bail!(
            "{name}: expected {FIRST_PHASE_TAIL} at its end and aclnnStatus, found {}",
            function.signature()
        );
    }
    if types(&second.arguments) != types(SECOND_PHASE)
        || second.result != "aclnnStatus"
        || second.since != function.since
    {
        bail!(
            "{run}: expected ({SECOND_PHASE}) -> aclnnStatus since {}, found {}",
            function.since,
            second.signature()
        );
    }
    let own: Vec<&str> = function.arguments.split(", ").collect();
    Ok(OperatorPhase::FirstPhase {
        line: format!("{run}, {name}({});", own[..own.len() - tail.len()].join(", ")),
    })
}
