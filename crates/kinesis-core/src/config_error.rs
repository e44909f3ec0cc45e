//! The error of every crate's settings.

/// A setting that is missing or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid setting `{field}`: {problem}")]
pub struct ConfigError {
    field: &'static str,
    problem: String,
}

impl ConfigError {
    /// Says of the setting `field` what is wrong, as in "must be at least 1".
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }

    /// The setting's name.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Never: the same settings are refused again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}
