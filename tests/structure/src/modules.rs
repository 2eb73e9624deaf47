//! Edges between the modules of a crate, at every level: from a module to another one whose
//! definitions its code names.
//!
//! A walk follows each path in a crate's code, from `crate::`, `super::`, `self::`, a child or an
//! import, through imports and re-exports to the module that defines it. An edge joins the two
//! modules where their own paths part.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use crate::{published, read, root};

/// Path of a module from the root of its crate; the root's is empty.
type ModulePath = Vec<String>;

/// Edges between the children of one module, each with a place that makes it.
type Level = BTreeMap<String, BTreeMap<String, String>>;

/// Maximum number of imports that the walk follows for one name. Two modules that re-export each
/// other's names would otherwise make it endless.
const IMPORTS_MAX: usize = 20;

#[derive(Debug, Default)]
struct Module {
    defined: BTreeSet<String>,
    children: BTreeSet<String>,
    /// Paths of imports, by their local name.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Paths that the module's code names.
    mentions: BTreeSet<Vec<String>>,
}

/// Modules of a crate, by path.
#[derive(Debug, Default)]
struct Modules(BTreeMap<ModulePath, Module>);

/// Adds the definitions, imports and names of a module's items.
struct Reader<'a> {
    module: &'a mut Module,
    /// Modules below, with their items if these are in the same file.
    below: Vec<(syn::ItemMod, Option<Vec<Item>>)>,
}

/// Reports whether an item with these attributes is compiled for tests only.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"))
        .any(|attribute| {
            let condition = attribute.meta.require_list().expect("a condition");
            let condition = condition.tokens.to_string();
            condition.contains("test") && !condition.contains("not (test")
        })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

impl Reader<'_> {
    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before);
                }
            }
            UseTree::Glob(_) => {
                self.module.mentions.insert(before.to_vec());
                self.module.globs.push(before.to_vec());
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                self.imported(last, before.to_vec());
            }
            UseTree::Name(name) => self.imported(name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(rename) => {
                self.imported(rename.rename.to_string(), with(&rename.ident));
            }
        }
    }

    fn imported(&mut self, name: String, path: Vec<String>) {
        self.module.mentions.insert(path.clone());
        self.module.imports.insert(name, path);
    }

    /// Adds the paths in a macro's arguments, which are tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.mention(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.mention(&mut path);
                    self.tokens(group.stream());
                }
                _ => self.mention(&mut path),
            }
        }
        self.mention(&mut path);
    }

    fn mention(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if !path.is_empty() {
            self.module.mentions.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_of_tests(attributes(item)) {
            return;
        }
        self.module.defined.extend(name(item));
        match item {
            Item::Mod(module) => {
                self.module.children.insert(module.ident.to_string());
                let items = module.content.as_ref().map(|(_, items)| items.clone());
                self.below.push((module.clone(), items));
            }
            Item::Use(item) => self.import(&item.tree, &[]),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let mut names = segments.map(|segment| segment.ident.to_string()).collect();
        self.mention(&mut names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }
}

impl Modules {
    /// Reads a crate's modules, from the file of its root.
    fn read(root_file: &Path) -> Self {
        let mut modules = Self::default();
        let directory = root_file.parent().expect("a file is in a directory");
        modules.add_file(root_file, directory, &[]);
        modules
    }

    /// Reads a module's file, and the files of modules below it, which are in this directory.
    fn add_file(&mut self, file: &Path, directory: &Path, path: &[String]) {
        let parsed = syn::parse_file(&read(file));
        let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(&parsed.items, directory, path);
    }

    fn add(&mut self, items: &[Item], directory: &Path, path: &[String]) {
        let mut module = Module::default();
        let mut reader = Reader {
            module: &mut module,
            below: Vec::new(),
        };
        for item in items {
            reader.visit_item(item);
        }
        let below = reader.below;
        self.0.insert(path.to_vec(), module);
        for (declared, items) in below {
            let name = declared.ident.to_string();
            let child: ModulePath = [path, std::slice::from_ref(&name)].concat();
            let child_directory = directory.join(&name);
            if let Some(items) = items {
                self.add(&items, &child_directory, &child);
                continue;
            }
            let files = [
                directory.join(format!("{name}.rs")),
                child_directory.join("mod.rs"),
            ];
            let elsewhere = declared.attrs.iter().find_map(|attribute| {
                let value = &attribute.meta.require_name_value().ok()?.value;
                let syn::Expr::Lit(literal) = value else {
                    return None;
                };
                let syn::Lit::Str(literal) = &literal.lit else {
                    return None;
                };
                let is_path = attribute.path().is_ident("path");
                is_path.then(|| directory.join(literal.value()))
            });
            let file = elsewhere.or_else(|| files.into_iter().find(|file| file.exists()));
            // Generated code is in another directory.
            if let Some(file) = file {
                self.add_file(&file, &child_directory, &child);
            }
        }
    }

    /// Returns the module that defines the target of a path in this module, unless that is another
    /// crate's.
    fn resolve(&self, from: &[String], path: &[String], imports: usize) -> Option<ModulePath> {
        let mut at = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                if !self.knows(from, first) {
                    return None;
                }
            }
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            at.pop();
            rest = &rest[1..];
        }
        self.follow(at, rest, imports)
    }

    fn knows(&self, module: &[String], name: &str) -> bool {
        self.0.get(module).is_some_and(|module| {
            module.children.contains(name)
                || module.imports.contains_key(name)
                || module.defined.contains(name)
                || !module.globs.is_empty()
        })
    }

    /// Follows names from a module down, and through imports.
    fn follow(&self, mut at: ModulePath, names: &[String], imports: usize) -> Option<ModulePath> {
        for (index, name) in names.iter().enumerate() {
            let module = self.0.get(&at)?;
            if module.children.contains(name) {
                at.push(name.clone());
                continue;
            }
            if module.defined.contains(name) || imports == IMPORTS_MAX {
                return Some(at);
            }
            let rest = &names[index + 1..];
            if let Some(import) = module.imports.get(name) {
                // The name is imported from a crate of that name.
                if import.first() == Some(name) && !module.children.contains(name) {
                    return None;
                }
                let path = [import, rest].concat();
                return self.resolve(&at, &path, imports + 1);
            }
            let by_glob = module.globs.iter().find_map(|glob| {
                let globbed = self.resolve(&at, glob, imports + 1)?;
                let has = self.0.get(&globbed).is_some_and(|module| {
                    module.children.contains(name)
                        || module.defined.contains(name)
                        || module.imports.contains_key(name)
                });
                has.then(|| self.follow(globbed, &names[index..], imports + 1))?
            });
            return by_glob.or(Some(at));
        }
        Some(at)
    }

    /// Returns the edges between children, by their parent.
    fn edges(&self) -> BTreeMap<ModulePath, Level> {
        let mut edges: BTreeMap<ModulePath, Level> = BTreeMap::new();
        for (from, module) in &self.0 {
            for path in &module.mentions {
                let Some(to) = self.resolve(from, path, 0) else {
                    continue;
                };
                let shared = std::iter::zip(from, &to)
                    .take_while(|(a, b)| a == b)
                    .count();
                let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) else {
                    continue;
                };
                let level = edges.entry(from[..shared].to_vec()).or_default();
                let to = level.entry(one.clone()).or_default();
                to.entry(other.clone())
                    .or_insert_with(|| format!("{}: {}", from.join("::"), path.join("::")));
            }
        }
        edges
    }
}

