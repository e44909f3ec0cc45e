//! Settings, clients and bad input: each mistake is one clear error.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_kinesis::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents as ClientComponents;
use kinesis_consumer::lease::{HeartbeatMode, LeaseStore, MemoryStore};
use kinesis_consumer::{
    BoxError, Consumer, ConsumerBuilder, ConsumerError, FailurePolicy, Record, ShardOutcome,
};
use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_core::error_chain;
use kinesis_testkit::{Fault, Operation, TestKinesis};
use tokio::time::Instant;

use crate::common::{APPLICATION, Journal, LONG, STREAM, Seen, World, eventually, stop, text};
use crate::quiet::Captured;
use crate::shelf::Trouble;

type Handler = fn(Record) -> std::future::Ready<Result<(), Infallible>>;

fn done(_: Record) -> std::future::Ready<Result<(), Infallible>> {
    std::future::ready(Ok(()))
}

/// S-009: what is required and missing or blank is refused by its name.
#[tokio::test]
async fn what_is_missing_or_blank_is_refused_by_its_name() {
    let client = TestKinesis::new().client();
    let with = |application: &str, stream: &str| {
        Consumer::builder(client.clone(), application, stream)
            .lease_store(MemoryStore::new())
            .for_each(done as Handler)
    };
    let blank = ["", "   ", "\t"];
    for text in blank {
        assert_eq!(with(text, STREAM).build().unwrap_err().field(), "application");
        assert_eq!(with(APPLICATION, text).build().unwrap_err().field(), "stream");
        assert_eq!(with(APPLICATION, STREAM).worker_id(text).build().unwrap_err().field(), "worker_id");
    }
    let bare = || Consumer::builder(client.clone(), APPLICATION, STREAM);
    assert_eq!(bare().lease_store(MemoryStore::new()).build().unwrap_err().field(), "processor");
    assert_eq!(bare().for_each(done as Handler).build().unwrap_err().field(), "lease_store");
    let skips = with(APPLICATION, STREAM).failure_policy(FailurePolicy::SkipAfter { attempts: 3 });
    assert_eq!(skips.build().unwrap_err().field(), "dead_letter");
    with(APPLICATION, STREAM).build().unwrap();
}

/// One setting has polled pages decoded into one buffer; without it each record has its own.
#[cfg(feature = "fast-decode")]
#[tokio::test(start_paused = true)]
async fn pages_are_decoded_fast_when_asked_for() {
    for fast in [false, true] {
        let world = World::new(1);
        world.put(100, 110, 1);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&kept);
        let consumer = world.consumer("w1").fast_decode(fast).for_each(move |record: Record| {
            log.lock().unwrap().push(record);
            std::future::ready(Ok::<_, Infallible>(()))
        });
        let handle = consumer.build().unwrap().spawn();
        eventually(|| kept.lock().unwrap().len() == 10).await;
        assert!(stop(&handle).await.is_clean());
        let kept = kept.lock().unwrap();
        assert_eq!(kept.iter().map(text).collect::<Vec<_>>(), crate::common::numbers(100, 110));
        // What an allocator hands out one by one never touches.
        let touch =
            |pair: &[Record]| pair[0].data().as_ptr_range().end == pair[1].data().as_ptr_range().start;
        assert_eq!(kept.windows(2).filter(|pair| touch(pair)).count(), if fast { 9 } else { 0 });
    }
}

/// S-073, S-078: a poll period longer than a lease lives is refused, unless shards are not polled; as long as that it is
/// fine.
#[tokio::test]
async fn a_poll_period_longer_than_a_lease_lives_is_refused() {
    use kinesis_consumer::lease::LeaseConfig;
    use kinesis_consumer::poll::PollConfig;

    let secs = Duration::from_secs;
    let polling = |period: Duration, expiry: Duration| {
        Consumer::builder(TestKinesis::new().client(), APPLICATION, STREAM)
            .lease_store(MemoryStore::new())
            .lease(LeaseConfig::default().expiry(expiry))
            .poll(PollConfig::default().poll_period(period))
    };
    let built = |builder: ConsumerBuilder| builder.for_each(done as Handler).build();
    for expiry in [10, 60] {
        built(polling(secs(expiry), secs(expiry))).unwrap();
        let error = built(polling(secs(expiry) + Duration::from_millis(1), secs(expiry))).unwrap_err();
        assert_eq!(error.field(), "poll_period");
        assert!(error.to_string().contains("expiry of a lease"), "{error}");
    }
    built(polling(secs(3_600), secs(10)).enhanced_fan_out("billing")).unwrap();
}

