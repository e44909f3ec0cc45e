//! The errors that the service answers with.

/// An error as the service answers it: a code, an HTTP status and a message.
///
/// Helpers of [`TestKinesis`](crate::TestKinesis) return it directly; over the wire it becomes the body of the
/// reply, and the SDK's typed error on the client's side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ServiceError {
    code: String,
    status: u16,
    message: String,
}

impl ServiceError {
    /// An error with any code, HTTP status and message.
    pub fn new(code: impl Into<String>, status: u16, message: impl Into<String>) -> Self {
        Self { code: code.into(), status, message: message.into() }
    }

    /// The code, for example `ResourceNotFoundException`.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The HTTP status: 400 for the caller's errors, 500 or 503 for the service's.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same call may succeed later: throttles, busy resources and the service's own failures.
    pub fn is_retryable(&self) -> bool {
        self.status >= 500
            || matches!(
                self.code.as_str(),
                "ProvisionedThroughputExceededException"
                    | "LimitExceededException"
                    | "ResourceInUseException"
                    | "KMSThrottlingException"
            )
    }

    pub(crate) fn resource_not_found(message: impl Into<String>) -> Self {
        Self::new("ResourceNotFoundException", 400, message)
    }

    pub(crate) fn resource_in_use(message: impl Into<String>) -> Self {
        Self::new("ResourceInUseException", 400, message)
    }

    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new("InvalidArgumentException", 400, message)
    }

    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new("ValidationException", 400, message)
    }

    pub(crate) fn limit_exceeded(message: impl Into<String>) -> Self {
        Self::new("LimitExceededException", 400, message)
    }

    pub(crate) fn throughput_exceeded(message: impl Into<String>) -> Self {
        Self::new("ProvisionedThroughputExceededException", 400, message)
    }

    pub(crate) fn expired_iterator(message: impl Into<String>) -> Self {
        Self::new("ExpiredIteratorException", 400, message)
    }

    pub(crate) fn expired_next_token(message: impl Into<String>) -> Self {
        Self::new("ExpiredNextTokenException", 400, message)
    }

    pub(crate) fn access_denied(message: impl Into<String>) -> Self {
        Self::new("AccessDeniedException", 400, message)
    }

    pub(crate) fn dry_run() -> Self {
        Self::new(
            "DryRunOperationException",
            400,
            "The request was rejected because the DryRun parameter was specified.",
        )
    }

    pub(crate) fn internal_failure() -> Self {
        Self::new("InternalFailure", 500, "The request processing has failed because of an unknown error.")
    }

    pub(crate) fn serialization(message: impl Into<String>) -> Self {
        Self::new("SerializationException", 400, message)
    }

    pub(crate) fn unknown_operation() -> Self {
        Self::new("UnknownOperationException", 400, "The operation is not known to this service.")
    }

    /// The service's wording for one value that breaks a constraint of the model.
    pub(crate) fn constraint(value: &str, member: &str, constraint: &str) -> Self {
        Self::validation(format!(
            "1 validation error detected: Value {value} at '{member}' failed to satisfy constraint: Member must \
             {constraint}"
        ))
    }

    /// The service's wording for a required member that is absent.
    pub(crate) fn missing(member: &str) -> Self {
        Self::constraint("null", member, "not be null")
    }
}
