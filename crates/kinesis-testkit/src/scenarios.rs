//! Named scripts: the service's side of situations from the field, ready for tests of consumers and producers.
//!
//! Each function brings a situation about on a service that runs; the client under test does the rest. Where the
//! service's own rules are all that is needed (limits of a call, the end of a shard, the take-over of a subscription)
//! there is no script: the rules are on by default. The numbers (`F-01` ...) name the situation.
//!
//! ```
//! use kinesis_testkit::{TestKinesis, scenarios};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kinesis = TestKinesis::new();
//! kinesis.create_stream("flights", 4)?;
//! scenarios::silent_subscription(&kinesis, "flights");
//! assert_eq!(kinesis.faults().pending(), 1);
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use aws_sdk_kinesis::types::ShardIteratorType;

use crate::faults::Fault;
use crate::handle::TestKinesis;
use crate::model::Operation;
use crate::server::ServeOptions;
use crate::state::KeyState;
use crate::stream_faults::{StreamFault, StreamPoint};
use crate::{Builder, Placement, ServiceError};

const FOREVER: Duration = Duration::MAX;
const THROTTLED: &str = "ProvisionedThroughputExceededException";

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

/// What is wrong with the key of a stream (F-26).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyTrouble {
    /// Every third read is throttled by the key service.
    Throttled,
    /// Access to the stream is denied.
    AccessDenied,
    /// The key is disabled, until it is set to [`KeyState::Enabled`] again.
    Disabled,
}