/// S-009, S-117: settings that cannot be used are refused when the consumer is built, by their name and without a panic;
/// also absurdly large ones, and those of the parts.
#[tokio::test]
async fn unusable_settings_are_refused_at_build() {
    type Change = fn(ConsumerBuilder) -> ConsumerBuilder;
    let cases: [(&str, Change); 8] = [
        ("checkpoint_interval", |b| b.checkpoint_interval(Duration::ZERO)),
        ("shutdown_timeout", |b| b.shutdown_timeout(Duration::MAX)),
        ("close_timeout", |b| b.close_timeout(Duration::MAX)),
        ("lost_lease_grace", |b| b.lost_lease_grace(Duration::MAX)),
        ("stuck_after", |b| b.stuck_after(Duration::ZERO)),
        ("max_batch_records", |b| b.max_batch_records(0)),
        ("max_records", |b| b.poll(kinesis_consumer::poll::PollConfig::default().max_records(0))),
        ("heartbeat_interval", |b| {
            b.lease(kinesis_consumer::lease::LeaseConfig::default().heartbeat_interval(Duration::ZERO))
        }),
    ];
    for (field, change) in cases {
        let builder = Consumer::builder(TestKinesis::new().client(), APPLICATION, STREAM)
            .lease_store(MemoryStore::new());
        let error = change(builder).for_each(done as Handler).build().unwrap_err();
        assert_eq!(error.field(), field);
        assert!(error.to_string().contains(field), "{error}");
    }
}

/// S-024: the worker's default name has the host's name, the process id and eight random hexadecimal digits, differs between
/// two consumers, and can be set.
#[tokio::test(start_paused = true)]
async fn the_default_worker_name_is_host_and_process() {
    let world = World::new(2);
    let build = || {
        let store: Arc<dyn LeaseStore> = world.leases.clone();
        Consumer::builder(world.kinesis.client(), APPLICATION, STREAM)
            .lease_store(store)
            .heartbeat(HeartbeatMode::Inline)
            .for_each(done as Handler)
    };
    let (one, two) = (build().build().unwrap().spawn(), build().build().unwrap().spawn());
    let owners = || -> Vec<String> { world.owners().into_iter().filter_map(|(_, owner)| owner).collect() };
    eventually(|| owners().len() == 2 && owners()[0] != owners()[1]).await;
    for owner in owners() {
        let (rest, digits) = owner.rsplit_once('-').unwrap();
        let (host, process) = rest.rsplit_once('-').unwrap();
        assert!(!host.is_empty(), "{owner}");
        assert_eq!(process, std::process::id().to_string(), "{owner}");
        let is_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        assert!(digits.len() == 8 && digits.bytes().all(is_hex), "{owner}");
    }
    tokio::join!(stop(&one), stop(&two));
    let named = build().worker_id("me").build().unwrap().spawn();
    eventually(|| owners() == ["me", "me"]).await;
    stop(&named).await;
}

/// Counts the requests that pass it.
#[derive(Debug, Clone, Default)]
struct Marker(Arc<AtomicUsize>);

impl Marker {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Intercept for Marker {
    fn name(&self) -> &'static str {
        "Marker"
    }

    fn modify_before_transmit(
        &self,
        _: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The caller's own HTTP client: it writes down the operations that go through it and under which name.
#[derive(Debug, Clone)]
struct Own {
    inner: SharedHttpClient,
    seen: Arc<Mutex<Vec<String>>>,
}

#[derive(Debug)]
struct OwnConnector(SharedHttpConnector, Arc<Mutex<Vec<String>>>);

impl HttpClient for Own {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &ClientComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(OwnConnector(inner, Arc::clone(&self.seen)))
    }
}

impl HttpConnector for OwnConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let header = |name| request.headers().get(name).unwrap_or_default();
        let operation = header("x-amz-target").rsplit('.').next().unwrap_or_default();
        let named = header("user-agent").contains("app/our-app")
            || header("x-amz-user-agent").contains("app/our-app");
        self.1.lock().unwrap().push(format!("{operation} {named}"));
        self.0.call(request)
    }
}

