//! Import graph of a crate. A re-export counts as an import of the defining file. Tests and `mod
//! a;` do not count, and macros are not expanded.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, words};

/// Module path from the crate root; empty for the root.
type Module = Vec<String>;

pub(crate) struct Imports {
    imports: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    /// Collects the imports of files below `folder`, which ends in `src/`.
    pub(crate) fn new(sources: &[Source], folder: &str) -> Self {
        let files: BTreeMap<Module, &Source> = sources
            .iter()
            .filter_map(|source| Some((module(source.path.strip_prefix(folder)?)?, source)))
            .collect();
        let mut paths = BTreeMap::new();
        let mut exports = BTreeMap::new();
        for (module, source) in &files {
            let named_paths = paths_of(source, module, &files);
            for path in named_paths.iter().filter(|path| path.is_export) {
                if let Some(name) = path.names.last() {
                    exports
                        .insert([module.as_slice(), std::slice::from_ref(name)].concat(), path.names.clone());
                }
            }
            paths.insert(module.clone(), named_paths);
        }
        let imports = paths.into_iter().map(|(module, paths)| {
            let homes = paths.into_iter().map(|path| home(path.names, &files, &exports));
            let others = homes.filter(|home| *home != module).collect();
            (module, others)
        });
        Self { imports: imports.collect() }
    }

    /// Lists forbidden imports between folders, and unused entries of `arrows`.
    pub(crate) fn wrong_arrows(&self, arrows: &[(&str, &[&str])]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut unused: BTreeSet<(&str, &str)> =
            arrows.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to))).collect();
        for (file, imports) in &self.imports {
            let Some(from) = file.first() else { continue };
            let Some((_, allowed)) = arrows.iter().find(|(folder, _)| folder == from) else {
                wrong.push(format!("`{from}` has no row in ARROWS: add its allowed imports"));
                continue;
            };
            for import in imports {
                let to = import.first().map_or("lib", String::as_str);
                unused.remove(&(from.as_str(), to));
                if to != from && !allowed.contains(&to) {
                    wrong.push(format!(
                        "{} imports {}: `{from}` may not import `{to}`",
                        name(file),
                        name(import)
                    ));
                }
            }
        }
        wrong.extend(
            unused.into_iter().map(|(from, to)| format!("`{from}` no longer imports `{to}`: remove it")),
        );
        wrong
    }

    /// Lists the sets of files that all reach each other.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&Module, BTreeSet<&Module>> =
            self.imports.keys().map(|file| (file, self.reach(file))).collect();
        let circle = |file: &Module| -> Vec<String> {
            let mutual =
                reach[file].iter().filter(|other| reach.get(**other).is_some_and(|back| back.contains(file)));
            mutual.map(|other| name(other)).collect()
        };
        let circles: BTreeSet<Vec<String>> =
            self.imports.keys().map(circle).filter(|circle| circle.len() > 1).collect();
        let mut circles: Vec<Vec<String>> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reach<'a>(&'a self, from: &Module) -> BTreeSet<&'a Module> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Module> = self.imports[from].iter().collect();
        while let Some(file) = open.pop() {
            if reached.insert(file) {
                open.extend(self.imports.get(file).into_iter().flatten());
            }
        }
        reached
    }
}

fn name(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

fn module(path: &str) -> Option<Module> {
    let path = path.strip_suffix(".rs")?;
    let mut module: Module = path.split('/').map(str::to_owned).collect();
    if module.iter().any(|part| part == "tests") {
        return None;
    }
    if module.last().is_some_and(|last| last == "mod") || module == ["lib"] {
        module.pop();
    }
    Some(module)
}

struct NamedPath {
    names: Vec<String>,
    is_export: bool,
}

/// Includes paths from `crate`, `super` or a child module.
fn paths_of(source: &Source, module: &Module, files: &BTreeMap<Module, &Source>) -> Vec<NamedPath> {
    let code = &source.code;
    let below = files.keys().filter(|file| file.len() == module.len() + 1 && file.starts_with(module));
    let roots = below.filter_map(|file| file.last().map(String::as_str)).chain(["crate", "super"]);
    let mut paths = Vec::new();
    for root in roots {
        for offset in words(code, root) {
            let is_head = !code[..offset].trim_end().ends_with("::")
                && code[offset + root.len()..].trim_start().starts_with("::");
            if !is_head || source.is_test(offset) {
                continue;
            }
            let line = code[..offset].rfind([';', '{', '}']).map_or(0, |end| end + 1);
            let statement = code[line..offset].trim_start();
            let is_export = statement.starts_with("pub") && statement.trim_end().ends_with("use");
            let mut written = Vec::new();
            read_tree(&code[offset..], &mut Vec::new(), &mut written);
            let inside = inline_modules(code, offset);
            for names in written {
                if let Some(names) = absolute(names, root, module, inside) {
                    paths.push(NamedPath { names, is_export });
                }
            }
        }
    }
    paths
}

fn read_tree(text: &str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let skipped = text.len() - text.trim_start().len();
    let rest = &text[skipped..];
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            inside = inside.trim_start().trim_start_matches(',').trim_start();
            if inside.is_empty() || inside.starts_with('}') {
                return text.len() - inside.len() + usize::from(!inside.is_empty());
            }
            let read = read_tree(inside, prefix, paths);
            inside = &inside[read.max(1)..];
        }
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    if end > 0 {
        prefix.push(rest[..end].to_owned());
    }
    let after = &rest[end..];
    let read = match after.trim_start().strip_prefix("::") {
        Some(next) if next.trim_start().starts_with(|c: char| c.is_alphanumeric() || "_{*".contains(c)) => {
            after.len() - next.len() + read_tree(next, prefix, paths)
        }
        _ => {
            paths.push(prefix.clone());
            0
        }
    };
    if end > 0 {
        prefix.pop();
    }
    skipped + end + read
}

