//! Situations of reads: F-08 to F-10, F-13, F-14, F-25, F-26 and F-28.

use std::time::Duration;

use aws_sdk_kinesis::types::ShardIteratorType;

use super::FOREVER;
use super::pushing::subscription;
use crate::faults::Fault;
use crate::handle::TestKinesis;
use crate::limits::READ_BYTES_PER_CALL;
use crate::model::Operation;
use crate::state::KeyState;
use crate::stream_faults::{StreamFault, StreamPoint};
use crate::{Builder, Placement, ServiceError};

/// The size of the records of [`full_pages`]: so many fill a page exactly.
const PAGE_RECORD: usize = 1 << 20;

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

/// F-10: a service whose sequence numbers grow in length: the text of a later one may sort before that of an earlier
/// one, so only a numeric comparison keeps a position from going back.
pub fn growing_sequence_numbers() -> Builder {
    TestKinesis::builder().growing_sequence_numbers()
}

/// F-13: of the calls of `operation` every tenth is taken and never answered.
pub fn unanswered_calls(kinesis: &TestKinesis, operation: Operation) {
    kinesis.faults().on(operation).every(10).always().inject(Fault::Hang(FOREVER));
}

/// F-14: a service whose iterators live for `life` and not for five minutes, so that a handler that takes longer
/// finds its iterator expired, in real time too.
pub fn short_iterators(life: Duration) -> Builder {
    TestKinesis::builder().iterator_life(life)
}

/// F-14: the next reads of `shard` are refused because their iterators have expired.
pub fn expired_iterators(kinesis: &TestKinesis, stream: &str, shard: &str, times: u64) {
    let rule = kinesis.faults().on(Operation::GetRecords).stream(stream).shard(shard);
    rule.times(times).inject(Fault::ExpireIterator);
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

/// F-28: so many full pages of 10 MiB in a shard: each read of one blocks the shard for five seconds.
///
/// # Errors
/// As [`TestKinesis::put_at`].
pub fn full_pages(
    kinesis: &TestKinesis,
    stream: &str,
    shard: &str,
    pages: usize,
) -> Result<(), ServiceError> {
    let views = kinesis.shards(stream)?;
    let range = views.iter().find(|view| view.shard_id == shard).map(|view| view.starting_hash_key);
    let data = bytes::Bytes::from(vec![0x5a; PAGE_RECORD - 1]);
    for _ in 0..pages * (READ_BYTES_PER_CALL as usize / PAGE_RECORD) {
        kinesis.put_at(stream, range.unwrap_or_default(), "p", data.clone())?;
    }
    Ok(())
}

/// F-28: for `time`, every read of `shard` is refused for its throughput.
pub fn refused_shard(kinesis: &TestKinesis, stream: &str, shard: &str, time: Duration) {
    let rule = kinesis.faults().on(Operation::GetRecords).stream(stream).shard(shard);
    rule.always().during(time).inject(Fault::Throttle);
}
