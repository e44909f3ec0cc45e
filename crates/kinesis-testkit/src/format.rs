//! The body formats: JSON and Amazon's CBOR.

use bytes::Bytes;
use serde::Serialize;

use crate::error::ServiceError;
use crate::model::{Operation, Request, Response, SubscribeToShardEvent};

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `application/x-amz-json-1.1`
    Json,
}

impl Format {
    /// The format with this content type; parameters of the type do not matter.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/x-amz-json-1.1" => Some(Self::Json),
            _ => None,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/x-amz-json-1.1",
        }
    }

    /// An object without members.
    pub(crate) fn empty(self) -> &'static [u8] {
        match self {
            Self::Json => b"{}",
        }
    }

    /// Reads the input of an operation. An empty body is an object without members.
    pub(crate) fn decode(self, operation: Operation, body: &[u8]) -> Result<Request, ServiceError> {
        let body = if body.is_empty() { self.empty() } else { body };
        match self {
            // The parser's message names the place, never the content.
            Self::Json => Request::from_json(operation, body).map_err(|error| {
                ServiceError::serialization(format!(
                    "The body is not the input of {operation}: line {} column {}",
                    error.line(),
                    error.column()
                ))
            }),
        }
    }

    /// Renders a value.
    pub(crate) fn encode(self, value: &impl Serialize) -> Bytes {
        let encoded = match self {
            Self::Json => serde_json::to_vec(value),
        };
        encoded.expect("replies are plain structures with string keys").into()
    }

    /// Renders the output of an operation.
    pub(crate) fn encode_response(self, response: &Response) -> Bytes {
        self.encode(response)
    }

    /// Renders an event of a subscription.
    pub(crate) fn encode_event(self, event: &SubscribeToShardEvent) -> Bytes {
        self.encode(event)
    }
}
