//! Compares the public interface of the SDK with the text in `public-api.txt`, so that a change of
//! it shows in review.
//!
//! The interface is read from the sources, so that it does not depend on the compiler's version.
//! `STROBOSCOPE_BLESS=1 cargo test -p stroboscope --test public_api` accepts an intended change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{
    Attribute, Fields, Generics, ImplItem, Item, ItemImpl, TraitItem, Type, UseTree, Visibility,
};

/// A module that has a file of its own.
struct Module {
    items: Vec<Item>,
    /// The features that the module needs.
    features: BTreeSet<String>,
}

type ModulePath = Vec<String>;

/// Another crate of this workspace, some of whose items the SDK re-exports.
const SHARED: &str = "stroboscope_burst";

/// Reads all modules of the SDK and of [`SHARED`], except those of tests and inline ones.
fn modules(src: &Path) -> BTreeMap<ModulePath, Module> {
    let mut found = BTreeMap::new();
    read(
        &src.join("lib.rs"),
        src,
        Vec::new(),
        BTreeSet::new(),
        &mut found,
    );
    let burst = src.join("../burst/src");
    read(
        &burst.join("lib.rs"),
        &burst,
        vec![SHARED.to_owned()],
        BTreeSet::new(),
        &mut found,
    );
    found
}

fn read(
    file: &Path,
    directory: &Path,
    path: ModulePath,
    features: BTreeSet<String>,
    found: &mut BTreeMap<ModulePath, Module>,
) {
    let text =
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let items = syn::parse_file(&text)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        .items;
    for item in &items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        if module.content.is_some() || is_test(&module.attrs) {
            continue;
        }
        let mut features = features.clone();
        features.extend(features_of(&module.attrs));
        let inner: PathBuf = directory.join(&name);
        let mut path = path.clone();
        path.push(name);
        let file = inner.with_extension("rs");
        let file = if file.exists() {
            file
        } else {
            inner.join("mod.rs")
        };
        read(&file, &inner, path, features, found);
    }
    found.insert(path, Module { items, features });
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = tokens(attribute);
        text.contains("cfg(test)") || text.contains("cfg(all(test")
    })
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| tokens(attribute).contains("doc(hidden)"))
}

fn features_of(attributes: &[Attribute]) -> BTreeSet<String> {
    let cfgs = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    let feature = |attribute: &Attribute| {
        let text = tokens(attribute);
        let start = text.find("feature=\"")? + "feature=\"".len();
        Some(text[start..].split('"').next()?.to_owned())
    };
    cfgs.filter_map(feature).collect()
}

/// Formats tokens approximately as rustfmt does.
fn tokens(item: &impl ToTokens) -> String {
    let mut text = item.to_token_stream().to_string();
    let rules = [
        (" , ", ", "),
        (" ,", ","),
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" : ", ": "),
        (" < ", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        (" ;", ";"),
        ("# [", "#["),
        ("[ ", "["),
        (" ]", "]"),
        (" = ", "="),
        ("! ", "!"),
        ("->(", "-> ("),
        (" [", "["),
        ("&'_ ", "&"),
    ];
    for (from, to) in rules {
        text = text.replace(from, to);
    }
    text
}

struct Surface<'a> {
    modules: &'a BTreeMap<ModulePath, Module>,
    lines: BTreeSet<String>,
    /// The public path under which each item was listed, by the item's module and name.
    shown: BTreeMap<(ModulePath, String), String>,
}

impl<'a> Surface<'a> {
    fn line(&mut self, features: &BTreeSet<String>, text: &str) {
        let needs: String = features
            .iter()
            .map(|feature| format!("  [{feature}]"))
            .collect();
        self.lines.insert(format!("{text}{needs}"));
    }

