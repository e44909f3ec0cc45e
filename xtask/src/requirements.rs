//! `docs/requirements.md`: one line per number, and what shows that it holds.
//!
//! A line is `- **S-001** text -> targets`. Targets are separated by `; `: a test in backticks, a path in
//! backticks, `later: capability` or `reason: ...`. A `later:` stays beside the first tests until the
//! capability is there and somebody removes it. The check fails for a number without a target, a target that does not
//! exist and a number that is missing, out of order or listed twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::annotations::{self, Test, number_length};
use crate::args;
use crate::workspace::Workspace;

const FILE: &str = "docs/requirements.md";

/// Its tables end with a column of tests.
const TRAPS: &str = "docs/sdk-traps.md";

/// Each kind of number and how many there are.
const KINDS: &[(char, usize, usize)] = &[('S', 248, 3), ('R', 13, 2), ('D', 7, 2), ('F', 46, 2)];

const LATER: &str = "later: ";

/// What may follow `later:`.
const CAPABILITIES: &[&str] = &[
    "engine",
    "facade",
    "formats",
    "leases",
    "middleware",
    "operations",
    "producer",
    "read paths",
    "test service",
];

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match args::flag(args, &["--suggest", "--write"])? {
        None => check(workspace),
        Some(mode) => refresh(workspace, mode == "--write"),
    }
}

/// Fails with every fault of the document.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let tests = annotations::tests(workspace)?;
    let entries = parse(&workspace.read(FILE)?)?;
    let mut faults = faults(&entries, &tests, |path| workspace.exists(path));
    faults.extend(trap_faults(&workspace.read(TRAPS)?, &tests));
    if !faults.is_empty() {
        bail!("{FILE}, {TRAPS}: {} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    let count = |later: bool| entries.iter().filter(|entry| entry.is_later() == later).count();
    println!("requirements: {} are met, {} are to come", count(false), count(true));
    Ok(())
}

fn refresh(workspace: &Workspace, write: bool) -> Result<()> {
    let tests = annotations::tests(workspace)?;
    let old = workspace.read(FILE)?;
    let new = mapped(&old, &tests)?;
    if write {
        fs::write(workspace.root().join(FILE), &new).with_context(|| format!("writing {FILE}"))?;
        return check(workspace);
    }
    for (before, after) in old.lines().zip(new.lines()) {
        if before != after {
            println!("{after}");
        }
    }
    Ok(())
}

/// One line of the document.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    number: String,
    text: String,
    targets: Vec<String>,
}

impl Entry {
    /// Whether something of it is still to come.
    fn is_later(&self) -> bool {
        self.targets.iter().any(|target| target.starts_with(LATER))
    }

    fn render(&self) -> String {
        format!("- **{}** {} -> {}", self.number, self.text, self.targets.join("; ")).trim_end().to_owned()
    }
}

fn parse_line(line: &str) -> Result<Option<Entry>> {
    let Some(rest) = line.strip_prefix("- **") else {
        return Ok(None);
    };
    let Some(length) = number_length(rest).filter(|length| rest[*length..].starts_with("** ")) else {
        return Ok(None);
    };
    let number = rest[..length].to_owned();
    let body = &rest[length + 3..];
    let Some((text, targets)) = body.rsplit_once(" ->") else {
        bail!("{number}: the line has no ` -> `");
    };
    let targets =
        targets.split("; ").map(str::trim).filter(|target| !target.is_empty()).map(str::to_owned).collect();
    Ok(Some(Entry { number, text: text.trim().to_owned(), targets }))
}

fn parse(document: &str) -> Result<Vec<Entry>> {
    document.lines().filter_map(|line| parse_line(line).transpose()).collect()
}

