//! Situations of writes: F-32 to F-34 and F-36.

use std::time::Duration;

use bytes::Bytes;

use super::{FOREVER, THROTTLED};
use crate::Builder;
use crate::faults::Fault;
use crate::handle::TestKinesis;
use crate::limits::{
    DEFAULT_MAX_RECORD_KIB, PARTITION_KEY_CHARS, WRITE_BYTES_PER_CALL, WRITE_RECORDS_PER_CALL,
};
use crate::model::Operation;
use crate::rule::Rule;

/// A character of four bytes: the longest partition key is made of such.
const WIDE_CHARACTER: &str = "\u{1f980}";

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

/// F-34: a service that refuses nothing but what breaks a limit of one call: the quotas per second are off, the limits
/// of records and calls, counted in bytes of data and partition keys, are on.
pub fn exact_limits() -> Builder {
    TestKinesis::builder().without(Rule::WriteByteRate).without(Rule::WriteRecordRate)
}

/// F-34: keys and data that lie at the limits of one call. All of them can be stored, but not in one call:
///
/// - a record of exactly the limit of a stream that sets none, once with a key of one byte and once with the longest
///   key, which has 1,024 bytes in 256 characters;
/// - eleven records whose data alone stay just below the limit of a call and with their keys do not;
/// - one small record more than a call takes.
pub fn edge_records() -> Vec<(String, Bytes)> {
    let limit = DEFAULT_MAX_RECORD_KIB as usize * 1_024;
    let longest = WIDE_CHARACTER.repeat(PARTITION_KEY_CHARS);
    let data = |length: usize| Bytes::from(vec![0x5a; length]);
    let mut records = vec![("k".to_owned(), data(limit - 1)), (longest.clone(), data(limit - longest.len()))];
    let eleventh = WRITE_BYTES_PER_CALL as usize / 11 - 1;
    records.extend((0..11).map(|_| (longest.clone(), data(eleventh))));
    records.extend((0..=WRITE_RECORDS_PER_CALL).map(|number| (format!("small-{number}"), data(10))));
    records
}

/// F-34: a record that is one byte too large for a stream that sets no limit of its own.
pub fn oversized_record() -> (String, Bytes) {
    let limit = DEFAULT_MAX_RECORD_KIB as usize * 1_024;
    ("k".to_owned(), Bytes::from(vec![0x5a; limit]))
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
