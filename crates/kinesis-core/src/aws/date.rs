//! The service's time, from its answers.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_kinesis::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_kinesis::primitives::{DateTime, DateTimeFormat};

use super::timestamp;
use crate::{BoxError, Timestamp};

/// An interceptor that keeps the `Date` header of an answer: the service's time, to the second.
///
/// Give a clone to the call and ask the other one afterwards.
#[derive(Debug, Clone, Default)]
pub struct DateHeader(Arc<Mutex<Option<Timestamp>>>);

impl DateHeader {
    /// The time of the last answer, also of a refusal; `None` before one came.
    #[must_use]
    pub fn get(&self) -> Option<Timestamp> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for DateHeader {
    fn name(&self) -> &'static str {
        "DateHeader"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|text| DateTime::from_str(text, DateTimeFormat::HttpDate).ok());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date.as_ref().map(timestamp);
        Ok(())
    }
}