/// Everything wrong with the document, in its order.
fn faults(entries: &[Entry], tests: &[Test], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let names: BTreeSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    let mut faults = numbering_faults(entries);
    for entry in entries {
        let number = &entry.number;
        if entry.text.is_empty() {
            faults.push(format!("{number}: no text"));
        }
        if entry.targets.is_empty() {
            faults.push(format!("{number}: neither a test nor a path nor `later:` nor `reason:`"));
        }
        for target in &entry.targets {
            if let Some(fault) = target_fault(target, &names, &exists) {
                faults.push(format!("{number}: {fault}"));
            }
        }
    }
    let known: BTreeSet<&str> = entries.iter().map(|entry| entry.number.as_str()).collect();
    for test in tests {
        for number in test.numbers.iter().filter(|number| !known.contains(number.as_str())) {
            faults.push(format!(
                "{}:{}: `{}` names the unknown number {number}",
                test.file, test.line, test.name
            ));
        }
    }
    faults
}

fn numbering_faults(entries: &[Entry]) -> Vec<String> {
    let mut faults = Vec::new();
    for &(kind, count, digits) in KINDS {
        let expected: Vec<String> = (1..=count).map(|n| format!("{kind}-{n:0digits$}")).collect();
        let listed: Vec<&str> = entries
            .iter()
            .map(|entry| entry.number.as_str())
            .filter(|number| number.starts_with(kind))
            .collect();
        for number in &expected {
            match listed.iter().filter(|listed| *listed == number).count() {
                1 => {}
                0 => faults.push(format!("{number}: missing")),
                times => faults.push(format!("{number}: listed {times} times")),
            }
        }
        for number in &listed {
            if !expected.iter().any(|known| known == number) {
                faults.push(format!("{number}: no such number"));
            }
        }
        if faults.is_empty() && !listed.is_sorted() {
            faults.push(format!("the {kind} numbers are out of order"));
        }
    }
    faults
}

fn target_fault(target: &str, tests: &BTreeSet<&str>, exists: impl Fn(&str) -> bool) -> Option<String> {
    if let Some(later) = target.strip_prefix(LATER) {
        let capability = later.split(" (").next().unwrap_or(later);
        return (!CAPABILITIES.contains(&capability)).then(|| format!("unknown capability `{capability}`"));
    }
    if let Some(reason) = target.strip_prefix("reason: ") {
        return reason.trim().is_empty().then(|| "an empty reason".to_owned());
    }
    let Some(name) = target.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else {
        return Some(format!("cannot read the target `{target}`"));
    };
    if name.contains(['/', '.']) {
        (!exists(name)).then(|| format!("no such path: {name}"))
    } else {
        (!tests.contains(name)).then(|| format!("no such test: {name}"))
    }
}

/// The tests that the last column of a table names and that do not exist; a row without any.
fn trap_faults(document: &str, tests: &[Test]) -> Vec<String> {
    let mut faults = Vec::new();
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let last_cells = rows.filter_map(|row| row.trim_end().strip_suffix(" |")?.rsplit_once(" | "));
    for (_, cell) in last_cells.filter(|(_, cell)| !["tests", "---"].contains(cell)) {
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            faults.push(format!("no test in `{cell}`"));
        }
        let unknown = names.iter().filter(|name| !tests.iter().any(|test| test.name == **name));
        faults.extend(unknown.map(|name| format!("no such test: {name}")));
    }
    faults
}

/// The document with its tests replaced by those that name each number.
///
/// Paths, reasons and what is to come stay: they are somebody's judgement.
fn mapped(document: &str, tests: &[Test]) -> Result<String> {
    let mut by_number: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for test in tests {
        for number in &test.numbers {
            by_number.entry(number).or_default().insert(&test.name);
        }
    }
    let mut new = String::new();
    for line in document.lines() {
        match parse_line(line)? {
            None => new.push_str(line),
            Some(mut entry) => {
                let named = by_number.get(entry.number.as_str());
                entry.targets = targets(&entry.targets, named);
                new.push_str(&entry.render());
            }
        }
        new.push('\n');
    }
    Ok(new)
}

