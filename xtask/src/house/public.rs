//! The public items of the library that `cargo doc` shows.
//!
//! Rules:
//! - A module is shown if it is `pub` and all modules around it are shown.
//! - An item is shown if it is `pub` in a shown module, or if a `pub use` of a shown module names
//!   the item. A `pub use` of a hidden module shows the content of that module.
//! - A method or constant is shown if it is `pub` in an inherent impl of a shown type.
//! - `#[doc(hidden)]` hides a module, item, `pub use`, impl or method. An item of a hidden module
//!   is shown if a shown module re-exports the item.
//! - Code for disabled default features (`#[cfg(not(feature = …))]`) does not count.
//!
//! An entry type is a shown type with a shown function without `self`. Macros are not expanded, so
//! items that a macro defines do not count. Glob imports are not followed. Modules, fields,
//! variants and trait items do not count.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

use super::source::RustFile;

/// Most imports that lead from a name to its item.
const LONGEST_CHAIN: usize = 8;

type ModulePath = Vec<String>;

#[derive(Debug)]
pub(crate) struct ShownItem {
    /// Path of the defined item. Methods have the path of the type.
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) kind: ShownKind,
    /// True if the doc comment of the item or of a `pub use` has a compiled example.
    pub(crate) has_example: bool,
    /// True for a type with a shown function without `self`.
    pub(crate) is_entry: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownKind {
    Type,
    Function,
    Constant,
    Method,
}

#[derive(Default)]
struct PublicModule {
    children: BTreeMap<String, Child>,
    items: BTreeMap<String, Declared>,
    imports: Vec<Import>,
    methods: Vec<Methods>,
}

struct Child {
    seen: ItemVisibility,
    is_public: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemVisibility {
    Shown,
    Hidden,
}

struct Declared {
    seen: ItemVisibility,
    kind: ShownKind,
    has_example: bool,
}

struct Import {
    name: String,
    path: ModulePath,
    export: ExportKind,
}

#[derive(Clone, Copy)]
struct ExportKind {
    seen: ItemVisibility,
    has_example: bool,
}

/// The visible part of an inherent impl.
struct Methods {
    of: ModulePath,
    shown: Vec<Method>,
}

struct Method {
    name: String,
    has_example: bool,
    needs_value: bool,
}

/// Results of a search. A module and an item may have the same name.
#[derive(Default)]
struct Targets {
    module: Option<ModulePath>,
    item: Option<(ModulePath, String)>,
}

/// Returns the shown items of the crate with files below `folder`. The folder ends in `src/`.
pub(crate) fn shown(sources: &[RustFile], folder: &str) -> Result<Vec<ShownItem>> {
    let mut library = LibraryModules::default();
    for source in sources {
        let Some(path) = source.path.strip_prefix(folder).and_then(module_path) else { continue };
        let file: syn::File = syn::parse2(source.shipped.clone()).with_context(|| source.path.clone())?;
        library.read(path, &file.items);
    }
    Ok(library.shown())
}

fn module_path(file: &str) -> Option<ModulePath> {
    let mut path: ModulePath = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] {
        path.pop();
    }
    Some(path)
}

#[derive(Default)]
struct LibraryModules {
    modules: BTreeMap<ModulePath, PublicModule>,
}

impl LibraryModules {
    fn read(&mut self, path: ModulePath, items: &[syn::Item]) {
        let mut module = PublicModule::default();
        for item in items {
            match item {
                syn::Item::Mod(inner) if is_built(&inner.attrs) => {
                    let name = inner.ident.to_string();
                    if let Some((_, items)) = &inner.content {
                        let path = [path.as_slice(), std::slice::from_ref(&name)].concat();
                        self.read(path, items);
                    }
                    let child = Child {
                        seen: seen(&inner.vis, &inner.attrs),
                        is_public: matches!(inner.vis, syn::Visibility::Public(_)),
                    };
                    module.children.insert(name, child);
                }
                syn::Item::Use(import) if is_built(&import.attrs) => {
                    let export = ExportKind {
                        seen: seen(&import.vis, &import.attrs),
                        has_example: has_example(&import.attrs),
                    };
                    read_use(&import.tree, &mut Vec::new(), export, &mut module.imports);
                }
                syn::Item::Impl(block) if is_built(&block.attrs) => module.methods.extend(methods(block)),
                other => {
                    if let Some((name, declared)) = declared(other) {
                        module.items.insert(name, declared);
                    }
                }
            }
        }
        self.modules.insert(path, module);
    }

