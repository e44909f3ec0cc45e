//! `tidy`: house rules that no compiler checks.

use anyhow::{Result, bail};

use crate::manifest;
use crate::source::{self, Line};
use crate::workspace::Workspace;
use crate::{annotations, args, services};

/// Longer files are to be split.
const MAX_LINES: usize = 600;

/// A line, or the one above it, with this word says why debug output is harmless there.
const DEBUG_OK: &str = "debug-ok: ";

/// The same for a duration that has no name.
const DURATION_OK: &str = "duration-ok: ";

/// Ways to write a duration, each followed by the rest of its name and its numbers.
const DURATIONS: &[&str] = &["Duration::from_", "Duration::new"];

/// Files and folders whose durations are settings, limits of the service, or situations of tests.
const DURATION_PLACES: &[&str] = &["/config.rs", "/limits.rs", "/conformance/", "/scenarios/", "/sim/"];

const PRINTING: &[&str] = &["println!", "eprintln!", "print!", "eprint!", "dbg!"];

/// Macros and remarks that mark unfinished work.
const UNFINISHED_CODE: &[&str] = &["todo!", "unimplemented!"];
const UNFINISHED_REMARKS: &[&str] = &["FIXME", "TODO", "XXX"];

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    check(workspace)
}

/// Fails with every broken rule.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let faults = faults(workspace)?;
    if !faults.is_empty() {
        bail!("{} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    println!("tidy: {} Rust files keep the house rules", workspace.rust_files()?.len());
    Ok(())
}

fn faults(workspace: &Workspace) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in workspace.rust_files()? {
        let lines = source::scan(&workspace.read(&file)?);
        let found = file_faults(&file, &lines);
        faults.extend(found.into_iter().map(|(line, fault)| format!("{file}:{line}: {fault}")));
    }
    let mut in_manifest = |path: &str, found: Vec<String>| {
        faults.extend(found.into_iter().map(|fault| format!("{path}: {fault}")));
    };
    in_manifest("Cargo.toml", manifest::root_faults(&workspace.read("Cargo.toml")?));
    let crates = workspace.crates()?;
    let folders = crates.iter().map(|name| format!("crates/{name}"));
    for folder in folders.chain(["examples".to_owned(), "xtask".to_owned()]) {
        let path = format!("{folder}/Cargo.toml");
        in_manifest(&path, manifest::member_faults(&workspace.read(&path)?));
    }
    for name in &crates {
        faults.extend(crate_faults(workspace, name)?);
    }
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if !workspace.exists(file) {
            faults.push(format!("{file} is missing"));
        }
    }
    faults.extend(services::plan(&annotations::tests(workspace)?).faults);
    Ok(faults)
}

/// Files that each library crate has besides its manifest.
fn crate_faults(workspace: &Workspace, name: &str) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let library = format!("crates/{name}/src/lib.rs");
    if workspace.exists(&library) && !workspace.read(&library)?.contains("include_str!(\"../README.md\")") {
        faults.push(format!("{library}: the crate's documentation does not include its README.md"));
    }
    let changes = format!("crates/{name}/CHANGELOG.md");
    if !workspace.exists(&changes) {
        faults.push(format!("{changes} is missing"));
    } else if !workspace.read(&changes)?.contains("## [Unreleased]") {
        faults.push(format!("{changes}: no `## [Unreleased]`"));
    }
    Ok(faults)
}

