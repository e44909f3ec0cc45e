//! The services that tests need, and the stage that runs such tests.
//!
//! A test that needs a service is `#[ignore = "needs X"]`, so that a plain `cargo test` runs anywhere and
//! names what it left out.

use crate::annotations::Test;

/// Where the tests of a service run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// `cargo xtask peers`, in test targets whose names begin with `peers`.
    Peers,
    /// Nowhere yet: no task starts the service, so a test that needs it is an error.
    Unavailable,
}

/// Every service that a test may name.
const SERVICES: &[(&str, Stage)] =
    &[("dynamodb", Stage::Unavailable), ("peers", Stage::Peers), ("postgres", Stage::Unavailable)];

/// The ignored tests by stage, and those that no stage would run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) peers: Vec<String>,
    pub(crate) faults: Vec<String>,
}

/// Finds a stage for every ignored test.
pub(crate) fn plan(tests: &[Test]) -> Plan {
    let mut plan = Plan::default();
    for test in tests {
        let Some(reason) = &test.ignored else { continue };
        let place = format!("{}:{}: `{}`", test.file, test.line, test.name);
        let Some((service, stage)) = reason
            .strip_prefix("needs ")
            .and_then(|name| SERVICES.iter().find(|(service, _)| *service == name))
        else {
            plan.faults.push(format!("{place} is ignored; say `#[ignore = \"needs {}\"]`", known()));
            continue;
        };
        match stage {
            Stage::Peers if in_peers_target(&test.file) => plan.peers.push(test.name.clone()),
            Stage::Peers => {
                plan.faults.push(format!("{place} needs peers but its test target is not named `peers*`"))
            }
            Stage::Unavailable => {
                plan.faults.push(format!("{place} needs {service}, which no stage starts yet"))
            }
        }
    }
    plan.peers.sort();
    plan
}

fn known() -> String {
    let names: Vec<&str> = SERVICES.iter().map(|(name, _)| *name).collect();
    names.join("|")
}

/// `.../tests/peers.rs`, `.../tests/peers_http.rs` or a module of such a target.
fn in_peers_target(file: &str) -> bool {
    file.split_once("/tests/").is_some_and(|(_, target)| target.starts_with("peers"))
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
        let peers = "crates/a/tests/peers_http.rs";
        let planned = plan(&[test("a.rs", None), test(peers, Some("needs peers"))]);
        assert_eq!(planned.peers, ["t"]);
        assert_eq!(planned.faults, Vec::<String>::new());
    }

    #[test]
    fn a_test_that_no_stage_runs_is_a_fault() {
        let planned = plan(&[
            test("crates/a/tests/peers.rs", Some("")),
            test("crates/a/tests/peers.rs", Some("needs redis")),
            test("crates/a/tests/peers.rs", Some("needs postgres")),
            test("crates/a/tests/other.rs", Some("needs peers")),
        ]);
        assert_eq!(planned.peers, Vec::<String>::new());
        let place = "crates/a/tests/peers.rs:3: `t`";
        assert_eq!(
            planned.faults,
            [
                format!("{place} is ignored; say `#[ignore = \"needs dynamodb|peers|postgres\"]`"),
                format!("{place} is ignored; say `#[ignore = \"needs dynamodb|peers|postgres\"]`"),
                format!("{place} needs postgres, which no stage starts yet"),
                "crates/a/tests/other.rs:3: `t` needs peers but its test target is not named `peers*`"
                    .to_owned(),
            ]
        );
    }
}