    fn shown(&self) -> Vec<ShownItem> {
        let mut items: BTreeMap<(ModulePath, String), ShownItem> = BTreeMap::new();
        let (mut open, mut visited) = (vec![ModulePath::new()], BTreeSet::new());
        while let Some(path) = open.pop() {
            let Some(module) = self.modules.get(&path) else { continue };
            if !visited.insert(path.clone()) {
                continue;
            }
            let children = module.children.iter().filter(|(_, child)| child.seen == ItemVisibility::Shown);
            open.extend(children.map(|(name, _)| [path.as_slice(), std::slice::from_ref(name)].concat()));
            let own = module.items.iter().filter(|(_, item)| item.seen == ItemVisibility::Shown);
            let own = own
                .map(|(name, _)| (Targets { module: None, item: Some((path.clone(), name.clone())) }, false));
            let imported = module.imports.iter().filter(|import| import.export.seen == ItemVisibility::Shown);
            let imported = imported
                .map(|import| (self.resolve(&path, &import.path, LONGEST_CHAIN), import.export.has_example));
            for (target, has_example) in own.chain(imported) {
                open.extend(target.module);
                if let Some((path, name)) = target.item {
                    let item = self.item(&path, &name);
                    items.entry((path, name)).or_insert(item).has_example |= has_example;
                }
            }
        }
        let methods = self.add_methods(&mut items);
        items.into_values().chain(methods).collect()
    }

    fn item(&self, path: &[String], name: &str) -> ShownItem {
        let declared = &self.modules[path].items[name];
        ShownItem {
            owner: [path, &[name.to_owned()]].concat().join("::"),
            name: name.to_owned(),
            kind: declared.kind,
            has_example: declared.has_example,
            is_entry: false,
        }
    }

    /// Returns the methods of the shown types, and marks the types that have a constructor.
    fn add_methods(&self, items: &mut BTreeMap<(ModulePath, String), ShownItem>) -> Vec<ShownItem> {
        let mut shown = Vec::new();
        for (path, module) in &self.modules {
            for block in &module.methods {
                let home = self.resolve(path, &block.of, LONGEST_CHAIN).item;
                let Some(owner) = home.and_then(|home| items.get_mut(&home)) else { continue };
                owner.is_entry |= block.shown.iter().any(|method| !method.needs_value);
                shown.extend(block.shown.iter().map(|method| ShownItem {
                    owner: owner.owner.clone(),
                    name: method.name.clone(),
                    kind: ShownKind::Method,
                    has_example: method.has_example,
                    is_entry: false,
                }));
            }
        }
        shown
    }

    /// Follows a path from a module, through imports. Finds nothing of another crate.
    fn resolve(&self, from: &[String], path: &[String], chain: usize) -> Targets {
        let mut targets = Targets { module: Some(from.to_vec()), item: None };
        for (index, name) in path.iter().enumerate() {
            let Some(mut at) = targets.module else { return Targets::default() };
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                name => {
                    targets = self.named(&at, name, chain);
                    let is_last = index + 1 == path.len();
                    if is_last && targets.item.is_some() && !self.is_public(&at, name) {
                        targets.module = None;
                    }
                    continue;
                }
            }
            targets = Targets { module: Some(at), item: None };
        }
        targets
    }

    fn named(&self, module_path: &[String], name: &str, chain: usize) -> Targets {
        let (Some(module), Some(chain)) = (self.modules.get(module_path), chain.checked_sub(1)) else {
            return Targets::default();
        };
        let mut targets = Targets::default();
        for import in module.imports.iter().filter(|import| import.name == name) {
            let target = self.resolve(module_path, &import.path, chain);
            targets =
                Targets { module: targets.module.or(target.module), item: targets.item.or(target.item) };
        }
        if module.items.contains_key(name) {
            targets.item = Some((module_path.to_vec(), name.to_owned()));
        }
        if module.children.contains_key(name) {
            targets.module = Some([module_path, &[name.to_owned()]].concat());
        }
        targets
    }

    /// Returns false for a private module.
    fn is_public(&self, at: &[String], name: &str) -> bool {
        let child = self.modules.get(at).and_then(|module| module.children.get(name));
        child.is_none_or(|child| child.is_public)
    }
}

fn read_use(tree: &syn::UseTree, prefix: &mut ModulePath, export: ExportKind, imports: &mut Vec<Import>) {
    let mut add = |prefix: &ModulePath, last: Option<String>, name: String| {
        let path = prefix.iter().cloned().chain(last).collect();
        imports.push(Import { name, path, export });
    };
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            read_use(&path.tree, prefix, export, imports);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|item| read_use(item, prefix, export, imports));
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            add(prefix, None, prefix.last().cloned().unwrap_or_default());
        }
        syn::UseTree::Name(name) => add(prefix, Some(name.ident.to_string()), name.ident.to_string()),
        syn::UseTree::Rename(name) => add(prefix, Some(name.ident.to_string()), name.rename.to_string()),
        syn::UseTree::Glob(_) => {}
    }
}

fn methods(block: &syn::ItemImpl) -> Option<Methods> {
    let syn::Type::Path(of) = block.self_ty.as_ref() else { return None };
    if block.trait_.is_some() || is_hidden(&block.attrs) {
        return None;
    }
    let shown = block.items.iter().filter_map(|item| {
        let (name, attributes, visibility, needs_value) = match item {
            syn::ImplItem::Fn(item) => {
                (&item.sig.ident, &item.attrs, &item.vis, item.sig.receiver().is_some())
            }
            syn::ImplItem::Const(item) => (&item.ident, &item.attrs, &item.vis, true),
            _ => return None,
        };
        let is_shown = seen(visibility, attributes) == ItemVisibility::Shown && is_built(attributes);
        is_shown.then(|| Method { name: name.to_string(), has_example: has_example(attributes), needs_value })
    });
    let of = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    Some(Methods { of, shown: shown.collect() })
}

