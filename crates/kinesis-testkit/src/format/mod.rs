//! The body formats: JSON, and Amazon's CBOR with its own form of times.

mod cbor;
mod json;
#[cfg(test)]
mod samples;

use bytes::Bytes;
use serde::Serialize;

use crate::error::ServiceError;
use crate::model::{Operation, Request, Response, SubscribeToShardEvent};

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// `application/x-amz-json-1.1`
    Json,
    /// `application/x-amz-cbor-1.1`: the same members, binary data as such, times as tagged milliseconds.
    Cbor,
}

impl Format {
    /// The format with this content type; parameters of the type do not matter.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/x-amz-json-1.1" => Some(Self::Json),
            "application/x-amz-cbor-1.1" => Some(Self::Cbor),
            _ => None,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/x-amz-json-1.1",
            Self::Cbor => "application/x-amz-cbor-1.1",
        }
    }

    /// An object without members.
    pub(crate) fn empty(self) -> &'static [u8] {
        match self {
            Self::Json => b"{}",
            Self::Cbor => b"\xa0",
        }
    }

    /// Reads the input of an operation. An empty body is an object without members.
    pub(crate) fn decode(self, operation: Operation, body: &[u8]) -> Result<Request, ServiceError> {
        let body = if body.is_empty() { self.empty() } else { body };
        // The parsers' messages name the place, never the content.
        let refuse = |place: String| {
            ServiceError::serialization(format!("The body is not the input of {operation}: {place}"))
        };
        match self {
            Self::Json => Request::from_json(operation, body)
                .map_err(|error| refuse(format!("line {} column {}", error.line(), error.column()))),
            Self::Cbor => Request::from_cbor(operation, body).map_err(|error| {
                refuse(match error {
                    ciborium::de::Error::Syntax(offset) | ciborium::de::Error::Semantic(Some(offset), _) => {
                        format!("offset {offset}")
                    }
                    ciborium::de::Error::Io(_) => "it is cut".to_owned(),
                    _ => "some member".to_owned(),
                })
            }),
        }
    }

    /// Renders a value.
    pub(crate) fn encode(self, value: &impl Serialize) -> Bytes {
        let mut body = Vec::new();
        match self {
            Self::Json => {
                serde_json::to_writer(&mut body, value)
                    .expect("replies are plain structures with string keys");
            }
            Self::Cbor => ciborium::into_writer(value, &mut body).expect("writing to memory does not fail"),
        }
        body.into()
    }

    /// Renders the output of an operation.
    pub(crate) fn encode_response(self, response: &Response) -> Bytes {
        match (self, response) {
            (Self::Json, Response::GetRecords(output)) => json::get_records(output).into(),
            (Self::Json, Response::PutRecords(output)) => json::put_records(output).into(),
            (Self::Cbor, Response::GetRecords(output)) => cbor::get_records(output).into(),
            _ => self.encode(response),
        }
    }

    /// Renders an event of a subscription.
    pub(crate) fn encode_event(self, event: &SubscribeToShardEvent) -> Bytes {
        match self {
            Self::Json => json::event(event).into(),
            Self::Cbor => cbor::event(event).into(),
        }
    }
}