fn subscription(kinesis: &TestKinesis, stream: &str, at: StreamPoint, fault: StreamFault) {
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

/// F-08: the first read of each kind fails before any record: a refused GetRecords and a subscription that ends
/// before its first event.
pub fn failing_first_read(kinesis: &TestKinesis, stream: &str) {
    kinesis.faults().on(Operation::GetRecords).stream(stream).times(1).inject(Fault::InternalFailure);
    subscription(kinesis, stream, StreamPoint::AfterEvents(0), StreamFault::End);
}

/// F-09, variant A: the record at a stored position and what came before it are gone.
///
/// # Errors
/// As [`TestKinesis::trim`].
pub fn trimmed_position(
    kinesis: &TestKinesis,
    stream: &str,
    up_to: &Placement,
) -> Result<usize, ServiceError> {
    kinesis.trim(stream, &up_to.shard_id, &up_to.sequence_number)
}

/// F-09, variant B: the next start at a sequence number is refused with an argument error.
pub fn refused_position(kinesis: &TestKinesis, stream: &str) {
    let fault = Fault::Error {
        code: "InvalidArgumentException".to_owned(),
        status: 400,
        message: "StartingSequenceNumber is invalid because the sequence number has expired.".to_owned(),
    };
    kinesis.faults().on(Operation::GetShardIterator).stream(stream).times(1).inject(fault.clone());
    kinesis.faults().on(Operation::SubscribeToShard).stream(stream).times(1).inject(fault);
}

/// F-09, variant C: so many reads return nothing and a lag of a day, then the data come.
pub fn empty_reads_far_behind(kinesis: &TestKinesis, stream: &str, reads: u64) {
    let fault = Fault::EmptyPage { millis_behind: 86_400_000 };
    kinesis.faults().on(Operation::GetRecords).stream(stream).times(reads).inject(fault);
}

/// F-13: of the calls of `operation` every tenth is taken and never answered.
pub fn unanswered_calls(kinesis: &TestKinesis, operation: Operation) {
    kinesis.faults().on(operation).every(10).always().inject(Fault::Hang(FOREVER));
}

/// F-14: the next reads of `shard` are refused because their iterators have expired.
pub fn expired_iterators(kinesis: &TestKinesis, stream: &str, shard: &str, times: u64) {
    let rule = kinesis.faults().on(Operation::GetRecords).stream(stream).shard(shard);
    rule.times(times).inject(Fault::ExpireIterator);
}

/// F-24: connections are retired after every 50 requests, and every 20th request is refused unread. Serve with
/// [`idle_connections`] for the rest of it.
pub fn retired_connections(kinesis: &TestKinesis) {
    kinesis.faults().on_any().every(50).always().inject(Fault::RetireConnection);
    kinesis.faults().on_any().every(20).always().inject(Fault::RefuseStream);
}

/// F-24: how to serve so that connections are reset after five idle seconds.
pub fn idle_connections() -> ServeOptions {
    ServeOptions::new().idle_timeout(Duration::from_secs(5))
}

/// F-25: for `time`, every read and subscription of the stream is throttled.
pub fn throttled_reads(kinesis: &TestKinesis, stream: &str, time: Duration) {
    for operation in [Operation::GetRecords, Operation::GetShardIterator, Operation::SubscribeToShard] {
        kinesis.faults().on(operation).stream(stream).always().during(time).inject(Fault::Throttle);
    }
}

/// F-26: trouble with the key of the stream, for `time`.
///
/// # Errors
/// `ResourceNotFoundException`.
pub fn key_trouble(
    kinesis: &TestKinesis,
    stream: &str,
    trouble: KeyTrouble,
    time: Duration,
) -> Result<(), ServiceError> {
    let reads = [Operation::GetRecords, Operation::SubscribeToShard];
    match trouble {
        KeyTrouble::Throttled => {
            for operation in reads {
                let rule = kinesis.faults().on(operation).stream(stream).every(3).always();
                rule.during(time).inject(Fault::error("KMSThrottlingException"));
            }
        }
        KeyTrouble::AccessDenied => {
            for operation in reads {
                let rule = kinesis.faults().on(operation).stream(stream).always();
                rule.during(time).inject(Fault::AccessDenied);
            }
        }
        KeyTrouble::Disabled => kinesis.set_key_state(stream, KeyState::Disabled)?,
    }
    Ok(())
}

/// F-27: a service whose consumers take ten seconds to become active. Its control plane has the documented rates.
pub fn slow_registration() -> Builder {
    TestKinesis::builder().register_consumer_delay(Duration::from_secs(10))
}

/// F-27: a stream with `open` open shards and at least `closed` closed ones behind them.
///
/// # Errors
/// As [`TestKinesis::create_stream`] and [`TestKinesis::split`].
pub fn long_history(
    kinesis: &TestKinesis,
    stream: &str,
    open: usize,
    closed: usize,
) -> Result<(), ServiceError> {
    kinesis.create_stream(stream, open)?;
    let mut shards: Vec<String> = kinesis.shards(stream)?.into_iter().map(|shard| shard.shard_id).collect();
    // A split and the merge of its children leave three closed shards and one open one.
    for turn in 0..closed.div_ceil(3) {
        let shard = &mut shards[turn % open];
        let halves = kinesis.split(stream, shard)?;
        *shard = kinesis.merge(stream, &halves[0], &halves[1])?;
    }
    Ok(())
}

/// F-28: somebody else who reads `shard` three times a second, until the future is dropped.
pub async fn greedy_reader(kinesis: &TestKinesis, stream: &str, shard: &str) {
    let client = kinesis.client();
    let mut iterator = None;
    loop {
        if iterator.is_none() {
            let start = client.get_shard_iterator().stream_name(stream).shard_id(shard);
            let start = start.shard_iterator_type(ShardIteratorType::Latest).send().await;
            iterator = start.ok().and_then(|reply| reply.shard_iterator);
        }
        if let Some(current) = &iterator
            && let Ok(page) = client.get_records().shard_iterator(current).send().await
        {
            iterator = page.next_shard_iterator;
        }
        kinesis.clock().sleep(Duration::from_millis(333)).await;
    }
}

/// F-28: for `time`, every read of `shard` is refused for its throughput.
pub fn refused_shard(kinesis: &TestKinesis, stream: &str, shard: &str, time: Duration) {
    let rule = kinesis.faults().on(Operation::GetRecords).stream(stream).shard(shard);
    rule.always().during(time).inject(Fault::Throttle);
}

/// F-32: twice, every seventh entry is throttled and every eleventh fails.
pub fn refused_entries(kinesis: &TestKinesis, stream: &str) {
    let fault =
        Fault::All(vec![Fault::partial_failure(7, THROTTLED), Fault::partial_failure(11, "InternalFailure")]);
    kinesis.faults().on(Operation::PutRecords).stream(stream).times(2).inject(fault);
}

/// F-32, variant: some entries are refused, and the count of failures says that none was.
pub fn lying_count(kinesis: &TestKinesis, stream: &str) {
    let fault = Fault::All(vec![Fault::partial_failure(7, THROTTLED), Fault::FailedRecordCount(0)]);
    kinesis.faults().on(Operation::PutRecords).stream(stream).times(2).inject(fault);
}

/// F-33: for `time`, of all PutRecords calls some are refused as a whole, some in part and many are answered late.
/// The service's seed decides which.
pub fn random_refusals(kinesis: &TestKinesis, stream: &str, time: Duration) {
    let rule = || kinesis.faults().on(Operation::PutRecords).stream(stream).always().during(time);
    rule().chance(0.1).inject(Fault::Throttle);
    rule().chance(0.1).inject(Fault::DropReply);
    rule().chance(0.2).inject(Fault::partial_failure(3, THROTTLED));
    rule().chance(0.3).inject(Fault::LateReply(Duration::from_millis(700)));
    rule().chance(0.5).inject(Fault::LateReply(Duration::from_millis(120)));
}

/// F-35: a service whose lists of shards are ten seconds behind.
pub fn stale_shard_lists() -> Builder {
    TestKinesis::builder().shard_list_lag(Duration::from_secs(10))
}

/// F-35: for `time`, lists of shards are throttled.
pub fn throttled_shard_lists(kinesis: &TestKinesis, stream: &str, time: Duration) {
    kinesis.faults().on(Operation::ListShards).stream(stream).always().during(time).inject(Fault::Throttle);
}

/// F-35, variant: the stream is removed and made anew with as many open shards.
///
/// # Errors
/// `ResourceNotFoundException`.
pub fn remade_stream(kinesis: &TestKinesis, stream: &str) -> Result<(), ServiceError> {
    let open = kinesis.shards(stream)?.iter().filter(|shard| shard.is_open()).count();
    kinesis.delete_stream(stream)?;
    kinesis.create_stream(stream, open)
}

/// F-36: of the writes one in three hangs and one in three fails.
pub fn stuck_writes(kinesis: &TestKinesis, stream: &str) {
    for operation in [Operation::PutRecord, Operation::PutRecords] {
        let rule = || kinesis.faults().on(operation).stream(stream).always();
        rule().every(3).inject(Fault::Hang(FOREVER));
        // Asked only about the calls that the first rule leaves alone.
        rule().every(2).inject(Fault::InternalFailure);
    }
}