    /// Lists everything in a public module that is public and not hidden.
    fn module(&mut self, path: &[String], shown_as: &str) {
        let module = &self.modules[path];
        for item in &module.items {
            match item {
                Item::Mod(inner)
                    if is_public(&inner.vis)
                        && inner.content.is_none()
                        && !is_hidden(&inner.attrs)
                        && !is_test(&inner.attrs) =>
                {
                    let inner_path = [path, &[inner.ident.to_string()]].concat();
                    let features = self.modules[&inner_path].features.clone();
                    let shown_as = format!("{shown_as}::{}", inner.ident);
                    self.line(&features, &format!("mod {shown_as}"));
                    self.module(&inner_path, &shown_as);
                }
                Item::Use(import) if is_public(&import.vis) => {
                    let mut features = module.features.clone();
                    features.extend(features_of(&import.attrs));
                    self.import(&import.tree, Vec::new(), path, shown_as, &features);
                }
                Item::Macro(mac) if tokens_of_attributes(&mac.attrs).contains("macro_export") => {
                    if let Some(name) = &mac.ident
                        && !is_hidden(&mac.attrs)
                    {
                        self.line(&module.features, &format!("macro stroboscope::{name}!"));
                    }
                }
                item => self.item(item, path, None, shown_as, &module.features),
            }
        }
    }

    /// Lists the items of a `pub use`. Their module may be private.
    fn import(
        &mut self,
        tree: &UseTree,
        mut from: Vec<String>,
        at: &[String],
        shown_as: &str,
        features: &BTreeSet<String>,
    ) {
        match tree {
            UseTree::Path(path) => {
                from.push(path.ident.to_string());
                self.import(&path.tree, from, at, shown_as, features);
            }
            UseTree::Group(group) => {
                group
                    .items
                    .iter()
                    .for_each(|tree| self.import(tree, from.clone(), at, shown_as, features));
            }
            UseTree::Name(name) => {
                let own: Vec<String> = match from.first().map(String::as_str) {
                    Some("crate") => from[1..].to_vec(),
                    Some(SHARED) => from.clone(),
                    _ => [at, &from].concat(),
                };
                let name = name.ident.to_string();
                let Some(module) = self.modules.get(&own) else {
                    self.line(
                        features,
                        &format!("use {shown_as}::{name} = {}::{name}", from.join("::")),
                    );
                    return;
                };
                let mut features = features.clone();
                features.extend(module.features.iter().cloned());
                let before = self.lines.len();
                for item in &module.items {
                    self.item(item, &own, Some(&name), shown_as, &features);
                }
                if self.lines.len() == before {
                    // Another `pub use` in that module re-exports the name.
                    let again = module.items.iter().find_map(|item| match item {
                        Item::Use(import)
                            if is_public(&import.vis) && tokens(import).contains(&name) =>
                        {
                            Some(import)
                        }
                        _ => None,
                    });
                    let import = again.unwrap_or_else(|| panic!("{name} is not in {own:?}"));
                    self.import(&import.tree, Vec::new(), &own, shown_as, &features);
                }
            }
            other => panic!("write out what is made public: {}", tokens(other)),
        }
    }