/// The broken rules of one file, each with its line.
fn file_faults(file: &str, lines: &[Line]) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    if lines.len() > MAX_LINES {
        faults.push((lines.len(), format!("{} lines; split files of more than {MAX_LINES}", lines.len())));
    }
    let shipped = file.starts_with("crates/") && file.contains("/src/") && !source::is_test_file(file);
    let program = file.contains("/src/bin/") || file.ends_with("/main.rs");
    let debug_impls = source::items(lines, is_debug_impl);
    let named = source::items(lines, names_values);
    let anonymous = shipped && !program && !DURATION_PLACES.iter().any(|place| file.contains(place));
    let mut above = "";
    for (index, line) in lines.iter().enumerate() {
        let mut fault = |text: &str| faults.push((index + 1, text.to_owned()));
        if let Some(word) = unfinished(line) {
            fault(&format!("unfinished: `{word}`"));
        }
        if shipped && line.code.replace(' ', "").contains("cfg(not(feature") {
            fault("features are additive: no `cfg(not(feature))`");
        }
        if shipped && !program && !line.test && prints(&line.code) {
            fault("a library does not print");
        }
        let excused = debug_impls[index] || above.contains(DEBUG_OK) || line.comment.contains(DEBUG_OK);
        if shipped && !line.test && !excused && (debug_format(&line.text) || debug_field(&line.code)) {
            fault("debug output may hold payloads: use Display, or say `// debug-ok: why`");
        }
        let excused = named[index] || above.contains(DURATION_OK) || line.comment.contains(DURATION_OK);
        if anonymous && !line.test && !excused && literal_duration(&line.code) {
            fault("a duration is a setting, or a constant with a name: or say `// duration-ok: why`");
        }
        above = &line.comment;
    }
    faults
}

fn unfinished(line: &Line) -> Option<&'static str> {
    let in_code = UNFINISHED_CODE.iter().find(|word| line.code.contains(*word));
    let in_remark =
        || UNFINISHED_REMARKS.iter().find(|word| source::words(&line.comment).any(|found| found == **word));
    in_code.or_else(in_remark).copied()
}

