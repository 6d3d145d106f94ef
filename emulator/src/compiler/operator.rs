//! Facts about an operator that its kernel's source takes for granted.
//!
//! Input: the texts of a source and of the headers that it includes, and the folder `op_host` next
//! to the folder of the source. Output: declarations that CANN's build generates: element types
//! (`DTYPE_X`), layouts (`FORMAT_X`), tiling structures, and values of template parameters. Not
//! here: the compiler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::text::{closing, is_of_word, parts};

/// Element types of operator definitions, by their types in a kernel.
const TYPES: [(&str, &str); 14] = [
    ("DT_FLOAT", "float"),
    ("DT_FLOAT16", "half"),
    ("DT_BF16", "bfloat16_t"),
    ("DT_DOUBLE", "double"),
    ("DT_BOOL", "bool"),
    ("DT_INT8", "int8_t"),
    ("DT_UINT8", "uint8_t"),
    ("DT_INT16", "int16_t"),
    ("DT_UINT16", "uint16_t"),
    ("DT_INT32", "int32_t"),
    ("DT_UINT32", "uint32_t"),
    ("DT_INT64", "int64_t"),
    ("DT_UINT64", "uint64_t"),
    ("DT_COMPLEX64", "uint64_t"),
];

/// Declarations that precede a source.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Generated {
    pub(super) declarations: String,
    /// Names that nothing declares, with their assumed meaning.
    pub(super) notes: Vec<String>,
}

/// Returns the declarations that `texts` needs. `defined` holds the names of `-D` options.
pub(super) fn generate(source: &Path, texts: &[String], defined: &[String]) -> Generated {
    let host = host_texts(source);
    let mut generated = Generated::default();
    let tensors = tensors(&host);
    for (name, kind) in undefined(texts, defined) {
        let tensor = tensors.get(&name[kind.len()..]);
        let (value, is_known) = match (kind, tensor) {
            ("DTYPE_", Some(found)) => (type_of(found).unwrap_or("float"), type_of(found).is_some()),
            ("ORIG_DTYPE_", Some(found)) => (found.as_str(), true),
            ("DTYPE_", None) if name.contains("IND") || name.contains("IDX") => ("int32_t", false),
            ("DTYPE_", None) => ("float", false),
            ("ORIG_DTYPE_", None) => ("DT_FLOAT", false),
            _ => ("FORMAT_ND", true),
        };
        if !is_known {
            generated.notes.push(format!(
                "{name} is not defined: expected op_host next to the source, or --option -D{name}=…; {value} is \
                 assumed"
            ));
        }
        let _ = writeln!(generated.declarations, "#define {name} {value}");
    }
    structures(&host, texts, &mut generated.declarations);
    generated
}

fn type_of(element: &str) -> Option<&'static str> {
    TYPES.iter().find(|(name, _)| *name == element).map(|(_, kind)| *kind)
}

/// Reads `op_host` of the operator whose `op_kernel` holds the source.
fn host_texts(source: &Path) -> Vec<String> {
    let folder = source.ancestors().skip(1).take(2).find_map(|folder| {
        let host = folder.join("op_host");
        host.is_dir().then_some(host)
    });
    let mut texts = Vec::new();
    for folder in folder.iter().flat_map(|host| [host.clone(), host.join("op_tiling")]) {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let is_code = |path: &Path| path.extension().is_some_and(|end| end == "h" || end == "cpp");
        texts.extend(paths.iter().filter(|path| is_code(path)).flat_map(fs::read_to_string));
    }
    texts
}

/// Returns the first element type of each input and output, by upper-case name.
fn tensors(host: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for text in host {
        let starts = text.match_indices("this->Input(\"").chain(text.match_indices("this->Output(\""));
        for (at, start) in starts {
            let Some((name, rest)) = text[at + start.len()..].split_once('"') else { continue };
            let rest = rest.split("this->").next().unwrap_or(rest);
            let Some((_, list)) = rest.split_once(".DataType") else { continue };
            let element = words(list).find(|word| word.starts_with("DT_"));
            if let Some(element) = element {
                found.entry(name.to_uppercase()).or_insert_with(|| element.to_owned());
            }
        }
    }
    found
}

