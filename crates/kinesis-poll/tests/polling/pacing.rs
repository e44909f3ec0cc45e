//! How often a shard is read, by the service's own log of calls.

use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader};
use kinesis_poll::PollConfig;
use kinesis_testkit::{Fault, Operation, Outcome};

/// S-025: a shard at its tip is read once a second.
#[tokio::test(start_paused = true)]
async fn a_shard_at_its_tip_is_read_once_a_second() {
    let kinesis = service(1);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default());
    read_for(&mut reader, 10 * SECOND + 500 * MS).await;
    let expected: Vec<_> = (0..=10).map(|n| n * SECOND).collect();
    assert_eq!(times(&kinesis, Operation::GetRecords), expected);
}

/// S-079, S-087: a shard that is behind is read back to back within the 5 reads a second, then once a second.
#[tokio::test(start_paused = true)]
async fn a_shard_that_is_behind_is_read_five_times_a_second() {
    let kinesis = service(1);
    put(&kinesis, 0..30);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(5));
    let heard = read_for(&mut reader, 2_500 * MS).await;
    assert_eq!(heard.payloads, expected(0..30));
    let spacing = spacing(&kinesis);
    assert!(spacing.len() == 6 && spacing[..5].iter().all(is_full_rate), "{spacing:?}");
    assert_eq!(spacing[5], SECOND, "the sixth page reached the tip");
    assert!(!kinesis.calls_log().iter().any(is_refused), "the budget was not overdrawn");
}

/// S-079: an interval of 0 means the floor of 200 ms, not a tight loop.
#[tokio::test(start_paused = true)]
async fn an_interval_of_zero_means_the_floor() {
    let kinesis = service(1);
    put(&kinesis, 0..50);
    let config =
        PollConfig::default().min_interval(Duration::ZERO).idle_interval(Duration::ZERO).max_records(2);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, config);
    read_for(&mut reader, 20 * SECOND).await;
    let spacing = spacing(&kinesis);
    assert!(spacing.len() >= 95 && spacing.iter().all(is_full_rate), "{spacing:?}");
}

/// S-079, F-28: two consumers that share the budget by setting twice the interval do not get in each other's way.
#[tokio::test(start_paused = true)]
async fn two_consumers_share_the_budget_by_setting_it() {
    let kinesis = service(1);
    put(&kinesis, 0..500);
    let config = PollConfig::default().min_interval(400 * MS).max_records(10);
    let mut one = reader(&kinesis, StartPosition::TrimHorizon, config.clone());
    let mut other = reader(&kinesis, StartPosition::TrimHorizon, config);
    let (one, other) = tokio::join!(read(&mut one, 500), read(&mut other, 500));
    assert_eq!((one.payloads, other.payloads), (expected(0..500), expected(0..500)));
    assert!(!kinesis.calls_log().iter().any(is_refused));
    let took = *times(&kinesis, Operation::GetRecords).last().unwrap();
    assert!(49 * 400 * MS <= took && took <= 49 * 420 * MS, "{took:?}");
}

/// S-070, S-071: with a poll period no two reads are closer, behind or not; without one, only the read limit counts.
#[tokio::test(start_paused = true)]
async fn a_poll_period_is_the_least_spacing_of_reads() {
    assert_eq!(PollConfig::default().poll_period, Duration::ZERO);
    let kinesis = service(1);
    put(&kinesis, 0..10);
    // Failed reads count as well.
    kinesis.faults().on(Operation::GetRecords).skip(2).times(2).inject(Fault::InternalFailure);
    let config = PollConfig::default().poll_period(7 * SECOND).max_records(2);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, config);
    let heard = read_for(&mut reader, 60 * SECOND).await;
    assert_eq!(heard.payloads, expected(0..10));
    assert_eq!(spacing(&kinesis), [7 * SECOND; 8]);
}