/// Returns the root of each crate: a library, or else a program.
fn root_files() -> impl Iterator<Item = (&'static str, PathBuf)> {
    published().map(|directory| {
        let src = root().join(directory).join("src");
        let files = [src.join("lib.rs"), src.join("main.rs")];
        let file = files.into_iter().find(|file| file.exists());
        (directory, file.expect("a crate has a root"))
    })
}

/// Returns the groups of modules that reach each other.
fn circles(level: &Level) -> Vec<Vec<&str>> {
    fn reached<'a>(from: &'a str, level: &'a Level, seen: &mut BTreeSet<&'a str>) {
        for to in level.get(from).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(to) {
                reached(to, level, seen);
            }
        }
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> = level
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            reached(from, level, &mut seen);
            (from.as_str(), seen)
        })
        .collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for (from, to) in &reach {
        if to.contains(from) && !circles.iter().any(|circle| circle.contains(from)) {
            let back = |to: &&&str| reach.get(**to).is_some_and(|back| back.contains(from));
            circles.push(to.iter().filter(back).copied().collect());
        }
    }
    circles
}

#[test]
fn modules_are_acyclic_at_every_level() {
    let mut found = String::new();
    for (directory, file) in root_files() {
        for (parent, level) in Modules::read(&file).edges() {
            for circle in circles(&level) {
                let parent = parent.join("::");
                found += &format!("{directory} {parent}: {circle:?}\n");
                for from in &circle {
                    let to = level[*from].iter();
                    for (to, place) in to.filter(|(to, _)| circle.contains(&to.as_str())) {
                        found += &format!("    {from} -> {to}, as {place}\n");
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "circles:\n{found}");
}

/// Finds cycles in a crate whose modules name each other in ways that a search for `crate::` does
/// not find.
#[test]
fn circles_by_super_and_through_re_exports_are_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    };
    write(
        "lib.rs",
        "mod above; mod a; mod b; mod c; pub use b::Shown;",
    );
    write("above.rs", "use crate::a::inner::Deep; mod unused {}");
    write(
        "a.rs",
        "pub mod inner; pub fn of() -> super::Shown { todo!() }",
    );
    write("a/inner.rs", "pub struct Deep;");
    write("b.rs", "use super::c; pub struct Shown(c::Inner);");
    write(
        "c.rs",
        "pub struct Inner; fn text() -> String { format!(\"{:?}\", super::a::of()) }
         #[cfg(test)] mod tests { use crate::above; }",
    );
    let edges = Modules::read(&directory.path().join("lib.rs")).edges();
    assert_eq!(circles(&edges[&Vec::new()]), [["a", "b", "c"]]);
}
