//! The example with transactional checkpoints, on a real PostgreSQL and with processes that are killed.
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// The longest that it may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(200);

/// S-021, S-022: worker processes are killed in the middle of their transactions, and the results have each record exactly
/// once.
#[tokio::test]
#[ignore = "needs postgres"]
async fn killed_processes_leave_each_effect_exactly_once() {
    let database = std::env::var("DATABASE_URL").expect("cargo xtask test names a server");
    let program = Command::new(env!("CARGO_BIN_EXE_postgres-exactly-once"))
        .args(["--records", "1500", "--kills", "6"])
        .env_clear()
        .env("DATABASE_URL", database)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, program).await.expect("it ends").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let expected = serde_json::json!({
        "produced": 1500, "processed": 1500, "lost": 0, "duplicates": 0, "off_by": 0, "killed": 6
    });
    assert_eq!(report, expected);
}