/// Lists names of generated macros that the texts use and do not define.
fn undefined<'a>(texts: &[String], defined: &[String]) -> BTreeMap<String, &'a str> {
    let mut names = BTreeMap::new();
    for text in texts {
        for word in words(text) {
            let kind = ["DTYPE_", "ORIG_DTYPE_", "FORMAT_"].into_iter().find(|kind| word.starts_with(kind));
            let is_format = ["FORMAT_ND", "FORMAT_NCHW", "FORMAT_NHWC", "FORMAT_FRACTAL_NZ"].contains(&word);
            let is_macro = word.chars().all(|letter| !letter.is_ascii_lowercase()) && !is_format;
            if let Some(kind) = kind.filter(|kind| is_macro && word.len() > kind.len()) {
                names.insert(word.to_owned(), kind);
            }
        }
    }
    let is_in = |text: &String, name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].trim_end();
            let after = text[at + name.len()..].chars().next();
            before.ends_with("define") && !after.is_some_and(is_of_word)
        })
    };
    names.retain(|name, _| !defined.contains(name) && !texts.iter().any(|text| is_in(text, name)));
    names
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_of_word(letter)).filter(|word| !word.is_empty())
}

/// Arguments of each use of a macro.
fn calls<'a>(text: &'a str, macro_name: &str) -> Vec<(usize, Vec<&'a str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(macro_name) {
        let is_whole = !text[..at].chars().next_back().is_some_and(is_of_word);
        let Some(rest) = text[at + macro_name.len()..].trim_start().strip_prefix('(') else { continue };
        if let Some(end) = closing(rest).filter(|_| is_whole) {
            found.push((at, parts(&rest[..end]).into_iter().map(str::trim).collect()));
        }
    }
    found
}

/// Declares tiling structures of the host's macros that the texts use and do not declare.
fn structures(host: &[String], texts: &[String], into: &mut String) {
    let uses = |name: &str| texts.iter().any(|text| words(text).any(|word| word == name));
    let declares = |name: &str| {
        texts.iter().any(|text| {
            let mut previous = "";
            words(text).any(|word| {
                let is_it = word == name && matches!(previous, "struct" | "class");
                previous = word;
                is_it
            })
        })
    };
    let operator =
        host.iter().flat_map(|text| calls(text, "OP_ADD")).find_map(|(_, name)| name.first().copied());
    let mut registered: Vec<Vec<&str>> = host
        .iter()
        .flat_map(|text| calls(text, "REGISTER_TILING_DATA_CLASS"))
        .map(|(_, arguments)| arguments)
        .filter(|arguments| arguments.len() == 2)
        .collect();
    // Structures of variants and nested structures are registered under other names.
    registered.sort_by_key(|arguments| Some(arguments[0]) != operator);
    let has_default = uses("REGISTER_TILING_DEFAULT");
    let mut declared = Vec::new();
    for text in host {
        for (at, arguments) in calls(text, "BEGIN_TILING_DATA_DEF") {
            let Some(&name) = arguments.first() else { continue };
            let end = text[at..].find("END_TILING_DATA_DEF").map_or(text.len(), |end| at + end);
            if !declares(name) && !declared.contains(&name) {
                let _ = writeln!(into, "struct {name} {{\n{}}};", fields(&text[at..end], host));
                declared.push(name);
            }
        }
    }
    let first = registered.iter().map(|arguments| arguments[1]).find(|name| declared.contains(name));
    if let Some(first) = first.filter(|_| !has_default) {
        let _ = writeln!(into, "using tiling_of_the_kernel = {first};");
    }
}

/// Returns the number that a constant of the host's code has.
fn constant<'a>(name: &'a str, host: &'a [String]) -> &'a str {
    let value = |text: &'a String| {
        text.match_indices(name).find_map(|(at, _)| {
            let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
            let rest = text[at + name.len()..].trim_start().strip_prefix('=')?;
            let value = rest.split(';').next()?.trim();
            (line.contains("const") && value.parse::<u64>().is_ok()).then_some(value)
        })
    };
    host.iter().find_map(value).unwrap_or(name)
}

fn fields(body: &str, host: &[String]) -> String {
    let mut all = Vec::new();
    for (at, arguments) in calls(body, "TILING_DATA_FIELD_DEF") {
        if let [kind, name] = arguments[..] {
            all.push((at, format!("    {kind} {name};\n")));
        }
    }
    for (at, arguments) in calls(body, "TILING_DATA_FIELD_DEF_ARR") {
        if let [kind, count, name] = arguments[..] {
            all.push((at, format!("    {kind} {name}[{}];\n", constant(count, host))));
        }
    }
    for (at, arguments) in calls(body, "TILING_DATA_FIELD_DEF_STRUCT") {
        if let [kind, name] = arguments[..] {
            all.push((at, format!("    {kind} {name};\n")));
        }
    }
    all.sort();
    all.into_iter().map(|(_, field)| field).collect()
}