fn targets(old: &[String], named: Option<&BTreeSet<&str>>) -> Vec<String> {
    let mut new: Vec<String> = named.into_iter().flatten().map(|name| format!("`{name}`")).collect();
    let is_test = |target: &str| target.starts_with('`') && !target.contains(['/', '.']);
    new.extend(old.iter().filter(|target| !is_test(target)).cloned());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, numbers: &[&str]) -> Test {
        Test {
            name: name.to_owned(),
            file: "a.rs".to_owned(),
            line: 7,
            numbers: numbers.iter().map(|number| (*number).to_owned()).collect(),
            ignored: None,
        }
    }

    /// A document with every number, all of them to come.
    fn complete() -> String {
        let mut document = String::from("# Title\n\n");
        for &(kind, count, digits) in KINDS {
            for n in 1..=count {
                document.push_str(&format!("- **{kind}-{n:0digits$}** Text. -> later: engine\n"));
            }
        }
        document
    }

    fn faults_of(document: &str, tests: &[Test]) -> Vec<String> {
        faults(&parse(document).unwrap(), tests, |path| path == "docs/there.md")
    }

    #[test]
    fn a_complete_document_has_no_faults() {
        assert_eq!(faults_of(&complete(), &[]), Vec::<String>::new());
    }

    #[test]
    fn missing_repeated_and_unknown_numbers_are_faults() {
        let document = complete()
            .replace("- **S-002** Text. -> later: engine\n", "")
            .replace("- **D-07**", "- **D-06**")
            .replace("- **F-46**", "- **F-47**");
        assert_eq!(
            faults_of(&document, &[]),
            [
                "S-002: missing",
                "D-06: listed 2 times",
                "D-07: missing",
                "F-46: missing",
                "F-47: no such number"
            ]
        );
    }

    #[test]
    fn numbers_out_of_order_are_a_fault() {
        let document = complete()
            .replace("**R-01**", "**R-xx**")
            .replace("**R-02**", "**R-01**")
            .replace("**R-xx**", "**R-02**");
        assert_eq!(faults_of(&document, &[]), ["the R numbers are out of order"]);
    }

    #[test]
    fn targets_must_exist() {
        let line = "- **R-01** Text. -> later: engine\n";
        let with = |targets: &str| {
            let document = complete().replace(line, &format!("- **R-01** Text. -> {targets}\n"));
            faults_of(&document, &[test("there", &[])])
        };
        assert_eq!(with("`there`; `docs/there.md`; later: leases (the rest)"), Vec::<String>::new());
        assert_eq!(with("reason: the service does it"), Vec::<String>::new());
        assert_eq!(with("`gone`"), ["R-01: no such test: gone"]);
        assert_eq!(with("`docs/gone.md`"), ["R-01: no such path: docs/gone.md"]);
        assert_eq!(with("later: never"), ["R-01: unknown capability `never`"]);
        assert_eq!(with("there"), ["R-01: cannot read the target `there`"]);
        assert_eq!(with(""), ["R-01: neither a test nor a path nor `later:` nor `reason:`"]);
    }

    #[test]
    fn a_test_that_names_an_unknown_number_is_a_fault() {
        assert_eq!(
            faults_of(&complete(), &[test("t", &["S-999"])]),
            ["a.rs:7: `t` names the unknown number S-999"]
        );
    }

    #[test]
    fn the_tests_of_a_table_must_exist() {
        let document =
            "| a | tests |\n| --- | --- |\n| `b` | `there`, `gone` |\n| `there` | none |\ntext `x`\n";
        let faults = trap_faults(document, &[test("there", &[])]);
        assert_eq!(faults, ["no such test: gone", "no test in `none`"]);
    }

    #[test]
    fn a_line_without_an_arrow_is_refused() {
        let error = parse("- **S-001** Text.\n").unwrap_err();
        assert_eq!(error.to_string(), "S-001: the line has no ` -> `");
    }

    #[test]
    fn the_mapping_follows_the_tests() {
        let document = "# T\n- **S-001** A -> b -> later: engine\n- **S-002** B -> `gone`; `a/b.md`\n\
                        - **S-003** C -> later: leases (SQL)\n- **S-004** D -> `gone`\n- **S-005** E -> reason: F\n";
        let tests = [test("y", &["S-001", "S-003"]), test("x", &["S-001"])];
        assert_eq!(
            mapped(document, &tests).unwrap(),
            "# T\n- **S-001** A -> b -> `x`; `y`; later: engine\n- **S-002** B -> `a/b.md`\n\
             - **S-003** C -> `y`; later: leases (SQL)\n- **S-004** D ->\n- **S-005** E -> reason: F\n"
        );
    }
}
