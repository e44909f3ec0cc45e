//! Finds the tests of the workspace, the requirements they name and the services they need.
//!
//! A test names its requirements at the start of a line of its doc comment: `/// S-153, F-32: only the
//! refused records are repeated.` It names a service as the reason for being ignored:
//! `#[ignore = "needs postgres"]`.

use anyhow::Result;

use crate::source::{self, Line};
use crate::workspace::Workspace;

/// One test function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) file: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// Requirement numbers, as `S-001`.
    pub(crate) numbers: Vec<String>,
    /// The reason of `#[ignore]`; empty where none is given.
    pub(crate) ignored: Option<String>,
}

/// All tests of the workspace, by file and line.
pub(crate) fn tests(workspace: &Workspace) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for file in workspace.rust_files()? {
        tests.extend(tests_in(&file, &source::scan(&workspace.read(&file)?)));
    }
    Ok(tests)
}

/// What stands above an item.
#[derive(Default)]
struct Head {
    numbers: Vec<String>,
    is_test: bool,
    ignored: Option<String>,
}

/// The tests of one file.
pub(crate) fn tests_in(file: &str, lines: &[Line]) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut head = Head::default();
    // Brackets still open of an attribute that spans lines.
    let mut open = 0_usize;
    for (index, line) in lines.iter().enumerate() {
        let code = line.code.trim();
        if let Some(doc) = line.comment.strip_prefix("///") {
            head.numbers.extend(numbers(doc));
        }
        if open > 0 || code.starts_with("#[") {
            if open == 0 {
                note_attribute(code, &line.text, &mut head);
            }
            open += code.matches('[').count();
            open = open.saturating_sub(code.matches(']').count());
            if open > 0 || code.ends_with(']') {
                continue;
            }
        }
        if code.is_empty() {
            continue;
        }
        let above = std::mem::take(&mut head);
        let is_case = is_suite(file) && !above.numbers.is_empty();
        if let (true, Some(name)) = (above.is_test || is_case, function_name(code)) {
            tests.push(Test {
                name: name.to_owned(),
                file: file.to_owned(),
                line: index + 1,
                numbers: above.numbers,
                ignored: above.ignored,
            });
        }
    }
    tests
}

/// A public suite, whose functions become tests where a macro lists them: one for each implementation.
fn is_suite(file: &str) -> bool {
    file.contains("/conformance/")
}

fn note_attribute(code: &str, text: &str, head: &mut Head) {
    let path: String =
        code[2..].chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
    match path.rsplit("::").next() {
        Some("test") => head.is_test = true,
        Some("ignore") => head.ignored = Some(text.trim().to_owned()),
        _ => {}
    }
}

/// The name in `pub async fn name(`; none for what a macro names.
fn function_name(code: &str) -> Option<&str> {
    let (_, after) = code.split_once("fn ")?;
    let end = after.find(['(', '<'])?;
    let name = after[..end].trim();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    plain.then_some(name)
}

/// The numbers that a line of documentation begins with: `S-153, F-32: ...`.
fn numbers(doc: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = doc.trim_start();
    while let Some(length) = number_length(rest) {
        found.push(rest[..length].to_owned());
        rest = rest[length..].trim_start_matches([',', ' ']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    found
}

/// The length of the requirement number at the start of `text`.
pub(crate) fn number_length(text: &str) -> Option<usize> {
    let digits = text.strip_prefix(['S', 'R', 'D', 'F'])?.strip_prefix('-')?;
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    (count > 0).then_some(count + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<Test> {
        tests_in("a.rs", &source::scan(source))
    }

    #[test]
    fn numbers_stand_at_the_start_of_a_doc_line() {
        assert_eq!(numbers(" S-153, F-32: only S-1"), ["S-153", "F-32"]);
        assert_eq!(numbers(" D-07 and R-12: x"), ["D-07", "R-12"]);
        assert_eq!(numbers(" see S-153"), Vec::<String>::new());
        assert_eq!(numbers(" S-: x"), Vec::<String>::new());
    }

    #[test]
    fn a_test_carries_its_numbers_and_its_place() {
        let tests =
            found("/// S-001: x\n///\n/// S-002: y\n#[test]\nfn one() {}\n/// S-003: z\nfn helper() {}\n");
        assert_eq!(tests.len(), 1);
        assert_eq!(tests[0].name, "one");
        assert_eq!(tests[0].line, 5);
        assert_eq!(tests[0].numbers, ["S-001", "S-002"]);
        assert_eq!(tests[0].ignored, None);
    }

    #[test]
    fn async_and_generated_tests_are_told_apart() {
        let tests = found(
            "#[tokio::test(\n  start_paused = true,\n)]\n#[ignore = \"needs peers\"]\nasync fn two() {}\n\
             macro_rules! m { () => {\n#[test]\nfn $name() {}\n}}\n#[test] fn three() {}\n",
        );
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["two", "three"]);
        assert_eq!(tests[0].ignored.as_deref(), Some("needs peers"));
    }

    #[test]
    fn the_cases_of_a_suite_that_name_requirements_are_tests() {
        let lines =
            source::scan("/// S-036: x\npub async fn case(f: F) {}\n/// Helps.\npub fn helper() {}\n");
        let cases = tests_in("crates/a/src/conformance/b.rs", &lines);
        assert_eq!(cases.len(), 1);
        assert_eq!(
            (cases[0].name.as_str(), cases[0].numbers.as_slice()),
            ("case", &["S-036".to_owned()][..])
        );
        assert_eq!(tests_in("crates/a/src/b.rs", &lines), []);
    }

    #[test]
    fn an_ignored_test_without_a_reason_is_seen() {
        assert_eq!(found("#[test]\n#[ignore]\nfn a() {}")[0].ignored.as_deref(), Some(""));
    }
}
