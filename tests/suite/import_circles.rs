//! No two files of the crate depend on each other, directly or through others: whoever reads one
//! needs to know only what is below it. A module and the files of its directory count as one.

use std::collections::{BTreeMap, BTreeSet};

use crate::architecture::{Source, read_sources};

/// Components of a path, from the root of the crate.
type ModulePath = Vec<String>;

/// The code of each module, without comments and tests.
type Modules = BTreeMap<ModulePath, String>;

/// How often a name may be handed on from module to module.
const MAX_REEXPORTS: usize = 8;

/// Returns the module that a file below `src` is.
fn module_of(file: &str) -> ModulePath {
    let path = file.trim_end_matches(".rs").split('/');
    let path: ModulePath = path.map(str::to_string).collect();
    if path == ["lib"] { Vec::new() } else { path }
}

/// Returns the names that a `use` brings into scope, each with its whole path.
fn expand_use(prefix: &[String], tree: &str, found: &mut Vec<(String, ModulePath)>) {
    let (mut depth, mut from) = (0, 0);
    let mut parts = Vec::new();
    for (at, c) in tree.char_indices().chain([(tree.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(tree[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let (head, group) = match part.split_once('{') {
            Some((head, group)) => (head.trim_end(), group.rsplit_once('}').map(|it| it.0)),
            None => (part, None),
        };
        let (path, alias) = match head.split_once(" as ") {
            Some((path, alias)) => (path, Some(alias.trim())),
            None => (head, None),
        };
        let words = path.split("::").map(str::trim).filter(|it| !it.is_empty());
        let mut whole: ModulePath = prefix.to_vec();
        whole.extend(words.map(str::to_string));
        if let Some(group) = group {
            expand_use(&whole, group, found);
            continue;
        }
        whole.pop_if(|last| last == "self" && path.trim() == "self");
        let name = alias.map(str::to_string).or_else(|| whole.last().cloned());
        found.extend(name.map(|name| (name, whole)));
    }
}

/// Returns a path from the root of the crate; none for one into another crate.
fn from_root(modules: &Modules, module: &[String], path: &[String]) -> Option<ModulePath> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()),
        first => {
            let child = [module, &[first.to_string()]].concat();
            modules
                .contains_key(&child)
                .then(|| [module, path].concat())
        }
    }
}

/// Splits a path into the module that it leads to, and the rest.
fn split_path<'p>(modules: &Modules, path: &'p [String]) -> (&'p [String], &'p [String]) {
    let is_module = |length: &usize| modules.contains_key(&path[..*length]);
    let length = (0..=path.len()).rev().find(is_module).unwrap_or_default();
    path.split_at(length)
}

/// What a module names: in its `use` items, and in paths of its code.
struct Names {
    /// Paths to items of other modules.
    paths: Vec<ModulePath>,
    /// Names that it hands on, with their paths.
    handed_on: BTreeMap<String, ModulePath>,
}

impl Names {
    fn read(modules: &Modules, module: &[String], code: &str) -> Names {
        let mut names = Names {
            paths: Vec::new(),
            handed_on: BTreeMap::new(),
        };
        let mut aliases: BTreeMap<String, ModulePath> = BTreeMap::new();
        for (at, word) in code.match_indices("use ") {
            let before = code[..at].trim_end();
            let is_handed_on = before.ends_with("pub") || before.ends_with(')');
            if !(is_handed_on || before.is_empty() || before.ends_with([';', '{', '}', ']'])) {
                continue;
            }
            let tree = &code[at + word.len()..];
            let tree = tree.split(';').next().unwrap_or_default();
            let mut used = Vec::new();
            expand_use(&[], &tree.replace('\n', " "), &mut used);
            for (name, path) in used {
                let Some(path) = from_root(modules, module, &path) else {
                    continue;
                };
                if is_handed_on {
                    names.handed_on.insert(name, path);
                } else if modules.contains_key(&path) {
                    aliases.insert(name, path);
                } else {
                    names.paths.push(path);
                }
            }
        }
        let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for text in code.split(|c| !is_of_path(c)) {
            // What follows in braces was read above.
            let text = text.trim_end_matches("::");
            let words: ModulePath = text.split("::").map(str::to_string).collect();
            let path = match aliases.get(&words[0]) {
                Some(alias) if words.len() > 1 => Some([alias, &words[1..]].concat()),
                _ if matches!(words[0].as_str(), "crate" | "super") => {
                    from_root(modules, module, &words)
                }
                _ => None,
            };
            names.paths.extend(path);
        }
        names
    }
}

/// Whether one of two modules is in the directory of the other.
fn is_one_house(one: &[String], other: &[String]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the modules that each depends on.
fn dependencies(modules: &Modules) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let read = modules.iter().map(|(module, code)| {
        let names = Names::read(modules, module, code);
        (module.clone(), names)
    });
    let names: BTreeMap<ModulePath, Names> = read.collect();
    let owner_of = |path: &[String]| -> Option<ModulePath> {
        let mut path = path.to_vec();
        for _ in 0..MAX_REEXPORTS {
            let (module, rest) = split_path(modules, &path);
            let name = rest.first()?;
            match names[module].handed_on.get(name) {
                Some(other) => path = [other, &rest[1..]].concat(),
                None => return Some(module.to_vec()),
            }
        }
        None
    };
    names
        .iter()
        .map(|(module, names)| {
            let owners = names.paths.iter().filter_map(|path| owner_of(path));
            let others = owners.filter(|owner| !is_one_house(module, owner));
            (module.clone(), others.collect())
        })
        .collect()
}

/// Returns the modules that are in a circle, or between two.
fn find_circles(modules: &Modules) -> Vec<String> {
    let mut open = dependencies(modules);
    loop {
        let before = open.len();
        let left: BTreeSet<ModulePath> = open.keys().cloned().collect();
        open.retain(|_, needed| !needed.is_disjoint(&left));
        let needed: BTreeSet<ModulePath> = open.values().flatten().cloned().collect();
        open.retain(|module, _| needed.contains(module));
        if open.len() == before {
            return open.keys().map(|module| module.join("::")).collect();
        }
    }
}

fn modules_of(sources: &[(&str, &str)]) -> Modules {
    let module = |(file, text): &(&str, &str)| (module_of(file), Source::new(text).code);
    let is_test = |(path, _): &(ModulePath, String)| path.iter().any(|it| it.ends_with("tests"));
    sources
        .iter()
        .map(module)
        .filter(|it| !is_test(it))
        .collect()
}

#[test]
fn imports_have_no_circles() {
    let sources = read_sources();
    let sources: Vec<(&str, &str)> = sources
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    assert_eq!(find_circles(&modules_of(&sources)), [""; 0]);
}

#[test]
fn circles_of_imports_are_found() {
    let circle = find_circles(&modules_of(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "pub use crate::b::{one, deep::{Two as Three}};"),
        ("b.rs", "use super::c;\npub fn one() { c::four() }"),
        ("b/deep.rs", "pub struct Two;"),
        ("c.rs", "pub fn four() -> crate::a::one {}"),
        ("d.rs", "use crate::a::Three;"),
    ]));
    assert_eq!(circle, ["b", "c"]);
    let none = find_circles(&modules_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod inner;\nuse inner::Item;\nuse crate::b::Base;"),
        ("a/inner.rs", "use super::Outer;\npub struct Item;"),
        (
            "b.rs",
            "pub struct Base;\n#[cfg(test)]\nmod tests { use crate::a::Outer; }",
        ),
    ]));
    assert_eq!(none, [""; 0]);
}