/// S-010: what the caller built is used for every call: an `SdkConfig` with its HTTP client and name, a client with its
/// interceptors; and for every purpose.
#[tokio::test(start_paused = true)]
async fn the_callers_configuration_survives_in_every_call() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let own = Own { inner: world.kinesis.http_client(), seen: Arc::clone(&seen) };
    let config = world
        .kinesis
        .sdk_config()
        .into_builder()
        .http_client(own)
        .app_name(aws_types::app_name::AppName::new("our-app").unwrap())
        .build();
    let run = |clients: ClientSource| {
        let journal = Journal::default();
        let leases = World { leases: Arc::default(), ..world.clone() };
        async move {
            let store: Arc<dyn LeaseStore> = leases.leases.clone();
            let consumer = Consumer::builder(clients, APPLICATION, STREAM)
                .lease_store(store)
                .heartbeat(HeartbeatMode::Inline)
                .for_each(journal.handler("w1"));
            let handle = consumer.build().unwrap().spawn();
            journal.until_distinct(3).await;
            assert!(stop(&handle).await.is_clean());
        }
    };
    run(ClientSource::from(&config)).await;
    let calls = seen.lock().unwrap().clone();
    for operation in ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"] {
        assert!(calls.contains(&format!("{operation} true")), "{operation}: {calls:?}");
    }
    assert!(calls.iter().all(|call| call.ends_with("true")), "{calls:?}");

    let marker = Marker::default();
    let marked = aws_sdk_kinesis::config::Builder::from(&world.kinesis.sdk_config())
        .interceptor(marker.clone())
        .build();
    let client = aws_sdk_kinesis::Client::from_conf(marked);
    let before: u64 = seen.lock().unwrap().len() as u64;
    world.kinesis.clear_calls();
    run(ClientSource::from(&client)).await;
    assert_eq!(marker.count(), world.kinesis.calls_log().len(), "{before}");
    assert!(marker.count() >= 4);
}

/// S-010: a caller's interceptor and HTTP client are there for every purpose of a client.
#[tokio::test(start_paused = true)]
async fn the_callers_configuration_survives_for_every_purpose() {
    let kinesis = TestKinesis::new();
    kinesis.create_stream(STREAM, 1).unwrap();
    let purposes = [Purpose::Control, Purpose::Read, Purpose::Subscribe { group: 3 }, Purpose::Write];
    let marker = Marker::default();
    let marked =
        aws_sdk_kinesis::config::Builder::from(&kinesis.sdk_config()).interceptor(marker.clone()).build();
    let from_client = ClientSource::from(aws_sdk_kinesis::Client::from_conf(marked));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let own = Own { inner: kinesis.http_client(), seen: Arc::clone(&seen) };
    let from_config = ClientSource::from(kinesis.sdk_config().into_builder().http_client(own).build());
    for (made, purpose) in purposes.into_iter().enumerate() {
        from_client.client(purpose).list_shards().stream_name(STREAM).send().await.unwrap();
        assert_eq!(marker.count(), made + 1, "{purpose:?}");
        from_config.client(purpose).list_shards().stream_name(STREAM).send().await.unwrap();
        assert_eq!(seen.lock().unwrap().len(), made + 1, "{purpose:?}");
    }
}

async fn start_error(world: &World, stream: &str) -> ConsumerError {
    let store: Arc<dyn LeaseStore> = world.leases.clone();
    let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, stream)
        .lease_store(store)
        .heartbeat(HeartbeatMode::Inline)
        .for_each(done as Handler);
    let run = consumer.build().unwrap().run(std::future::pending());
    tokio::time::timeout(Duration::from_secs(300), run).await.expect("no endless retry").unwrap_err()
}

/// an unknown stream is one clear error at the start that names it and the call; a second start works once
/// the stream is there.
#[tokio::test(start_paused = true)]
async fn an_unknown_stream_is_one_clear_error() {
    let world = World::new(1);
    let error = start_error(&world, "nowhere").await;
    assert!(!error.is_retryable());
    let text = error_chain(&error);
    assert!(text.contains("DescribeStreamSummary: stream nowhere does not exist"), "{text}");
    assert!(world.leases.rows().is_empty());
    world.kinesis.create_stream("nowhere", 1).unwrap();
    let store: Arc<dyn LeaseStore> = world.leases.clone();
    let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, "nowhere")
        .lease_store(store)
        .heartbeat(HeartbeatMode::Inline)
        .for_each(done as Handler);
    let handle = consumer.build().unwrap().spawn();
    eventually(|| world.leases.rows().iter().any(|row| row.owner.is_some())).await;
    assert!(stop(&handle).await.is_clean());
}

/// without the permission to look at the stream the start ends with an error that names the call and the action.
#[tokio::test(start_paused = true)]
async fn a_denied_start_is_one_clear_error() {
    for operation in [Operation::DescribeStreamSummary, Operation::ListShards] {
        let world = World::new(1);
        world.kinesis.faults().on(operation).always().inject(Fault::AccessDenied);
        let error = start_error(&world, STREAM).await;
        assert!(!error.is_retryable());
        let text = error_chain(&error);
        assert!(text.contains(&format!("the policy must allow kinesis:{operation}")), "{text}");
        assert!(world.kinesis.calls(operation) <= 3, "the SDK tries three times");
    }
}

