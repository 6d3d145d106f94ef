//! Counts the code and lists places to improve.
//!
//! Nothing is judged. Unless a heading says otherwise, only shipped code counts: `src/` and
//! `build.rs` without tests. Macros are not expanded, and any matching word is a use.

pub(crate) mod figures;
mod public;
pub(crate) mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use syn::visit::{self, Visit};

use crate::built::cargo;
use crate::project;
use crate::project::imports::Imports;
use crate::project::source::{Source, is_word};
use public::{ShownItem, ShownKind};
use source::RustFile;

const LONG_FUNCTION: usize = 70;
const SPREAD: usize = 3;
const LIBRARY: &str = "src/";
const CIRCLES: [&str; 3] = ["src/", "emulator/src/", "emulator/operators/src/"];

pub(crate) fn count() -> Result<String> {
    let root = project::root();
    let sources = source::read(&root)?;
    let items = Items::of(&sources)?;
    let mut text = lines(&sources);
    text.push_str(&items.type_names());
    text.push_str(&items.long_functions());
    text.push_str(&items.tuple_parameters());
    text.push_str(&PublicApi::of(&sources)?.text());
    text.push_str(&items.public(&sources));
    text.push_str(&items.spread());
    for (folder, circles) in CIRCLES.iter().zip(circles(&root)?) {
        let sizes: Vec<String> = circles.iter().map(|circle| circle.len().to_string()).collect();
        let _ = writeln!(
            text,
            "\n{folder}: {} import cycles, with these numbers of files: {}",
            sizes.len(),
            sizes.join(", ")
        );
        if let Some(largest) = circles.first() {
            let _ = writeln!(text, "  {}", largest.join(" "));
        }
    }
    let packages = packages(&root)?;
    let _ = write!(text, "\npackages of the library, `cargo {}`: {packages}", TREE.join(" "));
    Ok(text)
}

fn circles(root: &Path) -> Result<[Vec<Vec<String>>; CIRCLES.len()]> {
    let files = project::read(root)?;
    Ok(CIRCLES.map(|folder| Imports::new(&files, folder).circles()))
}

/// Dependencies without features, queried offline.
const TREE: [&str; 10] = [
    "tree",
    "-e",
    "normal",
    "--no-default-features",
    "--locked",
    "--offline",
    "--prefix",
    "none",
    "-p",
    "ascend-tp",
];

/// Includes the library itself.
fn packages(root: &Path) -> Result<usize> {
    let output = cargo().args(TREE).current_dir(root).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let names: BTreeSet<&str> = lines.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Ok(names.len())
}

/// Counts lines of shipped code, other code, and in total. The root package is `.`.
fn lines_by_package(sources: &[RustFile]) -> BTreeMap<&str, [usize; 3]> {
    let mut packages: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for source in sources {
        let shipped = source::code_lines(&source.shipped).len();
        let all_code = source::code_lines(&source.whole).len();
        let package = if source.package.is_empty() { "." } else { &source.package };
        let found = [shipped, all_code - shipped, source.lines];
        packages.entry(package).or_default().iter_mut().zip(found).for_each(|(sum, count)| *sum += count);
    }
    packages
}

fn lines(sources: &[RustFile]) -> String {
    let packages = lines_by_package(sources);
    let mut text = format!(
        "{:<20}{:>9}{:>26}{:>11}\n",
        "lines of Rust", "code", "tests, examples, benches", "all lines"
    );
    let mut together = [0; 3];
    for (package, row) in &packages {
        let _ = writeln!(text, "{package:<20}{:>9}{:>26}{:>11}", row[0], row[1], row[2]);
        together.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
    }
    let _ = writeln!(text, "{:<20}{:>9}{:>26}{:>11}", "total", together[0], together[1], together[2]);
    text
}

fn list(heading: &str, entries: &[String]) -> String {
    let mut text = format!("\n{heading}\n");
    for entry in entries {
        let _ = writeln!(text, "  {entry}");
    }
    text
}

struct PublicItem<'a> {
    name: String,
    file: &'a str,
}

