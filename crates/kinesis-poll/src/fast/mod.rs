//! A decoder of its own for the answers of GetRecords.
//!
//! The SDK's JSON scanner takes most of the time of a read. Here an interceptor takes the records out of the answer's body
//! before the SDK sees it: payloads are decoded straight into one buffer for the page, and what is left for the SDK is an
//! answer without records. Signing, retries, errors and everything else stay the SDK's. An answer that is not understood
//! goes to the SDK as it came.

mod answer;
mod body;

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_kinesis::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_types::body::SdkBody;
use kinesis_core::BoxError;
use kinesis_core::source::SourceRecord;

use self::body::Tap;

const OK: u16 = 200;
const JSON: &str = "application/x-amz-json-1.1";

/// Takes the records out of one answer. Give a clone to the call and ask the other one afterwards.
#[derive(Debug, Clone, Default)]
pub(crate) struct FastDecode(Arc<Mutex<Option<Vec<SourceRecord>>>>);

impl FastDecode {
    /// The records; `None` when the SDK has them.
    pub(crate) fn take(&self) -> Option<Vec<SourceRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, records: Vec<SourceRecord>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(records);
    }
}

impl Intercept for FastDecode {
    fn name(&self) -> &'static str {
        "FastDecode"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // The answer of an earlier attempt, should the caller's client make several.
        drop(self.take());
        let response = context.response_mut();
        if response.status().as_u16() == OK && response.headers().get("content-type") == Some(JSON) {
            let body = std::mem::replace(response.body_mut(), SdkBody::taken());
            *response.body_mut() = SdkBody::from_body_1_x(Tap::new(body, self.clone()));
        }
        Ok(())
    }
}
