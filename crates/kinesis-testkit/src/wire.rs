//! The protocol awsJson 1.1 and its CBOR twin: a target header, a body in the format, errors with `__type`.

use std::sync::Arc;

use aws_smithy_types::DateTime;
use bytes::Bytes;
use serde::Serialize;

use crate::error::ServiceError;
use crate::format::Format;
use crate::frames;
use crate::model::{Operation, Request, Response};
use crate::service::{Answer, Answered, Service};
use crate::streaming::FrameBody;
use crate::stubs;

/// The service's version, before the operation in the target header.
const TARGET_PREFIX: &str = "Kinesis_20131202.";

/// What of an HTTP request decides the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) target: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// A reply before it becomes one front's response.
#[derive(Debug)]
pub(crate) struct WireReply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: ReplyBody,
    /// The connection takes no further requests.
    pub(crate) retire: bool,
}

#[derive(Debug)]
pub(crate) enum ReplyBody {
    Whole(Bytes),
    Stream(FrameBody),
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Withheld {
    #[error("the connection closed before the reply")]
    Disconnected,
    #[error("the request was refused unread")]
    RefusedStream,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(rename = "__type")]
    code: &'a str,
    message: &'a str,
}

/// Answers one HTTP request.
pub(crate) async fn answer(service: &Arc<Service>, request: WireRequest<'_>) -> Result<WireReply, Withheld> {
    if let Some(reply) = stubs::answer(service, request) {
        return Ok(reply);
    }
    let (format, decoded) = decode(request);
    let Answered { answer, retire } = match decoded {
        Ok(request) => service.call(request, format).await,
        Err(error) => Answered { answer: Answer::Reply(Err(error)), retire: false },
    };
    let mut reply = match answer {
        Answer::Reply(result) => encode(service, format, &result),
        Answer::Stream(stream) => {
            reply(service, 200, frames::EVENT_STREAM, ReplyBody::Stream(FrameBody::new(*stream)))
        }
        Answer::Disconnected => return Err(Withheld::Disconnected),
        Answer::RefusedStream => return Err(Withheld::RefusedStream),
    };
    reply.retire = retire;
    Ok(reply)
}

/// Reads a request, and the format of its reply.
fn decode(request: WireRequest<'_>) -> (Format, Result<Request, ServiceError>) {
    let format = request.content_type.map_or(Some(Format::Json), Format::of);
    let operation = request
        .target
        .and_then(|target| target.strip_prefix(TARGET_PREFIX))
        .and_then(|name| name.parse::<Operation>().ok())
        .filter(|_| request.method == "POST");
    let decoded = match (operation, format) {
        (None, _) => Err(ServiceError::unknown_operation()),
        (_, None) => Err(ServiceError::serialization(format!(
            "The content type must be {}.",
            Format::Json.content_type()
        ))),
        (Some(operation), Some(format)) => format.decode(operation, request.body),
    };
    (format.unwrap_or(Format::Json), decoded)
}

/// Renders a reply.
pub(crate) fn encode(
    service: &Service,
    format: Format,
    result: &Result<Response, ServiceError>,
) -> WireReply {
    let (status, body) = match result {
        Ok(Response::Empty) => (200, Bytes::new()),
        Ok(response) => (200, format.encode_response(response)),
        Err(error) => {
            let body = ErrorBody { code: error.code(), message: error.message() };
            (error.status(), format.encode(&body))
        }
    };
    reply(service, status, format.content_type(), ReplyBody::Whole(body))
}

/// A reply with the headers that every one has.
pub(crate) fn reply(service: &Service, status: u16, content_type: &str, body: ReplyBody) -> WireReply {
    let date = DateTime::from_secs(service.clock.moment().seconds().cast_signed());
    let date = date.fmt(aws_smithy_types::date_time::Format::HttpDate).unwrap_or_default();
    WireReply {
        status,
        headers: vec![
            ("content-type", content_type.to_owned()),
            ("x-amzn-requestid", service.request_id()),
            // Clients anchor LATEST on the service's own time.
            ("date", date),
        ],
        body,
        retire: false,
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
    const MEMBERS: [&str; 24] = [
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
        "ConsumerARN",
        "ConsumerName",
        "StartingPosition",
        "StreamModeDetails",
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
                json!("arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:0"),
                json!({"Type": "TRIM_HORIZON", "StreamMode": "ON_DEMAND"}),
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
            format in prop::sample::select(&[Format::Json, Format::Cbor][..]),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
            let kinesis = TestKinesis::builder().clock(TestClock::manual(std::time::UNIX_EPOCH)).build();
            kinesis.create_stream("s", 2).expect("a new stream");
            kinesis.register_consumer("s", "c").expect("a new consumer");
            for (operation, mut body) in calls {
                if format == Format::Cbor
                    && let Ok(value) = serde_json::from_slice::<Value>(&body)
                {
                    body.clear();
                    ciborium::into_writer(&value, &mut body).expect("writing to memory");
                }
                let target = format!("{TARGET_PREFIX}{operation}");
                let content_type = format.content_type();
                let request = WireRequest {
                    method: "POST",
                    path: "/",
                    target: Some(&target),
                    content_type: Some(content_type),
                    body: &body,
                };
                let reply = runtime
                    .block_on(answer(kinesis.service(), request))
                    .expect("no fault is scripted");
                prop_assert!([200, 400].contains(&reply.status), "{operation}: {}", reply.status);
            }
        }
    }
}
