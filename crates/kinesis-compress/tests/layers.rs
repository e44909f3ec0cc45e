//! The tower layers, with the inner service driven by hand.

mod common;

use bytes::Bytes;
use common::{encode, text};
use kinesis_compress::{
    CompressLayer, Compression, Compressor, DecompressError, DecompressLayer, Decompressor,
    RecordDecompressError,
};
use kinesis_core::processing::{FailureClass, HandlerError};
use kinesis_core::{BoxError, OutboundBatch, OutboundRecord, Record, RecordBatch};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock::{self, Mock, Spawn};

type DecompressMock = Spawn<kinesis_compress::Decompress<Mock<Record, usize>>>;

fn decompress_mock() -> (DecompressMock, mock::Handle<Record, usize>) {
    mock::spawn_layer(DecompressLayer::auto())
}

fn gzip_record(sequence: u128, plain: &'static [u8]) -> Record {
    Record::for_test(sequence, "key", encode(Compression::Gzip, plain))
}

/// S-147: a pending inner service makes the layer pending, and readiness passes through.
#[tokio::test]
async fn decompress_is_pending_while_the_inner_service_is() {
    let (mut service, mut handle) = decompress_mock();
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
}

/// An error of the inner service's `poll_ready` passes through.
#[tokio::test]
async fn decompress_passes_on_an_error_of_poll_ready() {
    let (mut service, mut handle) = decompress_mock();
    handle.send_error("closed");
    let error = assert_ready_err!(service.poll_ready());
    assert_eq!(error.to_string(), "closed");
}

/// S-147: two requests arrive decompressed and in order, and their answers pass through.
#[tokio::test]
async fn decompress_passes_two_requests_in_order() {
    let (mut service, mut handle) = decompress_mock();
    handle.allow(2);
    assert_ready_ok!(service.poll_ready());
    let mut first = task::spawn(service.call(gzip_record(1, b"first")));
    assert_ready_ok!(service.poll_ready());
    let mut second = task::spawn(service.call(Record::for_test(2, "key", "second")));
    assert_pending!(first.poll());

    let (request, respond_first) = handle.next_request().await.unwrap();
    assert_eq!((request.data().as_ref(), request.position().to_string()), (&b"first"[..], "1".to_owned()));
    let (request, respond_second) = handle.next_request().await.unwrap();
    assert_eq!(request.data().as_ref(), b"second");
    respond_second.send_response(2);
    assert_eq!(assert_ready_ok!(second.poll()), 2);
    assert_pending!(first.poll());
    respond_first.send_error("inner");
    assert_eq!(assert_ready_err!(first.poll()).to_string(), "inner");
}

/// Dropping the future half-way drops the inner one: its caller sees that nobody waits.
#[tokio::test]
async fn dropping_the_future_drops_the_inner_one() {
    let (guard, mut dropped) = tokio::sync::oneshot::channel::<()>();
    let guard = std::sync::Mutex::new(Some(guard));
    let mut service = DecompressLayer::auto().layer(service_fn(move |_: Record| {
        let guard = guard.lock().unwrap().take();
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok::<_, BoxError>(())
        }
    }));
    let mut future = task::spawn(service.call(gzip_record(1, b"payload")));
    assert_pending!(future.poll());
    assert!(matches!(dropped.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Empty)));
    drop(future);
    assert!(matches!(dropped.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Closed)));
}

/// A clone has no readiness of its own, and the original keeps what it was given.
#[tokio::test]
async fn a_clone_is_not_ready() {
    let (mut service, mut handle) = decompress_mock();
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    handle.allow(0);
    let mut clone = service.clone();
    assert_pending!(clone.poll_ready());
    let mut future = task::spawn(service.call(gzip_record(1, b"payload")));
    assert_pending!(future.poll());
    let (request, respond) = handle.next_request().await.unwrap();
    assert_eq!(request.data().as_ref(), b"payload");
    respond.send_response(7);
    assert_eq!(assert_ready_ok!(future.poll()), 7);
}

/// S-146, S-147, S-204: too large a payload fails without a call, permanently, with shard and position.
#[tokio::test]
async fn a_payload_over_the_limit_fails_before_the_inner_service() {
    let layer = DecompressLayer::new(Decompressor::auto().max_output(10));
    let (mut service, mut handle) = mock::spawn_layer::<Record, usize, _>(layer);
    handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    let mut future = task::spawn(service.call(gzip_record(17, b"eleven bytes")));
    let error = assert_ready_err!(future.poll());
    assert_eq!(HandlerError::find(&*error).unwrap().class(), FailureClass::Permanent);
    assert_eq!(HandlerError::find(&*error).unwrap().first_unfinished(), None);
    let record = error.source().unwrap().downcast_ref::<RecordDecompressError>().unwrap();
    assert_eq!(record.position().to_string(), "17");
    assert_eq!(record.shard().to_string(), "test/shardId-000000000000");
    assert!(matches!(record.reason(), DecompressError::DecompressedSizeLimitExceeded { limit: 10, .. }));

    let mut request = task::spawn(handle.next_request());
    assert_pending!(request.poll(), "the inner service was called");
}

