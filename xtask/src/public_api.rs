//! Which foreign crates the public signatures name.
//!
//! A change of a major version of such a crate is a breaking change of ours, so there are few, and
//! ARCHITECTURE.md lists them. The check reads text: it resolves names through the file's own `use` lines
//! and looks at every item that is `pub` without restriction (`unreachable_pub` keeps those few and true).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::graph::Member;
use crate::source::{self, Line, words};
use crate::workspace::Workspace;

/// Foreign crates that any public signature may name, with the versions that ARCHITECTURE.md lists.
const ALLOWED: &[(&str, &str)] = &[
    ("aws-sdk-kinesis", "1"),
    ("aws-types", "1"),
    ("bytes", "1"),
    ("futures-core", "0.3"),
    ("futures-sink", "0.3"),
    ("serde", "1"),
    ("tower-layer", "0.3"),
    ("tower-service", "0.3"),
];

/// Foreign crates that one crate may name besides: a store its driver, the testkit the SDK's connector seam.
const ALLOWED_IN: &[(&str, &str)] = &[
    ("kinesis-lease", "aws-sdk-dynamodb"),
    ("kinesis-lease", "sqlx"),
    ("kinesis-testkit", "aws-smithy-runtime-api"),
];

/// A line, or the one above it, with this word says why a signature may name something else.
const ALLOW: &str = "public-ok: ";

/// Every foreign name in a public signature that is not allowed, and every allowed one that
/// ARCHITECTURE.md does not list.
pub(crate) fn faults(workspace: &Workspace, members: &[Member]) -> Result<Vec<String>> {
    let mut faults = undocumented(&workspace.read("ARCHITECTURE.md").unwrap_or_default());
    for member in members.iter().filter(|member| member.is_library()) {
        let foreign = foreign_crates(member);
        for file in workspace.files(&format!("crates/{}/src", member.name), "rs")? {
            if source::is_test_file(&file) || file.contains("/src/bin/") {
                continue;
            }
            let lines = source::scan(&workspace.read(&file)?);
            for (line, name) in file_faults(&lines, &foreign) {
                faults.push(format!("{file}:{line}: a public item names the crate `{name}`"));
            }
        }
    }
    Ok(faults)
}

/// Allowed crates that ARCHITECTURE.md does not name with their version.
fn undocumented(architecture: &str) -> Vec<String> {
    ALLOWED
        .iter()
        .filter(|(name, version)| !architecture.lines().any(|line| names_version(line, name, version)))
        .map(|(name, version)| {
            format!("ARCHITECTURE.md does not list {name} {version} as a public dependency")
        })
        .collect()
}

/// Whether the line has the name and right after it, apart from quotes and table bars, the version.
fn names_version(line: &str, name: &str, version: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let rest = line[at + name.len()..].trim_start_matches([' ', '`', '|', '*']);
        rest.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// The crates that the signatures of a member must not name, as they are written in code.
fn foreign_crates(member: &Member) -> BTreeSet<String> {
    let allowed = |name: &str| {
        ALLOWED.iter().any(|(allowed, _)| *allowed == name)
            || ALLOWED_IN.iter().any(|(crate_name, allowed)| *crate_name == member.name && *allowed == name)
    };
    member
        .dependencies
        .iter()
        .filter(|dependency| {
            dependency.kind == "normal" && !dependency.in_workspace && !allowed(&dependency.name)
        })
        .map(|dependency| dependency.name.replace('-', "_"))
        .collect()
}

/// The lines of public items that name one of the `foreign` crates, each with the crate.
fn file_faults(lines: &[Line], foreign: &BTreeSet<String>) -> Vec<(usize, String)> {
    let imports = imports(lines, foreign);
    let mut faults = Vec::new();
    for (first, signature) in public_items(lines) {
        let excused = lines[first.saturating_sub(1)..=first].iter().any(|line| line.comment.contains(ALLOW));
        if excused {
            continue;
        }
        let signature = without_private_fields(&signature);
        let mut found = BTreeSet::new();
        let mut before = "";
        for word in words(&signature) {
            // `foreign::Type` names the crate, `Type` what a `use` line brought.
            let path = format!("{word}::");
            if foreign.contains(word) && signature.contains(&path) {
                found.insert(word.to_owned());
            } else if let (Some(name), false) = (imports.get(word), before == "mod") {
                found.insert(name.clone());
            }
            before = word;
        }
        faults.extend(found.into_iter().map(|name| (first + 1, name)));
    }
    faults
}

/// `pub struct S(pub A, B)` without `B`; anything else as it is.
fn without_private_fields(signature: &str) -> String {
    let Some((head, fields)) = signature.split_once('(').filter(|(head, _)| head.contains("struct ")) else {
        return signature.to_owned();
    };
    let public: Vec<&str> =
        fields.split(',').filter(|field| field.trim_start().starts_with("pub ")).collect();
    format!("{head}({}", public.join(","))
}

/// What `use` lines outside tests bring from foreign crates: the name in this file and its crate.
fn imports(lines: &[Line], foreign: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut imports = BTreeMap::new();
    for (_, statement) in statements(lines, |code| code.starts_with("use ")) {
        let path = statement.trim_start_matches("use ").trim_start_matches("::");
        let Some(root) = words(path).next().filter(|root| foreign.contains(*root)) else {
            continue;
        };
        // The name is the last word before a comma, a brace or the end; `as _` brings none.
        for part in path.split([',', '{', '}', ';']) {
            let Some(name) = words(part).last() else { continue };
            if name == "self" {
                // `use foreign::module::{self}` brings `module`.
                let module = path.split("::{").next().and_then(|prefix| words(prefix).last());
                imports.extend(module.map(|module| (module.to_owned(), root.to_owned())));
            } else if name != "_" && !part.trim_end().ends_with("::") {
                imports.insert(name.to_owned(), root.to_owned());
            }
        }
    }
    imports
}

/// Public items: the index of the first line, and the text up to the body or the end.
fn public_items(lines: &[Line]) -> Vec<(usize, String)> {
    let mut items = statements(lines, |code| code.starts_with("pub ") && !code.starts_with("pub use "));
    // A re-export shows what it names; a conversion shows what it converts from.
    items.extend(statements(lines, |code| {
        code.starts_with("pub use ") || (code.starts_with("impl") && code.contains("From<"))
    }));
    items.extend(public_bodies(lines));
    items
}

/// Lines outside tests that begin a statement, each joined with what follows up to `{` or `;`.
fn statements(lines: &[Line], begins: impl Fn(&str) -> bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if line.test || !begins(line.code.trim_start()) {
            continue;
        }
        let is_use = line.code.contains("use ");
        let mut text = String::new();
        for line in &lines[index..] {
            text.push_str(line.code.trim());
            text.push(' ');
            let ends = |c: char| c == ';' || (c == '{' && !is_use) || (c == ',' && is_field(&text));
            if let Some(end) = text.find(ends) {
                text.truncate(end);
                break;
            }
        }
        found.push((index, text));
    }
    found
}

