//! Situations of subscriptions: F-01 to F-07, F-17 and S-246.

use std::time::Duration;

use aws_sdk_kinesis::types::{ShardIteratorType, StartingPosition};

use super::FOREVER;
use crate::faults::Fault;
use crate::handle::TestKinesis;
use crate::model::Operation;
use crate::server::ServeOptions;
use crate::stream_faults::{StreamFault, StreamPoint};
use crate::{Builder, ServiceError};

/// How long a rival whose call was refused waits before its next one.
const RIVAL_PAUSE: Duration = Duration::from_secs(1);

/// The data of the records of [`unread_backlog`], in bytes.
const BACKLOG_RECORD: usize = 1_000_000;

/// What may end a subscription as an error frame (F-03): each kind that the service's model knows, and one that
/// nobody has heard of.
pub const ERROR_FRAMES: [&str; 10] = [
    "InternalFailureException",
    "ResourceInUseException",
    "ResourceNotFoundException",
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "KMSOptInRequired",
    "KMSThrottlingException",
    "NobodyKnowsThisException",
];

/// How the transport dies inside of an event (F-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Break {
    /// The connection is reset.
    Reset,
    /// The body ends as if it were complete.
    End,
}

pub(super) fn subscription(kinesis: &TestKinesis, stream: &str, at: StreamPoint, fault: StreamFault) {
    let rule = kinesis.faults().on(Operation::SubscribeToShard).stream(stream);
    rule.times(1).inject(Fault::in_stream(at, fault));
}

/// F-01: the next subscription sends one event, then nothing, with its connection open. Later ones are served.
pub fn silent_subscription(kinesis: &TestKinesis, stream: &str) {
    subscription(kinesis, stream, StreamPoint::AfterEvents(1), StreamFault::Silence(FOREVER));
}

/// F-02: the next subscription to `shard` is answered with headers and then no frame at all.
pub fn no_first_frame(kinesis: &TestKinesis, stream: &str, shard: &str) {
    let fault = Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::Silence(FOREVER));
    kinesis.faults().on(Operation::SubscribeToShard).stream(stream).shard(shard).times(1).inject(fault);
}

/// F-03: the next subscription sends three events, then an error frame with `code`, see [`ERROR_FRAMES`].
pub fn error_frame(kinesis: &TestKinesis, stream: &str, code: &str) {
    subscription(kinesis, stream, StreamPoint::AfterEvents(3), StreamFault::exception(code));
}

/// F-04: the next subscription sends two events and half of a third.
pub fn broken_event(kinesis: &TestKinesis, stream: &str, how: Break) {
    let fault = match how {
        Break::Reset => StreamFault::CutInside,
        Break::End => StreamFault::EndInside,
    };
    subscription(kinesis, stream, StreamPoint::AfterEvents(2), fault);
}

/// F-05: for `time`, every subscription ends one second after it was accepted.
pub fn short_subscriptions(kinesis: &TestKinesis, stream: &str, time: Duration) {
    let end = Fault::in_stream(StreamPoint::AfterTime(Duration::from_secs(1)), StreamFault::End);
    kinesis.faults().on(Operation::SubscribeToShard).stream(stream).always().during(time).inject(end);
}

/// F-06: the next subscription ends in order after so many events; on a quiet shard all but the first are without
/// records and move the continuation point on.
pub fn planned_end(kinesis: &TestKinesis, stream: &str, events: u64) {
    subscription(kinesis, stream, StreamPoint::AfterEvents(events), StreamFault::End);
}

/// F-07: how to serve so that all calls of a client share one HTTP/2 connection, which unread streams use up.
/// Needs the feature `tls`.
pub fn shared_connection() -> ServeOptions {
    ServeOptions::new().tls()
}

/// F-07: at least `bytes` bytes in each open shard, so that every subscription from the oldest record has much to send.
///
/// # Errors
/// As [`TestKinesis::put_at`].
pub fn unread_backlog(kinesis: &TestKinesis, stream: &str, bytes: usize) -> Result<(), ServiceError> {
    let data = bytes::Bytes::from(vec![0x5a; BACKLOG_RECORD]);
    for shard in kinesis.shards(stream)?.into_iter().filter(crate::ShardView::is_open) {
        for _ in 0..bytes.div_ceil(BACKLOG_RECORD) {
            kinesis.put_at(stream, shard.starting_hash_key, "backlog", data.clone())?;
        }
    }
    Ok(())
}

/// F-17: `records` records, then the end of the shard: a split into two children. A subscription that is open gets
/// its last event with the records, the children and no continuation point, and ends; so does one that starts later.
/// Subscriptions from an empty sequence number are refused with an argument error, as always. Returns the children.
///
/// # Errors
/// As [`TestKinesis::put_at`] and [`TestKinesis::split`].
pub fn last_event_of_shard(
    kinesis: &TestKinesis,
    stream: &str,
    shard: &str,
    records: usize,
) -> Result<Vec<String>, ServiceError> {
    let views = kinesis.shards(stream)?;
    let range = views.iter().find(|view| view.shard_id == shard).map(|view| view.starting_hash_key);
    for record in 0..records {
        kinesis.put_at(stream, range.unwrap_or_default(), "last", record.to_string())?;
    }
    kinesis.split(stream, shard)
}

/// S-246: another instance that wants `shard` for the same consumer: it subscribes from the tip, is refused within
/// five seconds of a success, takes over after them, and comes back a second after it has lost the shard. Until the
/// future is dropped. Spawn it, or select it against the client under test.
pub async fn rival_subscriber(kinesis: &TestKinesis, consumer_arn: &str, shard: &str) {
    let client = kinesis.client();
    let start = StartingPosition::builder().r#type(ShardIteratorType::Latest).build();
    let start = start.expect("a start needs its type only");
    loop {
        let subscribe = client.subscribe_to_shard().consumer_arn(consumer_arn).shard_id(shard);
        if let Ok(mut subscription) = subscribe.starting_position(start.clone()).send().await {
            while let Ok(Some(_)) = subscription.event_stream.recv().await {}
        }
        kinesis.clock().sleep(RIVAL_PAUSE).await;
    }
}

/// S-246: a service whose subscriptions live for `life` and not for five minutes, for tests in real time.
pub fn short_lives(life: Duration) -> Builder {
    TestKinesis::builder().subscription_life(life)
}