/// Lists public items that other files, documents and public signatures do not name.
pub(crate) fn unused_items(files: &[Source]) -> Result<Vec<String>> {
    let sources = source::read(&project::root())?;
    let items = Items::of(&sources)?;
    let uses = Uses::of(&sources);
    let documents = files.iter().filter(|document| document.path.ends_with(".md"));
    // Odd parts between backticks are code.
    let code = documents.flat_map(|document| document.text.split('`').skip(1).step_by(2));
    let documented: BTreeSet<&str> = code.flat_map(|code| code.split(|c: char| !is_word(c))).collect();
    let unused = items.public.iter().filter(|item| {
        uses.of_item(item) == ItemUse::Nowhere
            && !documented.contains(item.name.as_str())
            && !items.is_in_signature(item)
    });
    Ok(unused
        .map(|item| format!("{}: public item `{}` is not used elsewhere: remove `pub`", item.file, item.name))
        .collect())
}

struct Uses<'a> {
    shipped: BTreeMap<String, BTreeSet<&'a str>>,
    whole: BTreeMap<String, BTreeSet<&'a str>>,
}

#[derive(PartialEq, Eq)]
enum ItemUse {
    Shipped,
    TestsOnly,
    Nowhere,
}

impl<'a> Uses<'a> {
    fn of(sources: &'a [RustFile]) -> Self {
        let mut uses = Self { shipped: BTreeMap::new(), whole: BTreeMap::new() };
        for source in sources {
            for (tokens, files) in [(&source.shipped, &mut uses.shipped), (&source.whole, &mut uses.whole)] {
                for word in source::words(tokens) {
                    files.entry(word).or_default().insert(source.path.as_str());
                }
            }
        }
        uses
    }

    fn of_item(&self, item: &PublicItem<'_>) -> ItemUse {
        let elsewhere = |files: &BTreeMap<String, BTreeSet<&str>>| {
            files.get(&item.name).is_some_and(|files| files.iter().any(|file| *file != item.file))
        };
        if elsewhere(&self.shipped) {
            ItemUse::Shipped
        } else if elsewhere(&self.whole) {
            ItemUse::TestsOnly
        } else {
            ItemUse::Nowhere
        }
    }
}

/// The items that `cargo doc` shows, see [`public`].
struct PublicApi(Vec<ShownItem>);