/// S-143, S-147: the records of a batch are decompressed one by one, the plain ones pass, order and positions stay.
#[tokio::test]
async fn a_batch_is_decompressed_record_by_record() {
    let handler = service_fn(|batch: RecordBatch| async move { Ok::<_, BoxError>(batch) });
    let plain = text(500);
    let mut records = vec![Record::for_test(1, "a", plain.clone())];
    for (sequence, format) in (2..).zip(Compression::ALL) {
        records.push(Record::for_test(sequence, "a", encode(format, &plain)));
    }
    let batch = RecordBatch::for_test(records);
    let out = DecompressLayer::auto().layer(handler).oneshot(batch.clone()).await.unwrap();
    assert_eq!(out.len(), 4);
    for (before, after) in batch.records().iter().zip(out.records()) {
        assert_eq!(after.data(), &plain);
        assert_eq!(after.position(), before.position());
    }

    let untouched = RecordBatch::for_test(vec![Record::for_test(1, "a", "plain")]);
    let out = DecompressLayer::auto().layer(handler).oneshot(untouched.clone()).await.unwrap();
    assert_eq!(out.records().as_ptr(), untouched.records().as_ptr(), "a plain batch is not rebuilt");
}

/// F-41: the records of a batch share a limit, so that many bombs together stay bounded too.
#[tokio::test]
async fn the_records_of_a_batch_share_a_limit() {
    let handler = service_fn(|batch: RecordBatch| async move { Ok::<_, BoxError>(batch.len()) });
    let batch = RecordBatch::for_test(
        (1..=10).map(|n| Record::for_test(n, "a", encode(Compression::Zstd, &[0; 1000]))).collect(),
    );
    let service = |limit| DecompressLayer::new(Decompressor::auto().max_batch_output(limit)).layer(handler);
    assert_eq!(service(10_000).oneshot(batch.clone()).await.unwrap(), 10);
    let error = service(9_999).oneshot(batch).await.unwrap_err();
    let error = error.source().unwrap().downcast_ref::<RecordDecompressError>().unwrap();
    assert_eq!(error.position().to_string(), "10");
    assert!(error.reason().is_limit());
}

/// D-03: another library's layers compose with it, and order is as written: the outer one sees compressed bytes.
#[tokio::test]
async fn order_of_layers_decides_who_sees_compressed_bytes() {
    let lengths = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = |lengths: &std::sync::Arc<std::sync::Mutex<Vec<usize>>>| {
        let lengths = std::sync::Arc::clone(lengths);
        tower::util::MapRequestLayer::new(move |record: Record| {
            lengths.lock().unwrap().push(record.data().len());
            record
        })
    };
    let service = ServiceBuilder::new()
        .layer(tower::timeout::TimeoutLayer::new(std::time::Duration::from_secs(5)))
        .layer(seen(&lengths))
        .layer(DecompressLayer::auto())
        .layer(seen(&lengths))
        .service(service_fn(|_: Record| async { Ok::<_, BoxError>(()) }));
    let record = gzip_record(1, &[b'a'; 1000]);
    let packed = record.data().len();
    service.oneshot(record).await.unwrap();
    assert_eq!(*lengths.lock().unwrap(), [packed, 1000]);
}

/// S-140, S-169: the compress layer packs records and batches before the inner service sees them.
#[tokio::test]
async fn compress_packs_what_goes_out() {
    let plain = Bytes::from(text(3000));
    for format in Compression::ALL {
        let layer = CompressLayer::new(Compressor::new(format).unwrap());
        let (mut service, mut handle) = mock::spawn_layer::<OutboundRecord, (), _>(layer.clone());
        assert_pending!(task::spawn(handle.next_request()).poll());
        handle.allow(2);
        assert_ready_ok!(service.poll_ready());
        let mut future = task::spawn(service.call(OutboundRecord::new("key", plain.clone())));
        assert_pending!(future.poll());
        let (sent, respond) = handle.next_request().await.unwrap();
        assert!(sent.data.len() < plain.len());
        assert_eq!(sent.partition_key.as_str(), "key");
        assert_eq!(Decompressor::auto().decompress(&sent.data).unwrap(), plain);
        respond.send_response(());
        assert_ready_ok!(future.poll());

        let sender = service_fn(|batch: OutboundBatch| async move { Ok::<_, BoxError>(batch) });
        let batch = OutboundBatch::new(vec![
            OutboundRecord::new("a", plain.clone()),
            OutboundRecord::new("b", Bytes::new()),
        ]);
        let sent = layer.layer(sender).oneshot(batch).await.unwrap();
        for (record, expected) in sent.records.iter().zip([&plain, &Bytes::new()]) {
            assert_eq!(Decompressor::only(format).unwrap().decompress(&record.data).unwrap(), expected);
        }
    }
}

/// The compress layer forwards readiness and its errors.
#[tokio::test]
async fn compress_forwards_readiness() {
    let layer = CompressLayer::new(Compressor::new(Compression::Lz4).unwrap());
    let (mut service, mut handle) = mock::spawn_layer::<OutboundRecord, (), _>(layer);
    handle.allow(0);
    assert_pending!(service.poll_ready());
    handle.send_error("closed");
    assert!(service.is_woken());
    let _ = assert_ready!(service.poll_ready()).unwrap_err();
}

/// Wrapped services can be reached and taken back.
#[test]
fn the_inner_service_can_be_reached() {
    let mut service = DecompressLayer::auto().layer(5);
    *service.get_mut() += 1;
    assert_eq!(*service.get_ref(), 6);
    assert_eq!(service.into_inner(), 6);
    let mut service = CompressLayer::new(Compressor::new(Compression::Gzip).unwrap()).layer(7);
    *service.get_mut() += 1;
    assert_eq!(*service.get_ref(), 8);
    assert_eq!(service.into_inner(), 8);
}
