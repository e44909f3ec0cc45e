//! The machine on its own: no runtime, time as a number.

mod aggregates;
mod limits;
mod model;
mod retries;
mod shards;
mod triggers;
mod world;

use kinesis_core::aws::FailureKind;

use super::*;

const KEY: &str = "key";
const MIB: usize = 1024 * 1024;

/// A record with a number to tell it by.
#[derive(Debug)]
struct Numbered(u32, OutboundRecord);

impl Put for Numbered {
    fn record(&self) -> &OutboundRecord {
        &self.1
    }
}

/// A machine with its time and what it has asked for so far.
struct Bench {
    batcher: Batcher<Numbered>,
    start: Instant,
    now: Instant,
    /// Calls that were started and not answered, oldest first.
    started: Vec<CallId>,
    done: Vec<(u32, Result<Sent, Failure>)>,
    flushed: Vec<(FlushId, FlushReport)>,
    retrying: usize,
    /// Listings that were asked for, Kinesis records that were stored, records that are to be sent again elsewhere.
    listings: usize,
    kinesis_records: usize,
    misplaced: usize,
    next: u32,
}

impl Bench {
    fn new(config: &ProducerConfig) -> Self {
        config.validate().unwrap();
        let now = Instant::now();
        Self {
            batcher: Batcher::new(config, None, 7),
            start: now,
            now,
            started: Vec::new(),
            done: Vec::new(),
            flushed: Vec::new(),
            retrying: 0,
            listings: 0,
            kinesis_records: 0,
            misplaced: 0,
            next: 0,
        }
    }

    fn step(&mut self, event: Event<Numbered>) {
        for action in self.batcher.step(self.now, event) {
            match action {
                Action::Send(id) => self.started.push(id),
                Action::ListShards => self.listings += 1,
                Action::Stored { .. } => self.kinesis_records += 1,
                Action::Misplaced(records) => self.misplaced += records,
                Action::Unpredictable => {}
                Action::Done { put, outcome } => self.done.push((put.0, outcome)),
                Action::Retrying(records) => self.retrying += records,
                Action::Flushed { id, report } => self.flushed.push((id, report)),
            }
        }
    }

    fn numbered(&mut self, key: &str, len: usize) -> Numbered {
        let number = self.next;
        self.next += 1;
        Numbered(number, OutboundRecord::new(key, vec![0; len]))
    }

    fn put(&mut self, key: &str, len: usize) -> u32 {
        let record = self.numbered(key, len);
        let number = record.0;
        self.step(Event::Admitted(record));
        number
    }

    /// Puts records of different keys.
    fn put_many(&mut self, records: usize) {
        for _ in 0..records {
            let key = format!("key-{}", self.next);
            self.put(&key, 1);
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.step(Event::Tick);
    }

    /// Lets time pass up to the next thing that is due.
    fn wake(&mut self) {
        self.now = self.now.max(self.batcher.next_wake().expect("something is due"));
        self.step(Event::Tick);
    }

    fn millis(&self) -> u128 {
        (self.now - self.start).as_millis()
    }

    /// The records of the oldest call that has no answer.
    fn call(&self) -> Vec<u32> {
        self.records_of(self.started[0])
    }

    fn records_of(&self, id: CallId) -> Vec<u32> {
        let items = self.batcher.calls[&id].items.iter();
        items.flat_map(|item| item.loads().iter().map(|load| load.put.0)).collect()
    }

    /// Sizes of all calls that have no answer: records and bytes.
    fn calls(&self) -> Vec<(usize, usize)> {
        let size = |id: &CallId| {
            let sizes: Vec<_> = self.batcher.records(*id).map(OutboundRecord::wire_len).collect();
            (sizes.len(), sizes.iter().sum())
        };
        self.started.iter().map(size).collect()
    }

    /// Answers the oldest call: every Kinesis record for which `refuse` has a code is refused with it; it is asked with
    /// the first of its records.
    fn answer(&mut self, refuse: impl Fn(usize, u32) -> Option<&'static str>) {
        let call = self.started.remove(0);
        let result = |(index, number)| match refuse(index, number) {
            Some(code) => Err(ServiceFailure::from_code(code, "refused")),
            None => Ok((ShardId::new("shardId-000000000000").unwrap(), SequenceNumber::ZERO)),
        };
        let items = self.batcher.calls[&call].items.iter();
        let results = items.map(|item| item.loads()[0].put.0).enumerate().map(result).collect();
        self.step(Event::Answered { call, result: Ok(results) });
    }

    /// Answers the oldest call: each Kinesis record is stored in the shard that `place` names.
    fn store(&mut self, place: impl Fn(&OutboundRecord) -> String) {
        let call = self.started.remove(0);
        let stored = |record| {
            let shard = ShardId::new(place(record)).unwrap();
            Ok((shard, SequenceNumber::ZERO))
        };
        let results = self.batcher.records(call).map(stored).collect();
        self.step(Event::Answered { call, result: Ok(results) });
    }

    /// Where each record was stored last.
    fn sent(&self) -> BTreeMap<u32, Sent> {
        let sent = |(number, outcome): &(u32, Result<Sent, Failure>)| {
            outcome.as_ref().ok().map(|sent| (*number, sent.clone()))
        };
        self.done.iter().filter_map(sent).collect()
    }

    fn accept(&mut self) {
        self.answer(|_, _| None);
    }

    fn fail_call(&mut self, kind: FailureKind) {
        let call = self.started.remove(0);
        self.step(Event::Answered { call, result: Err(ServiceFailure::local(kind, "down")) });
    }

    /// The numbers of the records that were stored, in the order of the answers.
    fn stored(&self) -> Vec<u32> {
        self.done.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(number, _)| *number).collect()
    }

    fn failures(&self) -> Vec<(u32, RecordErrorKind, u32)> {
        let failed = |(number, outcome): &(u32, Result<Sent, Failure>)| {
            let failure = outcome.as_ref().err()?;
            Some((*number, failure.kind, failure.attempts))
        };
        self.done.iter().filter_map(failed).collect()
    }
}