/// `pub name: Type`, which ends at a comma outside brackets.
fn is_field(text: &str) -> bool {
    let item = ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "impl", "use "];
    let open = text.matches(['(', '<', '[']).count() > text.matches([')', '>', ']']).count();
    !open && !item.iter().any(|keyword| text.contains(keyword))
}

/// Methods of public traits and variants of public enums: the lines of their bodies up to each method's own body.
fn public_bodies(lines: &[Line]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // The depth of the body of the public trait or enum that we are in.
    let mut body: Option<usize> = None;
    let mut depth = 0_usize;
    let mut pending = false;
    for (index, line) in lines.iter().enumerate() {
        let code = line.code.trim();
        if !line.test && (code.starts_with("pub trait ") || code.starts_with("pub enum ")) {
            pending = true;
        }
        let at_start = depth;
        for character in code.chars() {
            match character {
                '{' => {
                    depth += 1;
                    if pending {
                        body = Some(depth);
                        pending = false;
                    }
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if body.is_some_and(|body| depth < body) {
                        body = None;
                    }
                }
                _ => {}
            }
        }
        if body == Some(at_start) && !code.is_empty() && !code.starts_with('#') {
            found.push((index, code.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(code: &str) -> Vec<(usize, String)> {
        let foreign = ["sqlx", "tokio", "tokio_util"].map(str::to_owned).into();
        file_faults(&source::scan(code), &foreign)
    }

    fn one(line: usize, name: &str) -> Vec<(usize, String)> {
        vec![(line, name.to_owned())]
    }

    #[test]
    fn imported_and_full_names_are_seen() {
        assert_eq!(faults_of("use sqlx::Pool;\npub fn f(pool: Pool) {}\n"), one(2, "sqlx"));
        assert_eq!(faults_of("pub fn f() -> tokio::task::JoinHandle<()> { g() }\n"), one(1, "tokio"));
        assert_eq!(
            faults_of("use tokio::sync::{self, Notify};\npub struct S {\n  pub n: Notify,\n}\n"),
            one(3, "tokio")
        );
        assert_eq!(faults_of("use tokio::time;\npub fn f(\n  at: time::Instant,\n) {}\n"), one(2, "tokio"));
        assert_eq!(faults_of("pub use tokio_util::sync::CancellationToken;\n"), one(1, "tokio_util"));
        assert_eq!(faults_of("impl From<sqlx::Error> for E {\n}\n"), one(1, "sqlx"));
    }

    #[test]
    fn methods_of_public_traits_and_variants_of_public_enums_are_seen() {
        assert_eq!(faults_of("pub trait T {\n  fn f(&self) -> tokio::time::Sleep;\n}\n"), one(2, "tokio"));
        assert_eq!(faults_of("pub enum E {\n  A(sqlx::Error),\n}\n"), one(2, "sqlx"));
        assert_eq!(faults_of("trait T {\n  fn f(&self) -> tokio::time::Sleep;\n}\n"), []);
    }

    #[test]
    fn private_items_bodies_and_tests_are_not_seen() {
        assert_eq!(faults_of("pub(crate) fn f(p: sqlx::Pool) {}\n"), []);
        assert_eq!(faults_of("pub fn f() {\n  let p = sqlx::connect();\n}\n"), []);
        assert_eq!(faults_of("pub struct S {\n  pool: sqlx::Pool,\n}\n"), []);
        assert_eq!(faults_of("#[cfg(test)]\nmod tests {\n  pub fn f(p: sqlx::Pool) {}\n}\n"), []);
        assert_eq!(faults_of("pub mod sqlx;\n"), []);
        assert_eq!(faults_of("pub struct S(sqlx::Pool);\n"), []);
        assert_eq!(faults_of("pub struct S(u8, pub sqlx::Pool);\n"), one(1, "sqlx"));
    }

    #[test]
    fn a_reason_excuses() {
        assert_eq!(faults_of("// public-ok: the driver's own constructor\npub fn f(p: sqlx::Pool) {}\n"), []);
    }

    #[test]
    fn every_allowed_crate_is_listed() {
        let all = "aws-sdk-kinesis 1, aws-types 1, `bytes` 1, futures-core 0.3, futures-sink 0.3, serde 1, \
                   tower-layer 0.3";
        assert_eq!(
            undocumented(&format!("{all}, tower-service 0.30")),
            ["ARCHITECTURE.md does not list tower-service 0.3 as a public dependency"]
        );
    }
}