/// Counts the inline modules around a byte.
fn inline_modules(code: &str, at: usize) -> usize {
    let opens = words(code, "mod").filter(|open| *open < at).filter(|open| {
        let rest = &code[*open..];
        let Some(brace) = rest.find(['{', ';']).filter(|end| rest[*end..].starts_with('{')) else {
            return false;
        };
        let mut depth = 0_usize;
        for byte in code[open + brace..at.max(open + brace)].bytes() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth == 0 {
                return false;
            }
        }
        depth > 0
    });
    opens.count()
}

/// `None` if the path stays in the file.
fn absolute(names: Vec<String>, root: &str, module: &Module, inside: usize) -> Option<Vec<String>> {
    let mut names: Vec<String> = names.into_iter().filter(|name| name != "self").collect();
    match root {
        "crate" => Some(names.split_off(1)),
        "super" => {
            let supers = names.iter().take_while(|name| *name == "super").count();
            let up = supers.checked_sub(inside).filter(|up| *up > 0)?;
            let mut path = module.clone();
            path.truncate(module.len().checked_sub(up)?);
            path.extend(names.split_off(supers));
            Some(path)
        }
        _ => Some([module.as_slice(), &names].concat()),
    }
}

fn home(
    mut path: Vec<String>,
    files: &BTreeMap<Module, &Source>,
    exports: &BTreeMap<Vec<String>, Vec<String>>,
) -> Module {
    for _ in 0..8 {
        let known = (0..=path.len()).rev().find(|len| files.contains_key(&path[..*len])).unwrap_or(0);
        let exported = path.get(..=known).and_then(|item| exports.get(item));
        match exported {
            Some(target) => path = [target.as_slice(), &path[known + 1..]].concat(),
            None => {
                path.truncate(known);
                return path;
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(&format!("src/{path}"), text)).collect();
        Imports::new(&sources, "src/")
    }

    #[test]
    fn an_import_counts_where_the_item_lives() {
        let files = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a/mod.rs", "mod inner;\npub(crate) use inner::{Item, Other};"),
            ("a/inner.rs", "pub(crate) struct Item;\nuse crate::b::Thing;"),
            ("b.rs", "use crate::a::{Item, inner::Other};"),
        ];
        let imports = imports(&files);
        assert_eq!(imports.circles(), [["a::inner", "b"]]);
        assert!(imports.wrong_arrows(&[("a", &["b"]), ("b", &["a"])]).is_empty());
        assert_eq!(
            imports.wrong_arrows(&[("a", &["b"]), ("b", &["c"])]),
            ["b imports a::inner: `b` may not import `a`", "`b` no longer imports `c`: remove it"]
        );
    }

    #[test]
    fn what_super_means_follows_from_where_it_stands() {
        let files = [
            ("lib.rs", ""),
            ("a/mod.rs", ""),
            ("a/one.rs", "mod inline {\n    use super::*;\n    use super::super::two::X;\n}"),
            ("a/two.rs", "use super::one::{self, Y};\n#[cfg(test)]\nmod tests {\n    use crate::b::Z;\n}"),
            ("b.rs", "use crate::a::two::X;\n// crate::a::one::Y"),
        ];
        let imports = imports(&files);
        assert_eq!(imports.circles(), [["a::one", "a::two"]]);
        assert!(imports.wrong_arrows(&[("a", &[]), ("b", &["a"])]).is_empty());
    }
}