fn declared(item: &syn::Item) -> Option<(String, Declared)> {
    let (name, visibility, attributes, kind) = match item {
        syn::Item::Struct(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Type),
        syn::Item::Enum(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Type),
        syn::Item::Union(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Type),
        syn::Item::Trait(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Type),
        syn::Item::Type(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Type),
        syn::Item::Fn(item) => (&item.sig.ident, &item.vis, &item.attrs, ShownKind::Function),
        syn::Item::Const(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Constant),
        syn::Item::Static(item) => (&item.ident, &item.vis, &item.attrs, ShownKind::Constant),
        _ => return None,
    };
    let declared =
        Declared { seen: seen(visibility, attributes), kind, has_example: has_example(attributes) };
    is_built(attributes).then(|| (name.to_string(), declared))
}

fn seen(visibility: &syn::Visibility, attributes: &[syn::Attribute]) -> ItemVisibility {
    let is_public = matches!(visibility, syn::Visibility::Public(_));
    if is_public && !is_hidden(attributes) { ItemVisibility::Shown } else { ItemVisibility::Hidden }
}

fn is_hidden(attributes: &[syn::Attribute]) -> bool {
    arguments(attributes, "doc").any(|arguments| arguments == "hidden")
}

/// Returns false for a stand-in of a default feature.
fn is_built(attributes: &[syn::Attribute]) -> bool {
    !arguments(attributes, "cfg").any(|condition| condition.contains("not (feature"))
}

/// Returns the tokens in the parentheses of each attribute of this name.
fn arguments<'a>(attributes: &'a [syn::Attribute], name: &'a str) -> impl Iterator<Item = String> + 'a {
    let named = attributes.iter().filter(move |attribute| attribute.path().is_ident(name));
    named.filter_map(|attribute| match &attribute.meta {
        syn::Meta::List(list) => Some(list.tokens.to_string()),
        _ => None,
    })
}

/// Returns true if a doc comment opens a fence of Rust code that is compiled.
fn has_example(attributes: &[syn::Attribute]) -> bool {
    let mut is_inside = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let syn::Meta::NameValue(value) = &attribute.meta else { continue };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(line), .. }) = &value.value else { continue };
        for line in line.value().lines() {
            let Some(language) = line.trim().strip_prefix("```") else { continue };
            is_inside = !is_inside;
            if is_inside && ["", "rust", "no_run"].contains(&language) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<RustFile> = files
            .iter()
            .map(|(path, text)| RustFile {
                path: format!("src/{path}"),
                package: String::new(),
                shipped: text.parse().expect("Rust"),
                whole: text.parse().expect("Rust"),
                lines: 0,
            })
            .collect();
        let shown = shown(&sources, "src/").expect("Rust");
        let mark = |item: &ShownItem| match (item.is_entry, item.has_example) {
            (true, true) => " entry with example",
            (true, false) => " entry",
            (false, true) => " example",
            (false, false) => "",
        };
        let place = |item: &ShownItem| match item.kind {
            ShownKind::Method => format!("{}::{}", item.owner, item.name),
            _ => item.owner.clone(),
        };
        shown.iter().map(|item| format!("{}{}", place(item), mark(item))).collect()
    }

    #[test]
    fn an_item_counts_where_a_shown_module_names_it() {
        let files = [
            (
                "lib.rs",
                "#[doc(hidden)] pub mod inner;\npub mod open;\n#[doc(hidden)] pub mod closed;\npub use closed as again;\nmod one;\npub use one::one;\n\
                 pub use inner::deep::{Kept, fine as renamed};\n#[doc(hidden)] pub use inner::Gone;",
            ),
            ("inner/mod.rs", "pub mod deep;\npub struct Gone;\nimpl Gone { pub fn new() {} }"),
            (
                "inner/deep.rs",
                "/// ```\n/// ```\npub struct Kept;\nimpl Kept { pub fn new() {} fn own() {} #[doc(hidden)] pub fn no() {} }\n\
                 pub fn fine() {}\npub fn other() {}",
            ),
            (
                "open.rs",
                "pub enum Choice {}\n#[doc(hidden)] pub const NO: u8 = 0;\n#[doc(hidden)] impl Choice { pub fn no() {} }\n\
                 #[cfg(not(feature = \"x\"))] pub fn absent() {}\nuse crate::inner::deep::Kept as K;\n\
                 impl K { /// ```text\n/// ```\npub fn far(&self) {} }",
            ),
            ("one.rs", "pub fn one() {}\npub fn unnamed() {}"),
            ("closed.rs", "pub static SHOWN: u8 = 0;"),
        ];
        assert_eq!(
            names(&files),
            [
                "closed::SHOWN",
                "inner::deep::Kept entry with example",
                "inner::deep::fine",
                "one::one",
                "open::Choice",
                "inner::deep::Kept::new",
                "inner::deep::Kept::far",
            ]
        );
    }
}
