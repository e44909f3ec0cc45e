//! Registered consumers: found, registered where they are missing, never deregistered.

mod arn;
mod calls;
mod error;
mod registry;
mod wait;

pub(crate) use arn::ConsumerArn;
pub use error::RegistrationError;
pub(crate) use registry::Registry;

use kinesis_core::StreamRef;

/// A consumer of a stream that is active.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerRegistration {
    /// The stream.
    pub stream: StreamRef,
    /// The consumer's ARN, which SubscribeToShard is called with.
    pub consumer_arn: String,
}
