//! What DynamoDB's errors mean for a lease store.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::RequestId;
use kinesis_core::lease::StoreError;

/// The header in which a service says how long to wait, in milliseconds.
const RETRY_AFTER: &str = "x-amz-retry-after";

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Throttled,
    /// Also when it is unknown whether the call had an effect.
    Unavailable,
    NoTable,
    AccessDenied,
    /// The service does not accept the request.
    Invalid,
    /// The table is being made, changed or removed.
    InUse,
    /// The request could not be made at all: no region, no endpoint.
    Unsendable,
}

/// A failed call, without its request and response: those have what a checkpoint keeps.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    code: Option<String>,
    text: String,
    request_id: Option<String>,
    retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let code = error.code().map(str::to_owned);
        let kind = match error {
            SdkError::ConstructionFailure(_) => Kind::Unsendable,
            SdkError::ServiceError(_) => code.as_deref().map_or(Kind::Unavailable, kind_of),
            _ => Kind::Unavailable,
        };
        let text = match error.message() {
            Some(message) => message.to_owned(),
            None => kinesis_core::error_chain(error),
        };
        let retry_after = error.raw_response().and_then(|response| {
            let millis = response.headers().get(RETRY_AFTER)?.parse().ok()?;
            Some(Duration::from_millis(millis))
        });
        Self { kind, code, text, request_id: error.request_id().map(str::to_owned), retry_after }
    }

    /// The error of the store; `table` names the table.
    pub(super) fn into_store_error(self, table: &str) -> StoreError {
        let problem = match self.kind {
            Kind::Throttled => return StoreError::throttled(self.retry_after, self),
            Kind::Unavailable | Kind::InUse => return StoreError::unavailable(self),
            Kind::NoTable => format!("the DynamoDB table {table} does not exist"),
            Kind::AccessDenied => format!("access to the DynamoDB table {table} is denied"),
            Kind::Invalid => format!("DynamoDB refuses a request about the table {table}"),
            Kind::Unsendable => "no request to DynamoDB can be made with this configuration".to_owned(),
        };
        StoreError::misconfigured(problem, Some(Box::new(self)))
    }
}

/// The answer about `table`, or `None` where there is no such table.
pub(super) fn if_table<T, E>(
    table: &str,
    result: Result<T, SdkError<E, HttpResponse>>,
) -> Result<Option<T>, StoreError>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match result.map_err(|error| Failure::new(&error)) {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.kind == Kind::NoTable => Ok(None),
        Err(failure) => Err(failure.into_store_error(table)),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(code) = &self.code {
            write!(f, "{code}: ")?;
        }
        f.write_str(&self.text)?;
        match &self.request_id {
            Some(id) => write!(f, " (request id {id})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html>
fn kind_of(code: &str) -> Kind {
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "TooManyRequestsException"
        | "SlowDown" => Kind::Throttled,
        "ResourceNotFoundException" | "TableNotFoundException" => Kind::NoTable,
        "AccessDeniedException"
        | "AccessDenied"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignatureException"
        | "MissingAuthenticationTokenException"
        | "ExpiredTokenException"
        | "NotAuthorized" => Kind::AccessDenied,
        "ResourceInUseException" | "TableInUseException" | "ContinuousBackupsUnavailableException" => {
            Kind::InUse
        }
        "ValidationException" | "SerializationException" | "UnknownOperationException" => Kind::Invalid,
        // Internal failures, conflicts with a transaction or another region, and what is not known yet.
        _ => Kind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: Kind) -> StoreError {
        let retry_after = Some(Duration::from_millis(70));
        let (code, request_id) = (Some("Code".to_owned()), Some("r-1".to_owned()));
        Failure { kind, code, text: "why".to_owned(), request_id, retry_after }.into_store_error("leases")
    }

    #[test]
    fn failures_are_told_apart_by_what_to_do() {
        let said = |kind| kinesis_core::error_chain(&failure(kind));
        assert_eq!(said(Kind::Throttled), "the lease store throttles: Code: why (request id r-1)");
        assert_eq!(failure(Kind::Throttled).retry_after(), Some(Duration::from_millis(70)));
        assert!(failure(Kind::Unavailable).is_retryable());
        assert!(failure(Kind::InUse).is_retryable());
        for (kind, text) in [
            (Kind::NoTable, "the DynamoDB table leases does not exist"),
            (Kind::AccessDenied, "access to the DynamoDB table leases is denied"),
            (Kind::Invalid, "DynamoDB refuses a request about the table leases"),
        ] {
            assert_eq!(
                said(kind),
                format!("the lease store is not usable: {text}: Code: why (request id r-1)")
            );
            assert!(!failure(kind).is_retryable());
        }
    }

    #[test]
    fn codes_have_their_kinds() {
        assert_eq!(kind_of("ProvisionedThroughputExceededException"), Kind::Throttled);
        assert_eq!(kind_of("InternalServerError"), Kind::Unavailable);
        assert_eq!(kind_of("TransactionConflictException"), Kind::Unavailable);
        assert_eq!(kind_of("ExpiredTokenException"), Kind::AccessDenied);
    }
}
