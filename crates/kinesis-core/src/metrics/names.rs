//! Every metric of these crates, in one place. Each is emitted in one place too.
//!
//! The names that users know from other Kinesis libraries are kept exactly; what is new here is in base units, with
//! latencies as histograms.

use super::{Desc, Kind, Unit};

macro_rules! metrics {
    ($($(#[$group:meta])* $ident:ident = $name:literal, $kind:ident, $unit:ident, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $help)]
            pub static $ident: Desc =
                Desc { name: $name, kind: Kind::$kind, unit: Unit::$unit, help: $help };
        )*

        /// All metrics, in the order of the documentation.
        pub static ALL: &[&Desc] = &[$(&$ident),*];
    };
}

metrics! {
    MILLIS_BEHIND_LATEST = "millis_behind_latest", Gauge, Milliseconds, "How far the shard is behind the tip of the stream.";
    RECORDS_PROCESSED = "records_processed_total", Counter, Count, "Records that a handler finished.";
    BYTES_PROCESSED = "bytes_processed_total", Counter, Bytes, "Payload bytes that a handler finished, as they were on the wire, without keys.";
    PROCESS_DURATION = "process_duration_ms", Gauge, Milliseconds, "How long the last batch took in the handler.";
    PROCESS_SECONDS = "process_duration_seconds", Histogram, Seconds, "How long batches take in the handler.";
    FETCH_DURATION = "fetch_duration_ms", Gauge, Milliseconds, "How long the last GetRecords took (polling only).";
    EMPTY_POLLS = "empty_polls_total", Counter, Count, "GetRecords without records (polling only).";
    ITERATOR_REFRESHES = "iterator_refreshes_total", Counter, Count, "Expired iterators that were replaced (polling only).";
    FETCH_ERRORS = "fetch_errors_total", Counter, Count, "GetRecords that failed (polling only).";
    PROCESS_ERRORS = "process_errors_total", Counter, Count, "Failures of a handler that outlived its retries.";
    RECORDS_UNDECODED = "records_undecoded_total", Counter, Count, "Kinesis records that look like an aggregate and could not be split.";
    RECORDS_FILTERED = "records_filtered_total", Counter, Count, "User records left out because their hash key belongs to another shard (range_filter).";
    PROGRESS_AGE = "progress_age_seconds", Gauge, Seconds, "For how long the oldest unfinished record of the shard has been in work without progress; 0 when none is.";
    LEASES_LOST = "lease_lost_total", Counter, Count, "Leases lost to another worker or to expiry.";
    EFO_RECONNECTS = "efo_reconnects_total", Counter, Count, "Subscriptions opened anew after a failure (enhanced fan-out only).";
    EFO_STREAM_ERRORS = "efo_stream_errors_total", Counter, Count, "Subscriptions that ended with an error (enhanced fan-out only).";
    UP = "up", Gauge, Count, "1 while the consumer runs, 0 after it stopped.";
    UPTIME = "uptime_ms", Gauge, Milliseconds, "How long the consumer ran, set when it stops; label result = success or error.";
    RECORDS_SENT = "records_sent_total", Counter, Count, "Records that the service stored, those in aggregates each.";
    BYTES_SENT = "bytes_sent_total", Counter, Bytes, "Payload bytes that the service stored at the first attempt, as they were on the wire.";
    USER_BYTES_SENT = "user_bytes_sent_total", Counter, Bytes, "Payload bytes of stored records as they were put, before aggregation and compression.";
    KINESIS_RECORDS_SENT = "kinesis_records_sent_total", Counter, Count, "Kinesis records that the service stored; an aggregate is one.";
    RECORDS_MISPLACED = "records_misplaced_total", Counter, Count, "Records sent again because a reshard led their aggregate into a shard where not all of it belongs.";
    SHARD_LISTINGS = "shard_listings_total", Counter, Count, "Listings of the shards for aggregation.";
    SHARD_LISTING_ERRORS = "shard_listing_errors_total", Counter, Count, "Listings of the shards for aggregation that failed.";
    PUT_LATENCY = "put_latency_ms", Gauge, Milliseconds, "How long the last PutRecords took.";
    RECORDS_RETRIED = "records_retried_total", Counter, Count, "Records sent again after a failure of their own.";
    RECORDS_FAILED = "records_failed_total", Counter, Count, "Records given up after all retries.";
    PUT_ERRORS = "put_errors_total", Counter, Count, "PutRecords calls that failed as a whole.";
    BUFFER_UTILIZATION = "buffer_utilization", Gauge, Percent, "How full the producer's buffer is.";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-174: counters end in `_total`, names are unique and in one form.
    #[test]
    fn names_are_unique_and_counters_end_in_total() {
        let mut seen = std::collections::BTreeSet::new();
        for desc in ALL {
            assert!(seen.insert(desc.name), "{} twice", desc.name);
            assert_eq!(desc.kind == Kind::Counter, desc.name.ends_with("_total"), "{}", desc.name);
            assert!(desc.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", desc.name);
        }
    }
}
