//! The wire format awsJson 1.1: a target header, JSON bodies, errors with `__type`.

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use bytes::Bytes;
use serde::Serialize;

use crate::error::ServiceError;
use crate::model::{Operation, Request, Response};
use crate::service::{Answer, Service};

/// The content type of requests and replies.
pub(crate) const JSON: &str = "application/x-amz-json-1.1";

/// The service's version, before the operation in the target header.
const TARGET_PREFIX: &str = "Kinesis_20131202.";

/// A reply before it becomes one front's response.
#[derive(Debug)]
pub(crate) struct WireReply {
    pub(crate) status: u16,
    pub(crate) headers: [(&'static str, String); 3],
    pub(crate) body: Bytes,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(rename = "__type")]
    code: &'a str,
    message: &'a str,
}

/// Answers one HTTP request; none means that the connection closes without a reply.
pub(crate) async fn answer(
    service: &Service,
    target: Option<&str>,
    content_type: Option<&str>,
    body: &[u8],
) -> Option<WireReply> {
    let answer = match decode(target, content_type, body) {
        Ok(request) => service.call(request).await,
        Err(error) => Answer::Reply(Err(error)),
    };
    match answer {
        Answer::Reply(result) => Some(encode(service, &result)),
        Answer::Disconnected => None,
    }
}

/// Reads a request.
fn decode(target: Option<&str>, content_type: Option<&str>, body: &[u8]) -> Result<Request, ServiceError> {
    let operation: Operation = target
        .and_then(|target| target.strip_prefix(TARGET_PREFIX))
        .and_then(|name| name.parse().ok())
        .ok_or_else(ServiceError::unknown_operation)?;
    if content_type.is_some_and(|kind| kind.split(';').next().unwrap_or_default().trim() != JSON) {
        return Err(ServiceError::serialization(format!("The content type must be {JSON}.")));
    }
    let body = if body.is_empty() { b"{}" } else { body };
    // The parser's message names the place, never the content.
    Request::from_json(operation, body).map_err(|error| {
        ServiceError::serialization(format!(
            "The body is not the input of {operation}: line {} column {}",
            error.line(),
            error.column()
        ))
    })
}

/// Renders a reply.
pub(crate) fn encode(service: &Service, result: &Result<Response, ServiceError>) -> WireReply {
    let (status, body) = match result {
        Ok(Response::Empty) => (200, Ok(Vec::new())),
        Ok(response) => (200, serde_json::to_vec(response)),
        Err(error) => {
            let body = ErrorBody { code: error.code(), message: error.message() };
            (error.status(), serde_json::to_vec(&body))
        }
    };
    let body = body.expect("replies are plain structures with string keys");
    let date = DateTime::from_secs(service.clock.moment().seconds().cast_signed());
    let date = date.fmt(Format::HttpDate).unwrap_or_default();
    WireReply {
        status,
        headers: [
            ("content-type", JSON.to_owned()),
            ("x-amzn-requestid", service.request_id()),
            // Clients anchor LATEST on the service's own time.
            ("date", date),
        ],
        body: body.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::TestKinesis;
    use crate::clock::TestClock;

    /// Members of the inputs, so that random bodies get past the parser.
    const MEMBERS: [&str; 20] = [
        "StreamName",
        "StreamARN",
        "ShardId",
        "ShardIterator",
        "ShardIteratorType",
        "StartingSequenceNumber",
        "Timestamp",
        "Limit",
        "MaxResults",
        "NextToken",
        "ExclusiveStartShardId",
        "ShardFilter",
        "Records",
        "Data",
        "PartitionKey",
        "ExplicitHashKey",
        "ShardToSplit",
        "NewStartingHashKey",
        "TargetShardCount",
        "ScalingType",
    ];

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(|number| json!(number)),
            any::<f64>().prop_map(|number| json!(number)),
            ".{0,20}".prop_map(|text| json!(text)),
            prop::sample::select(vec![
                json!(null),
                json!("s"),
                json!("shardId-000000000000"),
                json!("shardId-999999999999"),
                json!("TRIM_HORIZON"),
                json!("AT_TIMESTAMP"),
                json!("AFTER_SEQUENCE_NUMBER"),
                json!("UNIFORM_SCALING"),
                json!("340282366920938463463374607431768211455"),
                json!("arn:aws:kinesis:us-east-1:123456789012:stream/s"),
                json!("czEvMS8wL2EvMTg0NDY3NDQwNzM3MDk1NTE2MTU="),
                json!([{"Data": "AA==", "PartitionKey": "k"}, {"Data": "AA=="}]),
                json!({"Type": "AT_TIMESTAMP", "Timestamp": -1e300}),
                json!({"Type": "AFTER_SHARD_ID", "ShardId": "shardId-999999999999"}),
            ]),
        ]
    }

    fn body() -> impl Strategy<Value = Vec<u8>> {
        let object =
            prop::collection::vec((prop::sample::select(&MEMBERS[..]), value()), 0..8).prop_map(|members| {
                let object: Map<_, _> =
                    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                Value::Object(object).to_string().into_bytes()
            });
        prop_oneof![4 => object, 1 => prop::collection::vec(any::<u8>(), 0..64)]
    }

    proptest! {
        #[test]
        fn any_body_gets_a_reply_and_never_a_panic(
            calls in prop::collection::vec((prop::sample::select(&Operation::ALL[..]), body()), 1..20),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
            let kinesis = TestKinesis::builder().clock(TestClock::manual(std::time::UNIX_EPOCH)).build();
            kinesis.create_stream("s", 2).expect("a new stream");
            for (operation, body) in calls {
                let target = format!("{TARGET_PREFIX}{operation}");
                let reply = runtime
                    .block_on(answer(kinesis.service(), Some(&target), Some(JSON), &body))
                    .expect("no fault is scripted");
                prop_assert!([200, 400].contains(&reply.status), "{operation}: {}", reply.status);
            }
        }
    }
}