fn prints(code: &str) -> bool {
    PRINTING.iter().any(|name| {
        code.match_indices(name).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}

/// The place where a type of ours decides what its debug output shows.
fn is_debug_impl(code: &str) -> bool {
    let code = code.trim_start();
    code.starts_with("impl") && (code.contains(" Debug for ") || code.contains("fmt::Debug for "))
}

/// The place where values get a name, or defaults that the settings document.
fn names_values(code: &str) -> bool {
    let mut words = source::words(code).skip_while(|word| ["pub", "crate", "super"].contains(word));
    match (words.next(), words.next()) {
        (Some("const"), next) => next != Some("fn"),
        (Some("static"), _) => true,
        (Some("impl"), _) => code.contains(" Default for "),
        _ => false,
    }
}

/// Whether the code makes a duration of a number that stands there.
fn literal_duration(code: &str) -> bool {
    DURATIONS.iter().any(|way| {
        code.match_indices(way).any(|(at, _)| {
            let rest = code[at + way.len()..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            rest.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit())
        })
    })
}

/// `{:?}`, `{name:#?}` and the like in a string.
fn debug_format(text: &str) -> bool {
    text.match_indices("?}").any(|(at, _)| {
        let opened = text[..at].rfind('{');
        let inside = opened.map(|open| &text[open + 1..at]);
        // A doubled brace is a plain brace. A precision is for durations and floats.
        let doubled = opened.is_some_and(|open| text[..open].ends_with('{'));
        let is_debug = |inside: &str| inside.contains(':') && !inside.contains('}') && !inside.contains(":.");
        !doubled && inside.is_some_and(is_debug)
    })
}

/// `?name` or `field = ?value` in a tracing macro: a question mark before an operand instead of after it.
fn debug_field(code: &str) -> bool {
    code.match_indices('?').any(|(at, _)| {
        let after = &code[at + 1..];
        let operand = after.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '&' || c == '*');
        let before = code[..at].trim_end();
        let opens = before.is_empty() || before.ends_with(['(', ',', '=']);
        operand && opens
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(file: &str, code: &str) -> Vec<(usize, String)> {
        file_faults(file, &source::scan(code))
    }

    const LIBRARY: &str = "crates/a/src/b.rs";

    #[test]
    fn the_workspace_keeps_the_house_rules() {
        assert_eq!(faults(&Workspace::here().unwrap()).unwrap(), Vec::<String>::new());
    }

    /// D-07: every member takes the workspace's lints, which forbid unsafe code.
    #[test]
    fn no_member_may_use_unsafe_code() {
        let workspace = Workspace::here().unwrap();
        let root = workspace.read("Cargo.toml").unwrap();
        assert!(root.contains("unsafe_code = \"forbid\""));
        for name in workspace.crates().unwrap() {
            let manifest = workspace.read(&format!("crates/{name}/Cargo.toml")).unwrap();
            assert!(manifest.contains("[lints]\nworkspace = true"), "{name}");
        }
    }

    #[test]
    fn a_file_of_more_than_600_lines_is_to_be_split() {
        assert_eq!(faults_of(LIBRARY, &"a;\n".repeat(600)), []);
        let faults = faults_of("examples/src/bin/c.rs", &"a;\n".repeat(601));
        assert_eq!(faults, [(601, "601 lines; split files of more than 600".to_owned())]);
    }

    #[test]
    fn libraries_do_not_print() {
        let printing = "fn f() {\n  println!();\n}\n";
        assert_eq!(faults_of(LIBRARY, printing), [(2, "a library does not print".to_owned())]);
        assert_eq!(faults_of("crates/a/src/bin/b.rs", printing), []);
        assert_eq!(faults_of("crates/a/tests/b.rs", printing), []);
        assert_eq!(faults_of(LIBRARY, &format!("#[cfg(test)]\nmod t {{\n{printing}}}\n")), []);
        assert_eq!(faults_of(LIBRARY, "// println!()\nlet a = \"println!()\";\n"), []);
    }

    #[test]
    fn debug_output_needs_a_reason() {
        for code in [
            "f!(\"{:?}\", e)",
            "f!(\"{e:#?}\")",
            "f!(\"{0:02x?} a\", e)",
            "warn!(?error, \"x\")",
            "warn!(error = ?e)",
            "warn!(\n  ?error,\n)",
        ] {
            assert_eq!(faults_of(LIBRARY, code).len(), 1, "{code}");
            assert_eq!(faults_of(LIBRARY, &format!("#[cfg(test)]\nmod t {{\n{code}\n}}")), [], "{code}");
        }
        for code in [
            "f(a?, b)?",
            "f!(\"{}? {{:?}}\", e)",
            "T: ?Sized",
            "let a = b?;",
            "warn!(%error)",
            "f!(\"{:.1?}\", t)",
        ] {
            assert_eq!(faults_of(LIBRARY, code), [], "{code}");
        }
        assert_eq!(faults_of(LIBRARY, "impl fmt::Debug for A {\n  f!(\"{:?}\", e)\n}"), []);
        assert_eq!(faults_of(LIBRARY, "// debug-ok: an enum of ours\nf!(\"{:?}\", e)"), []);
    }

    /// S-113, S-114: durations of a library are settings or have a name that explains them.
    #[test]
    fn durations_have_a_name() {
        for code in [
            "sleep(Duration::from_millis(10))",
            "time::Duration::from_secs_f64(0.5)",
            "Duration::new(5, 0)",
            "pub const fn wait() -> Duration {\n  Duration::from_secs(1)\n}",
        ] {
            assert_eq!(faults_of(LIBRARY, code).len(), 1, "{code}");
            assert_eq!(faults_of(LIBRARY, &format!("#[cfg(test)]\nmod t {{\n{code}\n}}")), [], "{code}");
            for place in ["crates/a/src/config.rs", "crates/a/tests/b.rs", "crates/a/src/sim/b.rs"] {
                assert_eq!(faults_of(place, code), [], "{place}: {code}");
            }
        }
        for code in [
            "const A: Duration = Duration::from_secs(1);",
            "pub(crate) const A: Delays =\n    Delays::new(Duration::from_secs(1), Duration::from_secs(2));",
            "impl Default for A {\n  fn default() -> Self {\n    Self(Duration::from_secs(1))\n  }\n}",
            "// duration-ok: a fault\nf(Duration::from_secs(1))",
            "Duration::from_secs(seconds)",
            "Duration::from_millis(u64::from(n) * 2)",
        ] {
            assert_eq!(faults_of(LIBRARY, code), [], "{code}");
        }
    }

    #[test]
    fn unfinished_work_is_seen() {
        assert_eq!(faults_of(LIBRARY, "todo!()"), [(1, "unfinished: `todo!`".to_owned())]);
        let remark = format!("// {}: later", "FIXME");
        assert_eq!(faults_of("xtask/src/a.rs", &remark), [(1, "unfinished: `FIXME`".to_owned())]);
    }

    #[test]
    fn features_only_add() {
        assert_eq!(
            faults_of(LIBRARY, "#[cfg(not(feature = \"a\"))]"),
            [(1, "features are additive: no `cfg(not(feature))`".to_owned())]
        );
    }
}