impl PublicApi {
    fn of(sources: &[RustFile]) -> Result<Self> {
        public::shown(sources, LIBRARY).map(Self)
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn entries(&self) -> usize {
        self.0.iter().filter(|item| item.is_entry).count()
    }

    fn entries_with_example(&self) -> usize {
        self.0.iter().filter(|item| item.is_entry && item.has_example).count()
    }

    fn text(&self) -> String {
        let heading = format!(
            "{} public items of {LIBRARY} that `cargo doc` shows: {} names, {} methods. {} of {} entry types have an \
             example",
            self.count(),
            self.0.iter().filter(|item| item.kind != ShownKind::Method).count(),
            self.0.iter().filter(|item| item.kind == ShownKind::Method).count(),
            self.entries_with_example(),
            self.entries(),
        );
        let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for item in &self.0 {
            let methods = by_name.entry(&item.owner).or_default();
            if item.kind == ShownKind::Method {
                methods.push(&item.name);
            }
        }
        let without =
            |owner: &str| self.0.iter().any(|item| item.owner == owner && item.is_entry && !item.has_example);
        let entries: Vec<String> = by_name
            .iter()
            .map(|(owner, methods)| {
                let mark = if without(owner) { " (no example)" } else { "" };
                format!("{owner}{mark}: {}", methods.join(" "))
            })
            .collect();
        list(&heading, &entries)
    }
}

#[derive(Default)]
struct Items<'a> {
    of: Option<&'a RustFile>,
    modules: Vec<String>,
    types: BTreeMap<String, BTreeSet<String>>,
    /// Types that other crates or folders can name.
    public_types: BTreeMap<String, BTreeSet<String>>,
    long: Vec<(usize, String, &'a str)>,
    /// Functions with a parameter that is a tuple or an array of tuples.
    tupled: Vec<(String, &'a str)>,
    public: Vec<PublicItem<'a>>,
    /// Types with the name in public signatures or trait methods; for functions and constants their
    /// own name.
    signatures: BTreeMap<(&'a str, String), BTreeSet<String>>,
    blocks_of: Vec<String>,
    is_in_trait: bool,
    all_reduces: usize,
    /// Files with inherent impls, one entry per block.
    blocks: BTreeMap<(&'a str, String), Vec<&'a str>>,
}

impl<'a> Items<'a> {
    fn of(sources: &'a [RustFile]) -> Result<Self> {
        let mut items = Self::default();
        for source in sources {
            let file = syn::parse2(source.shipped.clone()).with_context(|| source.path.clone())?;
            items.of = Some(source);
            items.visit_file(&file);
        }
        Ok(items)
    }

    fn path(&self) -> &str {
        self.of.map_or("", |source| &source.path)
    }

    fn is_in_signature(&self, item: &PublicItem<'_>) -> bool {
        let owners = self.signatures.get(&(item.file, item.name.clone()));
        owners.is_some_and(|owners| owners.iter().any(|owner| *owner != item.name))
    }

    fn type_names(&self) -> String {
        let mut several: Vec<(&String, usize)> = self
            .types
            .iter()
            .map(|(name, places)| (name, places.len()))
            .filter(|(_, count)| *count > 1)
            .collect();
        several.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let named: Vec<String> = several.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let lines: Vec<String> = named.chunks(10).map(|names| names.join(", ")).collect();
        list(&format!("{} type names with two or more types", several.len()), &lines)
    }

    fn long_functions(&self) -> String {
        let mut long = self.long.clone();
        long.sort_by_key(|(lines, ..)| std::cmp::Reverse(*lines));
        let entries: Vec<String> =
            long.iter().map(|(lines, name, file)| format!("{lines:>4} {name} ({file})")).collect();
        list(&format!("{} functions of more than {LONG_FUNCTION} lines", entries.len()), &entries)
    }

    fn tuple_parameters(&self) -> String {
        let entries: Vec<String> =
            self.tupled.iter().map(|(name, file)| format!("{name} ({file})")).collect();
        list(&format!("{} functions with tuple parameters", entries.len()), &entries)
    }

    /// Returns the numbers of public library items, unused ones, and those for tests only.
    fn public_uses(&self, uses: &Uses<'_>) -> (usize, Vec<String>, usize) {
        let (mut unused, mut for_tests, mut count) = (Vec::new(), 0, 0);
        for item in self.public.iter().filter(|item| item.file.starts_with(LIBRARY)) {
            count += 1;
            match uses.of_item(item) {
                ItemUse::Shipped => {}
                ItemUse::TestsOnly => for_tests += 1,
                ItemUse::Nowhere => unused.push(format!("{} ({})", item.name, item.file)),
            }
        }
        (count, unused, for_tests)
    }

    fn public(&self, sources: &[RustFile]) -> String {
        let (count, unused, for_tests) = self.public_uses(&Uses::of(sources));
        let heading = format!(
            "{count} `pub` items of {LIBRARY}, with those that `cargo doc` hides. By word search, {} are used in no other \
             file, and {for_tests} only in tests, examples and benches. Used in no other file:",
            unused.len()
        );
        list(&heading, &unused)
    }

    fn spread(&self) -> String {
        let mut spread: Vec<(usize, usize, String)> = Vec::new();
        for ((package, name), blocks) in &self.blocks {
            let files: BTreeSet<&&str> = blocks.iter().collect();
            let package = if package.is_empty() { "." } else { package };
            spread.push((files.len(), blocks.len(), format!("{name} ({package})")));
        }
        spread.retain(|(files, ..)| *files > SPREAD);
        spread.sort_by_key(|(files, blocks, _)| std::cmp::Reverse((*files, *blocks)));
        let entries: Vec<String> = spread
            .iter()
            .map(|(files, blocks, name)| format!("{name}: {blocks} blocks in {files} files"))
            .collect();
        list(&format!("{} types with methods in more than {SPREAD} files", entries.len()), &entries)
    }

    fn declare_type(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        let place = format!("{} {}", self.path(), self.modules.join("::"));
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.public_types.entry(name.to_string()).or_default().insert(place.clone());
        }
        self.types.entry(name.to_string()).or_default().insert(place);
    }

    fn declare(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if let (syn::Visibility::Public(_), Some(source)) = (visibility, self.of) {
            self.public.push(PublicItem { name: name.to_string(), file: &source.path });
        }
    }

    /// In an impl block, the owner is the block's type.
    fn sign(&mut self, name: &syn::Ident, names: impl FnOnce(&mut NameCollector)) {
        let mut found = NameCollector::default();
        names(&mut found);
        let owner = self.blocks_of.last().cloned().unwrap_or_else(|| name.to_string());
        if let Some(source) = self.of {
            for name in found.0 {
                self.signatures.entry((&source.path, name)).or_default().insert(owner.clone());
            }
        }
    }

    fn note_tuples(&mut self, signature: &syn::Signature) {
        let mut types = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(parameter) => Some(&*parameter.ty),
            syn::FnArg::Receiver(_) => None,
        });
        if let Some(source) = self.of.filter(|_| types.any(has_tuple)) {
            self.tupled.push((signature.ident.to_string(), &source.path));
        }
    }

    fn measure(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let lines = body.brace_token.span.close().end().line + 1 - signature.fn_token.span.start().line;
        if let Some(source) = self.of.filter(|_| lines > LONG_FUNCTION) {
            self.long.push((lines, signature.ident.to_string(), &source.path));
        }
    }
}

#[derive(Default)]
struct NameCollector(BTreeSet<String>);

impl<'ast> Visit<'ast> for NameCollector {
    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        self.0.insert(name.to_string());
    }
}

