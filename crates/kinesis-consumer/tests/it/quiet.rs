//! What is logged: nothing in routine, one line for each thing that is not.

use std::convert::Infallible;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::{Record, RecordBatch};
use kinesis_core::metrics::Recorder;
use tracing::subscriber::DefaultGuard;

use crate::common::{Journal, STREAM, World, eventually, stop, text};

/// Collects what this thread logs at info and above, for as long as it lives.
pub(crate) struct Captured {
    text: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Captured {
    pub(crate) fn start() -> Self {
        // Without a lasting subscriber, threads of other tests may switch a log line off for all.
        static LASTING: std::sync::Once = std::sync::Once::new();
        LASTING.call_once(|| {
            let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
            let _ = tracing::subscriber::set_global_default(everything.with_writer(std::io::sink).finish());
        });
        let text = Lines::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines of a level, or all.
    pub(crate) fn lines(&self, level: &str) -> Vec<String> {
        let text = String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(level)).map(str::to_owned).collect()
    }
}

/// S-115, F-40: start, records, hand-over between workers, a reshard, a retried handler and a stop are routine: nothing at
/// info or above.
#[tokio::test(start_paused = true)]
async fn routine_logs_nothing_at_info_or_above() {
    let captured = Captured::start();
    let world = World::new(2);
    world.put(0, 100, 20);
    let journal = Journal::default();
    let tries = Arc::new(Mutex::new(0));
    let (log, failing) = (journal.clone(), Arc::clone(&tries));
    let consumer = world.consumer("w1").for_each(move |record: Record| {
        let mut tries = failing.lock().unwrap();
        let fails = text(&record) == "7" && *tries < 2;
        if fails {
            *tries += 1;
        } else {
            log.add("w1", &record);
        }
        async move { if fails { Err("away for a moment") } else { Ok(()) } }
    });
    let one = consumer.build().unwrap().spawn();
    journal.until_distinct(100).await;
    let two = world.consumer("w2").for_each(journal.handler("w2")).build().unwrap().spawn();
    eventually(|| world.shares(&["w1", "w2"]) == [1, 1]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.kinesis.split(STREAM, "shardId-000000000000").unwrap();
    world.put(100, 200, 20);
    journal.until_distinct(200).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(stop(&one).await.is_clean());
    assert!(stop(&two).await.is_clean());
    assert_eq!(*tries.lock().unwrap(), 2);
    assert_eq!(captured.lines(""), Vec::<String>::new());
}

/// S-074, S-075: a poll period above the interval of checkpoints is a choice like any other: no error, no line, and every
/// record comes. The stored position moves once per poll and no faster.
#[tokio::test(start_paused = true)]
async fn a_poll_period_above_the_checkpoint_interval_is_accepted_silently() {
    let captured = Captured::start();
    let world = World::new(1);
    let journal = Journal::default();
    let period = Duration::from_secs(7);
    let consumer = world
        .consumer("w1")
        .checkpoint_interval(Duration::from_secs(1))
        .checkpoint_spacing(Duration::ZERO)
        .poll(kinesis_consumer::poll::PollConfig::default().poll_period(period))
        .for_each(journal.handler("w1"));
    let handle = consumer.build().unwrap().spawn();
    for number in 0..60 {
        world.put(number, number + 1, 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    journal.until_distinct(60).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut moves = world.leases.writes_of("shardId-000000000000");
    moves.dedup_by(|later, earlier| later.1.checkpoint == earlier.1.checkpoint);
    // The first two are the new row and its first poll.
    let apart: Vec<_> = moves[1..].windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(
        apart.len() >= 7 && apart.iter().all(|time| *time >= period - Duration::from_secs(1)),
        "{apart:?}"
    );
    assert!(stop(&handle).await.is_clean());
    assert_eq!(captured.lines(""), Vec::<String>::new());
}

/// F-40: a handler that hangs for ten minutes: one warning per `stuck_after` with shard, position and duration, and the
/// age of the last progress as a gauge; the other shard is fine.
#[tokio::test(start_paused = true)]
async fn a_stuck_handler_is_reported_once_per_period() {
    let captured = Captured::start();
    let world = World::new(2);
    world.put(0, 40, 40);
    let records = world.kinesis.records(STREAM).unwrap();
    let recorder = Recorder::new();
    let consumer = world.consumer("w1").metrics(Arc::new(recorder.clone())).for_each_batch(
        |batch: RecordBatch| async move {
            if batch.source().shard().as_str() == "shardId-000000000000" {
                tokio::time::sleep(Duration::from_secs(590)).await;
            }
            Ok::<_, Infallible>(())
        },
    );
    let handle = consumer.build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(580)).await;
    let warnings = captured.lines("");
    assert_eq!(warnings.len(), 9, "{warnings:?}");
    let first = &records[0].sequence_number;
    for (period, line) in warnings.iter().enumerate() {
        let duration = format!("running={}", (period + 1) * 60);
        for part in ["WARN", "shard=orders/shardId-000000000000", first.as_str(), &duration] {
            assert!(line.contains(part), "{part} is missing: {line}");
        }
    }
    let age = |shard: &str| {
        let samples = recorder.samples_of("progress_age_seconds");
        let of = samples.iter().find(|(labels, _)| labels.shard.as_ref().unwrap().as_str() == shard);
        of.unwrap().1.last.unwrap()
    };
    assert!((570.0..=581.0).contains(&age("shardId-000000000000")), "{}", age("shardId-000000000000"));
    assert_eq!(age("shardId-000000000001"), 0.0);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(age("shardId-000000000000"), 0.0);
    assert!(stop(&handle).await.is_clean());
    assert_eq!(captured.lines("").len(), 9);
}

/// F-40: the number of lines does not grow with retries: of a handler that fails for long, one warning for every third
/// failure, without the payload or the key of a record.
#[tokio::test(start_paused = true)]
async fn a_failing_handler_logs_every_third_failure_and_no_payload() {
    let captured = Captured::start();
    let world = World::new(1);
    world.kinesis.put(STREAM, "secret-key", "secret-payload").unwrap();
    let failures = Arc::new(Mutex::new(0_usize));
    let counted = Arc::clone(&failures);
    let consumer = world.consumer("w1").for_each(move |_: Record| {
        *counted.lock().unwrap() += 1;
        async { Err::<(), _>(std::io::Error::other("no connection")) }
    });
    let handle = consumer.build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(600)).await;
    stop(&handle).await;
    let lines = captured.lines("");
    assert_eq!(lines.len(), *failures.lock().unwrap() / 3);
    assert!(lines.iter().all(|line| line.contains("no connection") && !line.contains("secret")), "{lines:?}");
}
