//! What SQLite's errors mean for a lease store.

use kinesis_core::BoxError;
use kinesis_core::lease::StoreError;

/// Primary result codes, <https://www.sqlite.org/rescode.html>.
const ERROR: i32 = 1;
const PERM: i32 = 3;
const READONLY: i32 = 8;
const CORRUPT: i32 = 11;
const CANTOPEN: i32 = 14;
const AUTH: i32 = 23;
const NOTADB: i32 = 26;

/// Errors of statements and connections; `what` names the file or table.
pub(super) fn store_error(what: &str, error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse().ok());
    // The low byte is the primary code.
    match code.map(|extended: i32| extended & 0xff) {
        Some(READONLY | PERM | AUTH) => misconfigured(format!("{what} is not writable"), error),
        Some(CANTOPEN) => misconfigured(format!("{what} cannot be opened or is not writable"), error),
        Some(NOTADB) => misconfigured(format!("{what} is not an SQLite database"), error),
        Some(CORRUPT) => misconfigured(format!("{what} is damaged"), error),
        Some(ERROR) => misconfigured(format!("{what} does not have the lease table that is expected"), error),
        // Busy, full, interrupted, out of memory: may pass.
        _ => StoreError::unavailable(error),
    }
}

fn misconfigured(problem: String, error: sqlx::Error) -> StoreError {
    let source: BoxError = Box::new(error);
    StoreError::misconfigured(problem, Some(source))
}