/// an endpoint where nobody listens: the start ends after a few tries, with an error that names the call.
#[tokio::test]
async fn an_unreachable_endpoint_is_one_clear_error() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = TestKinesis::new()
        .sdk_config()
        .into_builder()
        .endpoint_url(format!("http://{free}"))
        .http_client(refused_client(free))
        .build();
    let consumer = Consumer::builder(&config, APPLICATION, STREAM)
        .lease_store(MemoryStore::new())
        .for_each(done as Handler);
    let run = consumer.build().unwrap().run(std::future::pending());
    let error =
        tokio::time::timeout(Duration::from_secs(60), run).await.expect("no endless retry").unwrap_err();
    assert!(error.is_retryable());
    let text = error_chain(&error);
    assert!(text.contains("DescribeStreamSummary on stream orders failed"), "{text}");
}

/// Opens a socket to the address for each call, as any HTTP client does first.
fn refused_client(address: std::net::SocketAddr) -> SharedHttpClient {
    #[derive(Debug)]
    struct Dial(std::net::SocketAddr);
    impl HttpConnector for Dial {
        fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
            let address = self.0;
            HttpConnectorFuture::new(async move {
                use aws_smithy_runtime_api::client::result::ConnectorError;
                match tokio::net::TcpStream::connect(address).await {
                    Ok(_) => Err(ConnectorError::other("somebody listens".into(), None)),
                    Err(error) => Err(ConnectorError::io(error.into())),
                }
            })
        }
    }
    impl HttpClient for Dial {
        fn http_connector(&self, _: &HttpConnectorSettings, _: &ClientComponents) -> SharedHttpConnector {
            SharedHttpConnector::new(Self(self.0))
        }
    }
    SharedHttpClient::new(Dial(address))
}

/// A lease store that cannot be used is one clear error at the start, which names what was called.
#[tokio::test(start_paused = true)]
async fn an_unusable_lease_store_is_one_clear_error() {
    let world = World::new(1);
    world.leases.trouble(Trouble::Down);
    let error = start_error(&world, STREAM).await;
    assert!(error.is_retryable());
    assert!(error_chain(&error).contains("setup of the lease store failed"), "{}", error_chain(&error));
}

/// F-26: reading is denied for two minutes: few calls with growing delays, one error line each that names the action,
/// and it gets on without a restart once it is allowed.
#[tokio::test(start_paused = true)]
async fn denied_reads_are_repeated_slowly_and_recover() {
    let captured = Captured::start();
    let world = World::new(1);
    world.put(0, 5, 1);
    world.kinesis.faults().on(Operation::GetRecords).always().inject(Fault::AccessDenied);
    let journal = Journal::default();
    let handle = world.consumer("w1").for_each(journal.handler("w1")).build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let calls = world.kinesis.calls(Operation::GetRecords);
    assert!((4..=10).contains(&calls), "{calls} calls in two minutes");
    let errors = captured.lines("ERROR");
    assert_eq!(errors.len() as u64, calls);
    assert!(errors.iter().all(|line| line.contains("kinesis:GetRecords")), "{errors:?}");
    assert_eq!(journal.len(), 0);
    world.kinesis.faults().clear();
    let allowed = Instant::now();
    journal.until_distinct(5).await;
    assert!(allowed.elapsed() <= Duration::from_secs(61), "{:?}", allowed.elapsed());
    assert!(stop(&handle).await.is_clean());
}

/// F-26: a stop in the middle of such a delay does not wait for it.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_next_try() {
    let world = World::new(1);
    world.kinesis.faults().on(Operation::GetRecords).always().inject(Fault::AccessDenied);
    let consumer = world.consumer("w1").reopen_initial(LONG).reopen_max(LONG).for_each(done as Handler);
    let handle = consumer.build().unwrap().spawn();
    world.kinesis.wait_for_calls(Operation::GetRecords, 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    let report = stop(&handle).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(report.shards[0].outcome, ShardOutcome::Clean);
}

/// F-21: a shard that the service does not know (by mistake, while it is listed) is given back with a rest and tried
/// again, without a crash loop.
#[tokio::test(start_paused = true)]
async fn a_shard_that_is_not_found_by_mistake_is_tried_again() {
    let world = World::new(1);
    world.put(0, 5, 1);
    world.kinesis.faults().next(Operation::GetShardIterator, 1, Fault::error("ResourceNotFoundException"));
    let seen = Seen::default();
    let log = seen.clone();
    let consumer =
        world.consumer("w1").cool_down(Duration::from_secs(100)).for_each(move |record: Record| {
            log.add(text(&record));
            async { Ok::<_, Infallible>(()) }
        });
    let handle = consumer.build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(world.kinesis.calls(Operation::GetShardIterator), 1);
    assert!(!world.is_ended("shardId-000000000000"), "it is listed, so it is not closed");
    seen.until(|seen| seen.len() == 5).await;
    assert!(stop(&handle).await.is_clean());
}