/// Returns true for a tuple, and for a reference to a tuple or an array of tuples.
fn has_tuple(of: &syn::Type) -> bool {
    match of {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Array(array) => has_tuple(&array.elem),
        syn::Type::Reference(reference) => has_tuple(&reference.elem),
        syn::Type::Paren(inner) => has_tuple(&inner.elem),
        syn::Type::Group(inner) => has_tuple(&inner.elem),
        _ => false,
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

macro_rules! visit_types {
    ($($method:ident $item:ident |$names:ident, $of:ident| $see:expr;)*) => { $(
        fn $method(&mut self, $of: &'ast syn::$item) {
            self.declare_type(&$of.vis, &$of.ident);
            self.declare(&$of.vis, &$of.ident);
            if is_public(&$of.vis) {
                self.sign(&$of.ident, |$names| $see);
            }
            visit::$method(self, $of);
        }
    )* };
}

macro_rules! visit_values {
    ($($method:ident $item:ident |$names:ident, $of:ident| $see:expr;)*) => { $(
        fn $method(&mut self, $of: &'ast syn::$item) {
            self.declare(&$of.vis, &$of.ident);
            if is_public(&$of.vis) {
                self.sign(&$of.ident, |$names| $see);
            }
            visit::$method(self, $of);
        }
    )* };
}

fn see_fields(names: &mut NameCollector, fields: &syn::Fields) {
    fields.iter().filter(|field| is_public(&field.vis)).for_each(|field| names.visit_type(&field.ty));
}

impl<'ast> Visit<'ast> for Items<'_> {
    visit_types! {
        visit_item_struct ItemStruct |names, item| see_fields(names, &item.fields);
        visit_item_union ItemUnion |names, item| names.visit_fields_named(&item.fields);
        visit_item_trait ItemTrait |names, item| item.items.iter().for_each(|item| names.visit_trait_item(item));
        visit_item_type ItemType |names, item| names.visit_type(&item.ty);
    }

    visit_values! {
        visit_item_const ItemConst |names, item| names.visit_type(&item.ty);
        visit_item_static ItemStatic |names, item| names.visit_type(&item.ty);
        visit_impl_item_const ImplItemConst |names, item| names.visit_type(&item.ty);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.declare_type(&item.vis, &item.ident);
        self.declare(&item.vis, &item.ident);
        self.all_reduces += usize::from(item.variants.iter().any(|variant| variant.ident == "AllReduce"));
        if is_public(&item.vis) {
            let fields = item.variants.iter().flat_map(|variant| &variant.fields);
            self.sign(&item.ident, |names| fields.for_each(|field| names.visit_type(&field.ty)));
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.declare(&item.vis, &item.sig.ident);
        if is_public(&item.vis) {
            self.sign(&item.sig.ident, |names| visit::visit_signature(names, &item.sig));
        }
        self.note_tuples(&item.sig);
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.declare(&item.vis, &item.sig.ident);
        if is_public(&item.vis) || self.is_in_trait {
            self.sign(&item.sig.ident, |names| visit::visit_signature(names, &item.sig));
        }
        self.note_tuples(&item.sig);
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_impl_item_type(&mut self, item: &'ast syn::ImplItemType) {
        self.sign(&item.ident, |names| names.visit_type(&item.ty));
        visit::visit_impl_item_type(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.note_tuples(&item.sig);
        if let Some(body) = &item.default {
            self.measure(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.modules.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.modules.pop();
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match item.self_ty.as_ref() {
            syn::Type::Path(of) => of.path.segments.last().map(|name| name.ident.to_string()),
            _ => None,
        };
        if let (None, Some(name), Some(source)) = (&item.trait_, &of, self.of) {
            self.blocks.entry((&source.package, name.clone())).or_default().push(&source.path);
        }
        self.blocks_of.push(of.unwrap_or_default());
        let outside = std::mem::replace(&mut self.is_in_trait, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.is_in_trait = outside;
        self.blocks_of.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allowed duplicates of public type names: names used with their module (`error::Error`), and
    /// stand-ins for disabled features. Do not add entries.
    const SHARED: [(&str, usize); 6] = [
        ("ChatTemplate", 2),
        ("Checkpoint", 2),
        ("Error", 9),
        ("Layout", 2),
        ("Tensor", 3),
        ("Tokenizer", 2),
    ];

    /// Maximum packages without features, including the library and `futures-core` (`Stream`).
    const MOST_PACKAGES: usize = 60;

    #[test]
    fn the_library_alone_needs_few_packages() {
        let packages = packages(&project::root()).expect("cargo");
        assert!((10..=MOST_PACKAGES).contains(&packages), "{packages} packages, at most {MOST_PACKAGES}");
    }

    #[test]
    fn tuples_are_found_behind_references_and_in_arrays() {
        for (text, expected) in [
            ("(u8, u8)", true),
            ("&[(u8, u8)]", false),
            ("[(u8, u8); 2]", true),
            ("&mut ((u8, u8))", true),
            ("()", false),
            ("Option<(u8, u8)>", false),
            ("&[u8]", false),
        ] {
            let parsed: syn::Type = syn::parse_str(text).expect("a type");
            assert_eq!(has_tuple(&parsed), expected, "{text}");
        }
    }

    #[test]
    fn the_name_of_a_public_type_means_one_thing() {
        let sources = source::read(&project::root()).expect("the project's files");
        let items = Items::of(&sources).expect("Rust");
        let shared: BTreeMap<&str, usize> = SHARED.into_iter().collect();
        let found: BTreeMap<&str, usize> =
            items.public_types.iter().map(|(name, places)| (name.as_str(), places.len())).collect();
        let mut wrong = Vec::new();
        for (name, places) in &items.public_types {
            let allowed = shared.get(name.as_str()).copied().unwrap_or(1);
            if places.len() > allowed {
                wrong.push(format!("{name} means {} types, {allowed} at most: {places:?}", places.len()));
            }
        }
        let stale = shared.iter().filter(|(name, count)| found.get(*name).copied().unwrap_or(0) < **count);
        wrong.extend(
            stale.map(|(name, count)| format!("{name} means fewer than {count} types now: lower the table")),
        );
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