/// S-071, S-072, S-076, S-077: a caller that gets control back every 100 ms while the gate is shut keeps the period, hears
/// nothing, and finds the delays after failures where they were; nothing is logged.
#[tokio::test(start_paused = true)]
async fn a_gate_waited_for_in_slices_keeps_its_period() {
    let kinesis = service(1);
    let captured = Captured::start();
    let period = 2 * SECOND;
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().poll_period(period));
    let mut events = 0;
    for _ in 0..1_000 {
        events += usize::from(tokio::time::timeout(100 * MS, reader.next()).await.is_ok());
    }
    assert_eq!(spacing(&kinesis), vec![period; events - 1]);
    assert!((47..=49).contains(&events), "one event per poll: {events}");
    assert_eq!(captured.take(), [""; 0]);
    // The delay is that of a first failure, and shorter than the period; that of a fifth would be longer.
    kinesis.faults().next(Operation::GetRecords, 1, Fault::InternalFailure);
    let before = spacing(&kinesis).len();
    read_for(&mut reader, 7 * SECOND).await;
    let spacing = spacing(&kinesis);
    assert!(spacing.len() >= before + 3 && spacing.iter().all(|time| *time == period), "{spacing:?}");
    let lines = captured.take();
    assert!(lines.len() == 1 && lines[0].contains("a call failed and is tried again"), "{lines:?}");
}

/// S-110, S-112: however long a shard was idle, a record is handed to a waiting caller the moment its page is read, and
/// that is when the interval or the period says: no wait of a loop around the reads comes on top.
#[tokio::test(start_paused = true)]
async fn an_idle_shard_delays_no_record_beyond_its_next_read() {
    let period = 3 * SECOND;
    for (config, longest) in
        [(PollConfig::default(), SECOND), (PollConfig::default().poll_period(period), period)]
    {
        let kinesis = service(1);
        let mut reader = reader(&kinesis, StartPosition::TrimHorizon, config);
        read_for(&mut reader, 62 * SECOND).await;
        for n in 0..20 {
            read_for(&mut reader, 3_700 * MS).await;
            put(&kinesis, n..n + 1);
            let began = tokio::time::Instant::now();
            assert_eq!(read(&mut reader, 1).await.payloads, expected(n..n + 1));
            assert!(began.elapsed() <= longest + MS, "{:?}", began.elapsed());
            let read_at = *times(&kinesis, Operation::GetRecords).last().unwrap();
            assert!(kinesis.clock().elapsed() - read_at <= MS, "handed out when it was read");
        }
    }
}

/// S-030: a read asks for 10,000 records unless told otherwise.
#[tokio::test(start_paused = true)]
async fn a_read_asks_for_as_many_records_as_set() {
    for (config, limit) in [(PollConfig::default(), 10_000), (PollConfig::default().max_records(17), 17)] {
        let kinesis = service(1);
        let mut reader = reader(&kinesis, StartPosition::TrimHorizon, config);
        read_for(&mut reader, SECOND / 2).await;
        assert_eq!(kinesis.calls_of(Operation::GetRecords)[0].limit, Some(limit));
    }
}

/// S-085, S-248: the recorded trace of a plain polling loop: iterator once, then each next iterator, to the end of the shard.
#[tokio::test(start_paused = true)]
async fn without_options_the_calls_are_those_of_a_plain_loop() {
    let kinesis = service(1);
    put(&kinesis, 0..5);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(2));
    read_for(&mut reader, 1_900 * MS).await;
    put(&kinesis, 5..6);
    kinesis.split(STREAM, SHARD).unwrap();
    read(&mut reader, 1).await;
    let trace: Vec<_> = kinesis
        .calls_log()
        .iter()
        .map(|call| {
            let records = match call.outcome {
                Outcome::Done { records } => records,
                _ => 99,
            };
            // The times between reads are up to 5 % longer than 200 ms.
            (call.elapsed.as_millis() / 100 * 100, call.operation.to_string(), records)
        })
        .collect();
    let expected = [
        (0, "GetShardIterator", 0),
        (0, "GetRecords", 2),
        (200, "GetRecords", 2),
        (400, "GetRecords", 1),
        (1_400, "GetRecords", 0),
        (2_400, "GetRecords", 1),
    ];
    assert_eq!(trace, expected.map(|(at, operation, records)| (at, operation.to_owned(), records)));
}

