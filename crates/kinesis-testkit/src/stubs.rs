//! Small answers of other services, for clients that ask them for something on the way: STS GetCallerIdentity and
//! CloudWatch PutMetricData, in each of the protocols that SDKs use for them.

use bytes::Bytes;
use serde::Serialize;

use crate::service::Service;
use crate::wire::{self, ReplyBody, WireReply, WireRequest};

const XML: &str = "text/xml";
const FORM: &str = "application/x-www-form-urlencoded";
const RPC_CBOR: &str = "application/cbor";

/// The version of CloudWatch, before the operation in the target header and in the path.
const CLOUD_WATCH: &str = "GraniteServiceVersion20100801";

/// Answers a request that is meant for one of the other services; none for any other request.
pub(crate) fn answer(service: &Service, request: WireRequest<'_>) -> Option<WireReply> {
    let media_type = request.content_type.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if media_type == Some(FORM) {
        return Some(query(service, request.body));
    }
    if request.target.is_some_and(|target| target.strip_prefix(CLOUD_WATCH).is_some()) {
        let known = request.target.is_some_and(|target| target.ends_with(".PutMetricData"));
        let body = if known { "{}" } else { r#"{"__type":"UnknownOperationException"}"# };
        let status = if known { 200 } else { 400 };
        let body = ReplyBody::Whole(Bytes::from_static(body.as_bytes()));
        return Some(wire::reply(service, status, request.content_type.unwrap_or_default(), body));
    }
    let operation = request.path.strip_prefix("/service/")?.strip_prefix(CLOUD_WATCH)?;
    let known = operation == "/operation/PutMetricData";
    let mut body = Vec::new();
    let encoded = if known {
        ciborium::into_writer(&Empty {}, &mut body)
    } else {
        ciborium::into_writer(&RpcError { code: "UnknownOperationException" }, &mut body)
    };
    encoded.expect("writing to memory does not fail");
    let status = if known { 200 } else { 404 };
    let mut reply = wire::reply(service, status, RPC_CBOR, ReplyBody::Whole(body.into()));
    reply.headers.push(("smithy-protocol", "rpc-v2-cbor".to_owned()));
    Some(reply)
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct RpcError {
    #[serde(rename = "__type")]
    code: &'static str,
}

/// The query protocol: a form in, XML out.
fn query(service: &Service, body: &[u8]) -> WireReply {
    let body = String::from_utf8_lossy(body);
    let action = body.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default();
    let request_id = service.request_id();
    let account = service.account();
    let (status, text) = match action {
        "GetCallerIdentity" => (
            200,
            format!(
                "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                 <GetCallerIdentityResult><Arn>arn:aws:iam::{account}:user/kinesis-testkit</Arn>\
                 <UserId>AIDAKINESISTESTKIT</UserId><Account>{account}</Account></GetCallerIdentityResult>\
                 <ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
            ),
        ),
        "PutMetricData" => (
            200,
            format!(
                "<PutMetricDataResponse xmlns=\"http://monitoring.amazonaws.com/doc/2010-08-01/\"><ResponseMetadata>\
                 <RequestId>{request_id}</RequestId></ResponseMetadata></PutMetricDataResponse>"
            ),
        ),
        _ => (
            400,
            format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code><Message>The action is not known \
                 to this service.</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
            ),
        ),
    };
    wire::reply(service, status, XML, ReplyBody::Whole(text.into()))
}