    /// Lists an item, if it is public and has the name `only`. `None` stands for any name.
    fn item(
        &mut self,
        item: &Item,
        of: &[String],
        only: Option<&str>,
        at: &str,
        features: &BTreeSet<String>,
    ) {
        let wrapped: Option<Item> = match item {
            // `pin_project! { pub struct … }`
            Item::Macro(mac)
                if mac
                    .mac
                    .path
                    .segments
                    .last()
                    .is_some_and(|name| name.ident == "pin_project") =>
            {
                mac.mac
                    .parse_body::<syn::ItemStruct>()
                    .ok()
                    .map(Item::Struct)
            }
            _ => None,
        };
        let item = wrapped.as_ref().unwrap_or(item);
        let (name, vis, attributes) = match item {
            Item::Struct(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Enum(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Fn(item) => (&item.sig.ident, &item.vis, &item.attrs),
            Item::Const(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Type(item) => (&item.ident, &item.vis, &item.attrs),
            Item::Static(item) => (&item.ident, &item.vis, &item.attrs),
            _ => return,
        };
        if !is_public(vis) || is_hidden(attributes) || only.is_some_and(|only| name != only) {
            return;
        }
        let mut features = features.clone();
        features.extend(features_of(attributes));
        let shown_as = format!("{at}::{name}");
        if let Some(first) = self.shown.get(&(of.to_vec(), name.to_string())) {
            let line = format!("use {shown_as} = {first}");
            self.line(&features, &line);
            return;
        }
        self.shown.insert((of.to_vec(), name.to_string()), shown_as);
        let open = if tokens_of_attributes(attributes).contains("non_exhaustive") {
            ", more may come"
        } else {
            ""
        };
        match item {
            Item::Struct(item) => {
                self.line(
                    &features,
                    &format!("struct {at}::{name}{}{open}", bounds(&item.generics)),
                );
                self.fields(&item.fields, &format!("{at}::{name}"), &features, true);
                self.of_type(&name.to_string(), at, attributes, &features);
            }
            Item::Enum(item) => {
                self.line(
                    &features,
                    &format!("enum {at}::{name}{}{open}", bounds(&item.generics)),
                );
                for variant in &item.variants {
                    let path = format!("{at}::{name}::{}", variant.ident);
                    self.line(&features, &format!("variant {path}"));
                    self.fields(&variant.fields, &path, &features, false);
                }
                self.of_type(&name.to_string(), at, attributes, &features);
            }
            Item::Trait(item) => {
                let above = if item.supertraits.is_empty() {
                    String::new()
                } else {
                    format!(": {}", tokens(&item.supertraits))
                };
                self.line(
                    &features,
                    &format!("trait {at}::{name}{}{above}", bounds(&item.generics)),
                );
                for part in &item.items {
                    if let TraitItem::Fn(function) = part
                        && !is_hidden(&function.attrs)
                    {
                        self.line(
                            &features,
                            &format!("fn {at}::{name}::{}", signature(&function.sig)),
                        );
                    }
                }
                self.implementations(&name.to_string(), &features);
            }
            Item::Fn(item) => self.line(&features, &format!("fn {at}::{}", signature(&item.sig))),
            Item::Const(item) => {
                let value = match &*item.expr {
                    syn::Expr::Lit(literal) => format!(" = {}", tokens(literal)),
                    _ => String::new(),
                };
                self.line(
                    &features,
                    &format!("const {at}::{name}: {}{value}", tokens(&item.ty)),
                );
            }
            Item::Type(item) => self.line(
                &features,
                &format!("type {at}::{name} = {}", tokens(&item.ty)),
            ),
            other => panic!("not known to this test: {}", tokens(other)),
        }
    }

    fn fields(&mut self, fields: &Fields, at: &str, features: &BTreeSet<String>, is_struct: bool) {
        for (index, field) in fields.iter().enumerate() {
            if is_struct && !is_public(&field.vis) {
                continue;
            }
            let name = field
                .ident
                .as_ref()
                .map_or_else(|| index.to_string(), ToString::to_string);
            self.line(
                features,
                &format!("field {at}.{name}: {}", tokens(&field.ty)),
            );
        }
    }

    /// Lists the public methods and the traits of a type. Their `impl` blocks may be in any module.
    fn of_type(
        &mut self,
        name: &str,
        at: &str,
        attributes: &[Attribute],
        features: &BTreeSet<String>,
    ) {
        for attribute in attributes
            .iter()
            .filter(|attribute| attribute.path().is_ident("derive"))
        {
            let list = tokens(attribute).replace("#[derive(", "").replace(")]", "");
            for derived in list.split(',') {
                self.line(features, &format!("impl {} for {name}", derived.trim()));
            }
        }
        let all: Vec<(&ItemImpl, BTreeSet<String>)> = self.all_implementations();
        for (item, needs) in all {
            if type_name(&item.self_ty).as_deref() != Some(name) {
                continue;
            }
            let features: BTreeSet<String> = features.union(&needs).cloned().collect();
            if let Some(line) = implementation(item) {
                self.line(&features, &line);
                continue;
            }
            for part in &item.items {
                match part {
                    ImplItem::Fn(function)
                        if is_public(&function.vis) && !is_hidden(&function.attrs) =>
                    {
                        let mut features = features.clone();
                        features.extend(features_of(&function.attrs));
                        self.line(
                            &features,
                            &format!("fn {at}::{name}::{}", signature(&function.sig)),
                        );
                    }
                    ImplItem::Const(constant) if is_public(&constant.vis) => {
                        let line = format!(
                            "const {at}::{name}::{}: {}",
                            constant.ident,
                            tokens(&constant.ty)
                        );
                        self.line(&features, &line);
                    }
                    _ => {}
                }
            }
        }
        let of_this_name = self.shown.keys().filter(|(_, shown)| shown == name).count();
        assert_eq!(
            of_this_name, 1,
            "two public types are called {name}: tell their impls apart here"
        );
    }

    /// Lists the types that implement the SDK's trait `name`.
    fn implementations(&mut self, name: &str, features: &BTreeSet<String>) {
        for (item, needs) in self.all_implementations() {
            let path = item
                .trait_
                .as_ref()
                .and_then(|(_, path, _)| path.segments.last());
            if path.is_some_and(|segment| segment.ident == name)
                && let Some(line) = implementation(item)
            {
                self.line(&features.union(&needs).cloned().collect(), &line);
            }
        }
    }

    /// Returns all `impl` blocks that are not hidden, with the features that they need.
    fn all_implementations(&self) -> Vec<(&'a ItemImpl, BTreeSet<String>)> {
        let mut found = Vec::new();
        for module in self.modules.values() {
            for item in &module.items {
                if let Item::Impl(item) = item
                    && !is_hidden(&item.attrs)
                {
                    let needs = module
                        .features
                        .union(&features_of(&item.attrs))
                        .cloned()
                        .collect();
                    found.push((item, needs));
                }
            }
        }
        found
    }
}

fn tokens_of_attributes(attributes: &[Attribute]) -> String {
    attributes.iter().map(tokens).collect()
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn type_name(kind: &Type) -> Option<String> {
    let Type::Path(path) = kind else { return None };
    path.path
        .segments
        .last()
        .map(|segment| segment.ident.to_string())
}

fn bounds(generics: &Generics) -> String {
    let (parameters, _, conditions) = generics.split_for_impl();
    let declared = if generics.params.is_empty() {
        String::new()
    } else {
        format!("<{}>", tokens(&generics.params))
    };
    let _ = parameters;
    format!(
        "{declared}{}",
        conditions.map_or_else(String::new, |conditions| format!(" {}", tokens(conditions)))
    )
}

fn signature(signature: &syn::Signature) -> String {
    // The trailing comma depends on the width of the line in the source.
    let text = tokens(signature).replace(",)", ")");
    // The name comes first: `async fn lock(…)` becomes `lock(…)  (async)`.
    let name = signature.ident.to_string();
    let (before, rest) = text.split_once("fn ").unwrap_or(("", &text));
    let before = before.trim();
    let rest = rest.strip_prefix(&name).unwrap_or(rest);
    if before.is_empty() {
        format!("{name}{rest}")
    } else {
        format!("{name}{rest}  ({before})")
    }
}

/// Returns `impl Trait for Type`. `None` for an `impl` without a trait.
fn implementation(item: &ItemImpl) -> Option<String> {
    let (_, path, _) = item.trait_.as_ref()?;
    Some(format!(
        "impl{} {} for {}",
        bounds(&item.generics),
        tokens(path),
        tokens(&item.self_ty)
    ))
}

#[test]
fn the_public_surface_is_what_was_agreed() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = modules(&package.join("src"));
    let mut surface = Surface {
        modules: &modules,
        lines: BTreeSet::new(),
        shown: BTreeMap::new(),
    };
    surface.module(&[], "stroboscope");
    let text: String = surface
        .lines
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    let file = package.join("public-api.txt");
    if std::env::var_os("STROBOSCOPE_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
        return;
    }
    let agreed = std::fs::read_to_string(&file).unwrap_or_default();
    let (agreed, now): (BTreeSet<&str>, BTreeSet<&str>) =
        (agreed.lines().collect(), text.lines().collect());
    let changes: Vec<String> = (agreed.difference(&now).map(|line| format!("- {line}")))
        .chain(now.difference(&agreed).map(|line| format!("+ {line}")))
        .collect();
    assert!(
        changes.is_empty(),
        "the public surface changed; if that is meant, set STROBOSCOPE_BLESS=1 and run this test again, and say so in \
         CHANGELOG.md:\n{}",
        changes.join("\n")
    );
    assert!(now.len() > 100, "{now:?}");
}
