//! House rules for `Cargo.toml` files. They read lines, so they see what a parser would lose: the order.

/// Keys that each member takes from the workspace.
const INHERITED: &[&str] = &["edition", "license", "rust-version", "version"];

/// Keys that a published crate takes from the workspace besides.
const INHERITED_WHEN_PUBLISHED: &[&str] = &["repository"];

/// Keys that a published crate has, of its own or from the workspace.
const PUBLISHED: &[&str] = &["categories", "keywords", "readme"];

const LICENSE: &str = "MIT OR Apache-2.0";

/// Faults of a member's manifest.
pub(crate) fn member_faults(manifest: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let package: Vec<&str> = entries(manifest, "package").map(|(_, line)| line).collect();
    let inherits = |key: &str| package.contains(&format!("{key}.workspace = true").as_str());
    let published = !package.contains(&"publish = false");
    let mut keys: Vec<&str> = INHERITED.to_vec();
    if published {
        keys.extend(INHERITED_WHEN_PUBLISHED);
    }
    for key in keys.iter().filter(|key| !inherits(key)) {
        faults.push(format!("`{key}.workspace = true` is missing"));
    }
    let own: &[&str] = if published { PUBLISHED } else { &[] };
    for key in own.iter().chain(&["description"]) {
        let has = |line: &&str| {
            line.starts_with(&format!("{key} = ")) || **line == format!("{key}.workspace = true")
        };
        if !package.iter().any(has) {
            faults.push(format!("`{key}` is missing"));
        }
    }
    if !entries(manifest, "lints").any(|(_, line)| line == "workspace = true") {
        faults.push("`[lints] workspace = true` is missing".to_owned());
    }
    for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
        faults.extend(order_faults(manifest, table));
        for (number, line) in entries(manifest, table) {
            if !line.replace(' ', "").contains("workspace=true") {
                faults.push(format!("line {number}: `{}` does not come from the workspace", key(line)));
            }
        }
    }
    faults
}

/// Faults of the root manifest.
pub(crate) fn root_faults(manifest: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut must = |table: &str, line: &str| {
        if !entries(manifest, table).any(|(_, found)| found.split(" #").next() == Some(line)) {
            faults.push(format!("`{line}` is missing in [{table}]"));
        }
    };
    must("workspace", "resolver = \"3\"");
    must("workspace.package", &format!("license = \"{LICENSE}\""));
    must("workspace.lints.rust", "unsafe_code = \"forbid\"");
    must("workspace.lints.clippy", "incompatible_msrv = \"warn\"");
    faults.extend(order_faults(manifest, "workspace.dependencies"));
    for (number, line) in entries(manifest, "workspace.dependencies") {
        if !line.contains("default-features = false") {
            faults.push(format!("line {number}: `{}` lacks `default-features = false`", key(line)));
        }
    }
    faults
}

/// The lines of a table that are not blank or a comment, each with its number.
fn entries<'a>(manifest: &'a str, table: &str) -> impl Iterator<Item = (usize, &'a str)> {
    lines(manifest, table).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// All lines of a table.
fn lines<'a>(manifest: &'a str, table: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let head = format!("[{table}]");
    manifest
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .skip_while(move |(_, line)| *line != head)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
}

/// Neighbours in the wrong order; a blank line begins a new group.
fn order_faults(manifest: &str, table: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut before = "";
    for (number, line) in lines(manifest, table) {
        if line.is_empty() {
            before = "";
        } else if !line.starts_with('#') {
            let key = key(line);
            if key < before {
                faults.push(format!("line {number}: `{key}` stands after `{before}`"));
            }
            before = key;
        }
    }
    faults
}

/// `name` of `name.workspace = true` and `name = ...`.
fn key(line: &str) -> &str {
    line.split(['.', ' ', '=']).next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: &str = "[package]\nname = \"a\"\ndescription = \"b\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n\
        repository.workspace = true\ncategories.workspace = true\nkeywords.workspace = true\n\
        readme = \"README.md\"\n\n\
        [dependencies]\nbytes.workspace = true\nserde = { workspace = true, optional = true }\n\n\
        [lints]\nworkspace = true\n";

    const ROOT: &str = "[workspace]\nresolver = \"3\"\n\n[workspace.package]\nlicense = \"MIT OR Apache-2.0\"\n\n\
        [workspace.dependencies]\n# Ours.\nb = { path = \"b\", default-features = false }\n\n\
        a = { version = \"1\", default-features = false }\n\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n\n\
        [workspace.lints.clippy]\nincompatible_msrv = \"warn\" # the floor\n";

    #[test]
    fn good_manifests_have_no_faults() {
        assert_eq!(member_faults(MEMBER), Vec::<String>::new());
        assert_eq!(root_faults(ROOT), Vec::<String>::new());
    }

    #[test]
    fn what_a_member_lacks_is_named() {
        let bad = MEMBER
            .replace("license.workspace = true", "license = \"GPL-3.0\"")
            .replace("[lints]\nworkspace = true", "")
            .replace("bytes.workspace = true", "zz.workspace = true\nbytes = \"1\" # not of the workspace");
        assert_eq!(
            member_faults(&bad),
            [
                "`license.workspace = true` is missing",
                "`[lints] workspace = true` is missing",
                "line 15: `bytes` stands after `zz`",
                "line 15: `bytes` does not come from the workspace",
            ]
        );
    }

    #[test]
    fn a_private_member_needs_no_registry_fields() {
        let private = MEMBER
            .replace("repository.workspace = true\ncategories.workspace = true\n", "publish = false\n")
            .replace("keywords.workspace = true\n", "");
        assert_eq!(member_faults(&private), Vec::<String>::new());
        let published = private.replace("publish = false\n", "");
        assert_eq!(
            member_faults(&published),
            ["`repository.workspace = true` is missing", "`categories` is missing", "`keywords` is missing",]
        );
    }

    #[test]
    fn what_the_root_lacks_is_named() {
        let bad = ROOT
            .replace("forbid", "deny")
            .replace("version = \"1\", default-features = false", "version = \"1\"");
        assert_eq!(
            root_faults(&bad),
            [
                "`unsafe_code = \"forbid\"` is missing in [workspace.lints.rust]",
                "line 11: `a` lacks `default-features = false`",
            ]
        );
    }
}