/// F-28, S-080: while another reader takes 3 of the 5 reads, every record still comes, refusals are no errors, the
/// iterator in hand is kept, and another shard keeps its speed.
#[tokio::test(start_paused = true)]
async fn a_greedy_reader_slows_one_shard_and_stops_none() {
    let kinesis = service(2);
    for n in 0..200 {
        kinesis.put_at(STREAM, 0, "key", n.to_string()).unwrap();
        kinesis.put_at(STREAM, u128::MAX, "key", n.to_string()).unwrap();
    }
    let source = source(&kinesis, PollConfig::default().max_records(2));
    let mut slowed = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let mut free = source.reader(OpenShard::new(shard(1), StartPosition::TrimHorizon));
    let client = kinesis.client();
    let greedy = async {
        let iterator = client
            .get_shard_iterator()
            .stream_name(STREAM)
            .shard_id(SHARD)
            .shard_iterator_type(aws_sdk_kinesis::types::ShardIteratorType::Latest);
        let iterator = iterator.send().await.unwrap().shard_iterator.unwrap();
        let mut tick = tokio::time::interval(SECOND);
        loop {
            tick.tick().await;
            for _ in 0..3 {
                // Refused or not is all the same to it.
                let _ = client.get_records().shard_iterator(&iterator).send().await;
            }
        }
    };
    let reading = async {
        let began = tokio::time::Instant::now();
        tokio::join!(read(&mut slowed, 200), async { (read(&mut free, 200).await, began.elapsed()) })
    };
    let (slowed, (free, free_took)) = tokio::select! {
        read = reading => read,
        () = greedy => unreachable!("it never ends"),
    };
    assert_eq!((slowed.payloads, free.payloads), (expected(0..200), expected(0..200)));
    assert!(99 * 200 * MS <= free_took && free_took <= 99 * 210 * MS, "5 reads a second: {free_took:?}");
    let calls = kinesis.calls_of(Operation::GetRecords);
    let ours = |shard: &str| {
        calls.iter().filter(|call| call.shard.as_deref() == Some(shard) && call.limit.is_some()).count()
    };
    // One more than there are pages was read ahead.
    assert!((100..=101).contains(&ours("shardId-000000000001")));
    assert!(ours(SHARD) > 100, "some reads were refused");
    assert_eq!(kinesis.calls(Operation::GetShardIterator), 3, "one each");
}

/// F-28, S-082: a shard refused for two minutes is tried at most every few seconds and goes on where it was.
#[tokio::test(start_paused = true)]
async fn a_shard_refused_for_two_minutes_goes_on_where_it_was() {
    let kinesis = service(1);
    put(&kinesis, 0..6);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(3));
    read(&mut reader, 3).await;
    kinesis.faults().on(Operation::GetRecords).always().inject(Fault::Throttle);
    let heard = read_for(&mut reader, 120 * SECOND).await;
    assert!(matches!(&heard.others[..], [kinesis_core::source::SourceEvent::Degraded { .. }]), "{heard:?}");
    let calls = kinesis.calls(Operation::GetRecords);
    assert!((28..=55).contains(&calls), "{calls} calls in two minutes");
    kinesis.faults().clear();
    let heard = read(&mut reader, 3).await;
    assert_eq!(heard.payloads, expected(3..6));
    assert!(matches!(&heard.others[..], [kinesis_core::source::SourceEvent::Recovered]), "{heard:?}");
    assert_eq!(kinesis.calls(Operation::GetShardIterator), 1, "the iterator in hand is kept");
}

/// F-28: after a page of nearly 10 MiB the shard refuses reads for up to five seconds; that is no error, no word, and
/// costs no record.
#[tokio::test(start_paused = true)]
async fn pages_of_ten_mebibytes_pause_the_shard_and_lose_nothing() {
    let kinesis = service(1);
    let payload = bytes::Bytes::from(vec![b'x'; 1024 * 1024 - 3]);
    let numbers: Vec<_> =
        (0..12).map(|_| kinesis.put(STREAM, "key", payload.clone()).unwrap().sequence_number).collect();
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default());
    let heard = read(&mut reader, 12).await;
    assert_eq!(heard.numbers, numbers);
    assert!(heard.others.is_empty(), "{:?}", heard.others);
    let calls = kinesis.calls_of(Operation::GetRecords);
    let pages: Vec<_> = calls.iter().filter(|call| !is_refused(call)).map(|call| call.elapsed).collect();
    assert_eq!(pages.len(), 2);
    assert!(5 * SECOND <= pages[1] && pages[1] <= 10 * SECOND, "{pages:?}");
    assert!((4..=8).contains(&calls.len()), "{} calls", calls.len());
}
