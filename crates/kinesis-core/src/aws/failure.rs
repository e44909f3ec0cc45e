//! Failures of calls, told apart by what a caller would do about them.

use std::fmt;

use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::operation::RequestId;

/// What a failed call means to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The stream, shard or consumer does not exist.
    NotFound,
    /// The caller may not do this, or has no valid credentials.
    AccessDenied,
    /// Too many calls or bytes, for Kinesis or for its key service.
    Throttled,
    /// The shard iterator is older than five minutes.
    ExpiredIterator,
    /// The service refuses the request: trying it again unchanged cannot help.
    Invalid,
    /// The resource is not in a state for this call.
    InUse,
    /// The service failed.
    Server,
    /// The call took too long. Whether it had an effect is unknown.
    Timeout,
    /// The service could not be reached, or the connection broke. Whether the call had an effect is unknown.
    Transport,
    /// Anything else.
    Other,
}

/// A failed call: its kind, the service's code and request id, and the text of its causes. It keeps no request and no
/// response: those have payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFailure {
    kind: FailureKind,
    code: Option<String>,
    request_id: Option<String>,
    text: String,
}

impl ServiceFailure {
    /// Takes what is worth keeping from an SDK error.
    pub fn new<E, R>(error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: fmt::Debug + 'static,
        SdkError<E, R>: RequestId + ProvideErrorMetadata,
        SdkError<E, R>: std::error::Error,
    {
        let code = error.code().map(str::to_owned);
        let kind = match error {
            SdkError::TimeoutError(_) => FailureKind::Timeout,
            SdkError::DispatchFailure(failure) if failure.is_timeout() => FailureKind::Timeout,
            SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => FailureKind::Transport,
            SdkError::ServiceError(_) => code.as_deref().map_or(FailureKind::Server, kind_of),
            _ => FailureKind::Other,
        };
        let text = match error.message() {
            Some(message) => message.to_owned(),
            // The SDK's own form of this prints the debug text too, and with it payloads.
            None => crate::error_chain(error),
        };
        Self { kind, code, request_id: error.request_id().map(str::to_owned), text }
    }

    /// A failure that was noticed on this side.
    pub fn local(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, code: None, request_id: None, text: text.into() }
    }

    /// A failure that the service reports by code inside a successful answer.
    pub fn from_code(code: impl Into<String>, text: impl Into<String>) -> Self {
        let code = code.into();
        Self { kind: kind_of(&code), code: Some(code), request_id: None, text: text.into() }
    }

    /// What it means to the caller.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The service's code, for example `ProvisionedThroughputExceededException`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The service's request id, for AWS support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Whether the service refuses the sequence number to start at as one that it has no longer. A number of another
    /// shard ("It encodes ...") is a mistake of the caller, and starting this shard anew would hide it.
    #[must_use]
    pub fn is_rejected_position(&self) -> bool {
        self.code() == Some("InvalidArgumentException") && !self.text.contains("It encodes")
    }

    /// Whether the same call can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::NotFound | FailureKind::AccessDenied | FailureKind::Invalid => false,
            FailureKind::Throttled
            | FailureKind::ExpiredIterator
            | FailureKind::InUse
            | FailureKind::Server
            | FailureKind::Timeout
            | FailureKind::Transport
            | FailureKind::Other => true,
        }
    }
}

fn kind_of(code: &str) -> FailureKind {
    match code {
        "ResourceNotFoundException" => FailureKind::NotFound,
        "AccessDeniedException"
        | "AccessDenied"
        | "KMSAccessDeniedException"
        | "KMSDisabledException"
        | "KMSInvalidStateException"
        | "KMSNotFoundException"
        | "KMSOptInRequired"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "ExpiredTokenException"
        | "IncompleteSignature" => FailureKind::AccessDenied,
        "ProvisionedThroughputExceededException"
        | "LimitExceededException"
        | "KMSThrottlingException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "SlowDown" => FailureKind::Throttled,
        "ExpiredIteratorException" => FailureKind::ExpiredIterator,
        "InvalidArgumentException"
        | "ValidationException"
        | "UnknownOperationException"
        | "SerializationException" => FailureKind::Invalid,
        "ResourceInUseException" => FailureKind::InUse,
        "InternalFailure" | "InternalFailureException" | "InternalServerError" | "ServiceUnavailable" => {
            FailureKind::Server
        }
        _ => FailureKind::Other,
    }
}

impl fmt::Display for ServiceFailure {
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

impl std::error::Error for ServiceFailure {}
