//! What PostgreSQL's errors mean for a lease store.

use kinesis_core::BoxError;
use kinesis_core::lease::StoreError;

/// A table that a statement names is not there, or not what it should be,
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
const UNDEFINED_TABLE: &str = "42P01";
const UNDEFINED_COLUMN: &str = "42703";
const DATATYPE_MISMATCH: &str = "42804";
const UNDEFINED_OPERATOR: &str = "42883";
/// No unique index has the columns of the key.
const NO_SUCH_KEY: &str = "42P10";
const INVALID_SCHEMA: &str = "3F000";
const UNKNOWN_DATABASE: &str = "3D000";
const NO_PERMISSION: &str = "42501";
/// What a stand-by answers, and a server that was told to accept no writes.
const READ_ONLY: &str = "25006";

/// Errors of connections and statements; `what` names the table.
pub(super) fn store_error(what: &str, error: sqlx::Error) -> StoreError {
    if matches!(error, sqlx::Error::Configuration(_) | sqlx::Error::Tls(_)) {
        return misconfigured("the connection settings of PostgreSQL cannot be used".to_owned(), error);
    }
    let Some(code) = code(&error) else {
        // The connection broke, or none was to be had in time.
        return StoreError::unavailable(error);
    };
    match code.as_str() {
        NO_PERMISSION => misconfigured(format!("the role has no permission for {what}"), error),
        UNDEFINED_TABLE | INVALID_SCHEMA => misconfigured(format!("{what} does not exist"), error),
        UNDEFINED_COLUMN | DATATYPE_MISMATCH | UNDEFINED_OPERATOR => {
            misconfigured(format!("{what} does not have the columns that are expected"), error)
        }
        NO_SUCH_KEY => misconfigured(format!("{what} does not have the key that is expected"), error),
        UNKNOWN_DATABASE => misconfigured("the database does not exist".to_owned(), error),
        // Class 28: invalid authorization.
        code if code.starts_with("28") => {
            misconfigured("PostgreSQL refuses the user name or the password".to_owned(), error)
        }
        // Everything else may pass: a server that stops or starts or is a stand-by, no connection or memory left, a lock
        // that was waited for too long, a conflict with another transaction.
        _ => StoreError::unavailable(error),
    }
}

/// Whether the connection leads to a server that takes no writes: the next one may lead elsewhere after a failover.
pub(super) fn is_read_only(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code == READ_ONLY)
}

/// Whether the values of one row are at fault (a number out of range, a text that cannot be stored), so that the
/// statement may work without it. Classes 22 and 23.
pub(super) fn is_of_one_row(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

fn misconfigured(problem: String, error: sqlx::Error) -> StoreError {
    let source: BoxError = Box::new(error);
    StoreError::misconfigured(problem, Some(source))
}