/// Lists the template arguments for which CANN's build compiles a kernel template.
pub(super) fn instantiations(texts: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        for (_, selections) in calls(text, "ASCENDC_TPL_ARGS_SEL") {
            let lists = selections.iter().filter_map(|selection| values(selection));
            let product = lists.fold(vec![String::new()], |known, list| {
                let joined = |head: &String, value: &String| match head.as_str() {
                    "" => value.clone(),
                    head => format!("{head}, {value}"),
                };
                known.iter().flat_map(|head| list.iter().map(move |value| joined(head, value))).collect()
            });
            all.extend(product);
        }
    }
    all.retain(|arguments| !arguments.is_empty());
    all.sort();
    all.dedup();
    all
}

/// Returns the values of one parameter. A parameter that is no template parameter has none.
fn values(selection: &str) -> Option<Vec<String>> {
    let (name, rest) = selection.split_once('(')?;
    let arguments = parts(&rest[..closing(rest)?]);
    let arguments: Vec<&str> = arguments.into_iter().map(str::trim).collect();
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match (name.trim(), arguments.as_slice()) {
        ("ASCENDC_TPL_UINT_SEL", [_, "ASCENDC_TPL_UI_LIST", values @ ..])
        | ("ASCENDC_TPL_BOOL_SEL" | "ASCENDC_TPL_DTYPE_SEL" | "ASCENDC_TPL_FORMAT_SEL", [_, values @ ..]) => {
            Some(owned(values))
        }
        ("ASCENDC_TPL_UINT_SEL", [_, "ASCENDC_TPL_UI_RANGE", _, first, last]) => {
            let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
            Some((first..=last).map(|value| value.to_string()).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_code_declares_types_and_tiling_data() {
        let folder = tempfile::tempdir().expect("a folder");
        let host = folder.path().join("op_host");
        fs::create_dir(&host).expect("a folder");
        let definition = r#"this->Input("x").DataType({ge::DT_FLOAT16, ge::DT_FLOAT}).Format({ge::FORMAT_ND});
            this->Output("y").ParamType(REQUIRED).DataType({ge::DT_INT32, ge::DT_INT32});"#;
        fs::write(host.join("scale_def.cpp"), definition).expect("written");
        let tiling = "BEGIN_TILING_DATA_DEF(ScaleTiling)\nTILING_DATA_FIELD_DEF(uint32_t, count);\n\
                      TILING_DATA_FIELD_DEF_ARR(int64_t, 4, sizes);\nEND_TILING_DATA_DEF;\n\
                      REGISTER_TILING_DATA_CLASS(Scale, ScaleTiling)";
        fs::write(host.join("scale_tiling.h"), tiling).expect("written");
        let source = folder.path().join("op_kernel/scale.cpp");
        let text = "GlobalTensor<DTYPE_X> x; DTYPE_Y y; DTYPE_Z z; DTYPE_OWN own; GET_TILING_DATA(t, tiling);\n\
                    #define DTYPE_HERE int\nDTYPE_HERE here;";
        let generated = generate(&source, &[text.to_owned()], &["DTYPE_OWN".to_owned()]);
        assert_eq!(
            generated.declarations,
            "#define DTYPE_X half\n#define DTYPE_Y int32_t\n#define DTYPE_Z float\nstruct ScaleTiling {\n    \
             uint32_t count;\n    int64_t sizes[4];\n};\nusing tiling_of_the_kernel = ScaleTiling;\n"
        );
        assert!(matches!(&generated.notes[..], [note] if note.starts_with("DTYPE_Z is not defined")));
    }

    #[test]
    fn template_parameters_take_the_selected_values() {
        let text = "ASCENDC_TPL_SEL(ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_UINT_SEL(mode, ASCENDC_TPL_UI_LIST, 0, 2), \
                    ASCENDC_TPL_BOOL_SEL(is_fast, 0, 1)), ASCENDC_TPL_ARGS_SEL(ASCENDC_TPL_UINT_SEL(mode, \
                    ASCENDC_TPL_UI_RANGE, 1, 5, 6), ASCENDC_TPL_BOOL_SEL(is_fast, 1)));";
        assert_eq!(
            instantiations(&[text.to_owned()]),
            ["0, 0", "0, 1", "2, 0", "2, 1", "5, 1", "6, 1"].map(str::to_owned)
        );
    }
}
