//! What goes wrong with the service: one fault after another, drawn from the seed.

use std::time::Duration;

use kinesis_testkit::{Fault, KeyState, Operation, StreamFault, StreamPoint, TestKinesis};
use tokio::time::Instant;

use crate::Source;
use crate::service::STREAM;

const FOREVER: Duration = Duration::MAX;

/// Codes of refused calls; the last is one that nobody knows.
const REFUSALS: [&str; 4] = [
    "LimitExceededException",
    "KMSThrottlingException",
    "ProvisionedThroughputExceededException",
    "SomethingNewException",
];

/// Codes of exception frames.
const FRAMES: [&str; 6] = [
    "InternalFailureException",
    "ResourceInUseException",
    "ResourceNotFoundException",
    "KMSThrottlingException",
    "KMSAccessDeniedException",
    "SomethingNewException",
];

pub(crate) struct Storm {
    source: Source,
    kinesis: TestKinesis,
    random: fastrand::Rng,
    key_enabled_at: Option<Instant>,
    pub(crate) faults: u32,
}

impl Storm {
    pub(crate) fn new(source: Source, kinesis: TestKinesis, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { source, kinesis, random, key_enabled_at: None, faults: 0 }
    }

    /// Something goes wrong from now on, for a while, with all shards or with one of `shards`.
    pub(crate) fn strike(&mut self, now: Instant, shards: &[String]) {
        self.faults += 1;
        if self.random.u32(0..60) == 0 {
            let time = Duration::from_secs(self.random.u64(5..40));
            self.kinesis.set_key_state(STREAM, KeyState::Disabled).expect("the stream exists");
            self.key_enabled_at = Some(now + time);
            return;
        }
        let (operation, fault) = self.draw();
        let mut rule = self.kinesis.faults().on(operation).always();
        rule = rule.during(Duration::from_millis(self.random.u64(2_000..90_000)));
        let one_shard = self.random.u32(0..3) > 0;
        if one_shard && operation != Operation::ListShards {
            rule = rule.shard(self.random.choice(shards).cloned().unwrap_or_default());
        }
        if self.random.u32(0..3) > 0 {
            rule = rule.chance(self.random.f64());
        }
        rule.inject(fault);
    }

    /// What was to end by now ends.
    pub(crate) fn tend(&mut self, now: Instant) {
        if self.key_enabled_at.take_if(|until| *until <= now).is_some() {
            self.kinesis.set_key_state(STREAM, KeyState::Enabled).expect("the stream exists");
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn calm(&mut self) {
        self.kinesis.faults().clear();
        self.key_enabled_at = None;
        self.kinesis.set_key_state(STREAM, KeyState::Enabled).expect("the stream exists");
    }

    fn draw(&mut self) -> (Operation, Fault) {
        if self.random.u32(0..12) == 0 {
            return (Operation::ListShards, self.call_fault());
        }
        match self.source {
            Source::Poll => match self.random.u32(0..10) {
                0 => (Operation::GetShardIterator, self.call_fault()),
                1 | 2 => (Operation::GetRecords, Fault::ExpireIterator),
                3 => (Operation::GetRecords, Fault::EmptyPage { millis_behind: self.random.u64(0..60_000) }),
                _ => (Operation::GetRecords, self.call_fault()),
            },
            Source::Efo if self.random.u32(0..3) == 0 => (Operation::SubscribeToShard, self.call_fault()),
            Source::Efo => {
                let count = self.random.usize(1..3);
                let faults = (0..count).map(|_| self.stream_fault()).collect();
                (Operation::SubscribeToShard, Fault::All(faults))
            }
        }
    }

    /// What can go wrong with any call.
    fn call_fault(&mut self) -> Fault {
        let time = Duration::from_millis(self.random.u64(1..12_000));
        match self.random.u32(0..13) {
            0 | 1 => Fault::Throttle,
            2 => Fault::InternalFailure,
            3 => Fault::Error {
                code: "ServiceUnavailable".to_owned(),
                status: 503,
                message: "by script".to_owned(),
            },
            4 => Fault::error(*self.random.choice(&REFUSALS).expect("there are some")),
            5 => Fault::AccessDenied,
            6 => Fault::Hang(FOREVER),
            7 => Fault::Hang(time),
            8 => Fault::LateReply(time),
            9 => Fault::LateReply(FOREVER),
            10 => Fault::DropReply,
            11 => Fault::Disconnect,
            _ if self.source == Source::Efo => Fault::error("ResourceInUseException"),
            // The connection is retired, or refuses a request.
            _ => Fault::RefuseStream,
        }
    }

    /// What can go wrong in a subscription.
    fn stream_fault(&mut self) -> Fault {
        let at = match self.random.u32(0..4) {
            0 => StreamPoint::BeforeFirstFrame,
            1 => StreamPoint::AfterEvents(self.random.u64(0..3)),
            2 => StreamPoint::AfterEvents(self.random.u64(0..50)),
            _ => StreamPoint::AfterTime(Duration::from_millis(self.random.u64(0..200_000))),
        };
        let fault = match self.random.u32(0..12) {
            0 => StreamFault::Silence(FOREVER),
            1 => StreamFault::Silence(Duration::from_millis(self.random.u64(1..60_000))),
            2 => StreamFault::End,
            3 => StreamFault::Cut,
            4 => StreamFault::CutInside,
            5 => StreamFault::EndInside,
            6 => StreamFault::CorruptChecksum,
            7 => StreamFault::exception(*self.random.choice(&FRAMES).expect("there are some")),
            8 => StreamFault::error("OddError"),
            9 => StreamFault::UnknownEvent { kind: "NewEvent".to_owned() },
            10 => StreamFault::OmitInitialResponse,
            _ => StreamFault::Pieces(self.random.usize(1..5_000)),
        };
        Fault::in_stream(at, fault)
    }
}
