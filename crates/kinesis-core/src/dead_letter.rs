use crate::Record;

/// Why a record was given to the dead-letter service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// The handler failed as often as allowed.
    AttemptsExhausted,
    /// The handler said that trying again cannot help.
    PermanentFailure,
    /// The payload could not be decoded.
    Undecodable,
}

/// A record that could not be processed, with what is known about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The record; its payload is as it came from the wire when it could not be decoded.
    pub record: Record,
    /// Why it is here.
    pub reason: DeadLetterReason,
    /// How often the handler was tried.
    pub attempts: u32,
    /// The last error, with its causes, as text.
    pub error: String,
}

impl DeadLetter {
    /// A dead letter.
    pub fn new(record: Record, reason: DeadLetterReason, attempts: u32, error: impl Into<String>) -> Self {
        Self { record, reason, attempts, error: error.into() }
    }
}
