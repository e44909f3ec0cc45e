//! The services that tests need, and the stage that runs such tests.
//!
//! A test that needs a service is `#[ignore = "needs X"]`, so that a plain `cargo test` runs anywhere and
//! names what it left out.

use std::collections::BTreeMap;

use crate::annotations::Test;

/// Where the tests of a service run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// `cargo xtask peers`.
    Peers,
    /// `cargo xtask test`, which starts the service.
    Test,
    /// Nowhere yet: no task starts the service, so a test that needs it is an error.
    Unavailable,
}

/// Every service that a test may name. More words may follow the name in parentheses.
const SERVICES: &[(&str, Stage)] =
    &[("dynamodb", Stage::Unavailable), ("peers", Stage::Peers), ("postgres", Stage::Test)];

/// The ignored tests by stage, and those that no stage would run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The names of the tests of `cargo xtask peers`, by test target.
    pub(crate) peers: BTreeMap<String, Vec<String>>,
    /// The same of those tests of `cargo xtask test` that need PostgreSQL.
    pub(crate) postgres: BTreeMap<String, Vec<String>>,
    pub(crate) faults: Vec<String>,
}

/// Finds a stage for every ignored test.
pub(crate) fn plan(tests: &[Test]) -> Plan {
    let mut plan = Plan::default();
    for test in tests {
        let Some(reason) = &test.ignored else { continue };
        let place = format!("{}:{}: `{}`", test.file, test.line, test.name);
        let Some((service, stage)) = service(reason) else {
            plan.faults.push(format!("{place} is ignored; say `#[ignore = \"needs {}\"]`", known()));
            continue;
        };
        match (stage, target(&test.file)) {
            (Stage::Peers, Some(target)) => {
                plan.peers.entry(target.to_owned()).or_default().push(test.name.clone());
            }
            (Stage::Test, Some(target)) => {
                plan.postgres.entry(target.to_owned()).or_default().push(test.name.clone());
            }
            (Stage::Peers | Stage::Test, None) => {
                plan.faults.push(format!("{place} needs {service}, so it belongs below `tests`"));
            }
            (Stage::Unavailable, _) => {
                plan.faults.push(format!("{place} needs {service}, which no stage starts yet"));
            }
        }
    }
    // The ignored tests of a target are run together.
    for target in plan.peers.keys().filter(|target| plan.postgres.contains_key(*target)) {
        plan.faults.push(format!(
            "the test target `{target}` has tests that need peers and some that need postgres"
        ));
    }
    plan
}

/// The service that the reason of `#[ignore]` names.
fn service(reason: &str) -> Option<(&'static str, Stage)> {
    let name = reason.strip_prefix("needs ")?.split(" (").next()?;
    SERVICES.iter().find(|(service, _)| *service == name).copied()
}

fn known() -> String {
    let names: Vec<&str> = SERVICES.iter().map(|(name, _)| *name).collect();
    names.join("|")
}

/// The test target of a file: `a` of `.../tests/a.rs` and of `.../tests/a/b.rs`.
fn target(file: &str) -> Option<&str> {
    let (_, path) = file.split_once("/tests/")?;
    path.split('/').next().map(|name| name.trim_end_matches(".rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(file: &str, ignored: Option<&str>) -> Test {
        Test {
            name: "t".to_owned(),
            file: file.to_owned(),
            line: 3,
            numbers: Vec::new(),
            ignored: ignored.map(str::to_owned),
        }
    }

    /// S-231, S-232: every test that needs a service is ignored by plain `cargo test` with a reason that names it.
    #[test]
    fn ignored_tests_name_a_known_service() {
        let planned = plan(&[
            test("a.rs", None),
            test("crates/a/tests/http.rs", Some("needs peers")),
            test("crates/a/tests/tools/gzip.rs", Some("needs peers (the gzip tool)")),
            test("crates/a/tests/store/main.rs", Some("needs postgres")),
        ]);
        let one = || vec!["t".to_owned()];
        assert_eq!(planned.peers, [("http".to_owned(), one()), ("tools".to_owned(), one())].into());
        assert_eq!(planned.postgres, [("store".to_owned(), one())].into());
        assert_eq!(planned.faults, Vec::<String>::new());
    }

    #[test]
    fn a_target_is_run_with_one_service() {
        let planned = plan(&[
            test("crates/a/tests/b.rs", Some("needs peers")),
            test("crates/c/tests/b/d.rs", Some("needs postgres")),
        ]);
        assert_eq!(
            planned.faults,
            ["the test target `b` has tests that need peers and some that need postgres"]
        );
    }

    #[test]
    fn a_test_that_no_stage_runs_is_a_fault() {
        let planned = plan(&[
            test("crates/a/tests/b.rs", Some("")),
            test("crates/a/tests/b.rs", Some("needs redis")),
            test("crates/a/tests/b.rs", Some("needs dynamodb")),
            test("crates/a/src/b.rs", Some("needs peers")),
        ]);
        assert_eq!(planned.peers, BTreeMap::new());
        let place = "crates/a/tests/b.rs:3: `t`";
        assert_eq!(
            planned.faults,
            [
                format!("{place} is ignored; say `#[ignore = \"needs dynamodb|peers|postgres\"]`"),
                format!("{place} is ignored; say `#[ignore = \"needs dynamodb|peers|postgres\"]`"),
                format!("{place} needs dynamodb, which no stage starts yet"),
                "crates/a/src/b.rs:3: `t` needs peers, so it belongs below `tests`".to_owned(),
            ]
        );
    }

    /// S-231: no test of the workspace is ignored without a stage that runs it.
    #[test]
    fn every_ignored_test_of_the_workspace_has_a_stage() {
        let workspace = crate::workspace::Workspace::here().unwrap();
        let tests = crate::annotations::tests(&workspace).unwrap();
        let planned = plan(&tests);
        assert_eq!(planned.faults, Vec::<String>::new());
        let ignored = tests.iter().filter(|test| test.ignored.is_some()).count();
        let run = planned.peers.values().chain(planned.postgres.values());
        assert_eq!(run.map(Vec::len).sum::<usize>(), ignored);
    }
}
