//! Aggregates by shard: lists of shards that are late, wrong or missing.

use kinesis_core::{HashKey, HashKeyRange};

use super::*;
use crate::aggregation::{Aggregation, Misplaced};

const OLD: &str = "shard-0";
const LOW: &str = "shard-1";
const HIGH: &str = "shard-2";
const MIDDLE: u128 = 1 << 127;

fn by_shard() -> ProducerConfig {
    ProducerConfig { aggregation: Aggregation::ByShard, ..ProducerConfig::default() }
}

fn shard(id: &str, start: u128, end: u128) -> ShardInfo {
    ShardInfo::new(ShardId::new(id).unwrap())
        .hash_range(HashKeyRange::new(HashKey::new(start), HashKey::new(end)))
}

fn whole() -> Vec<ShardInfo> {
    vec![shard(OLD, 0, u128::MAX)]
}

fn halves() -> Vec<ShardInfo> {
    vec![shard(OLD, 0, u128::MAX).closed(true), shard(LOW, 0, MIDDLE - 1), shard(HIGH, MIDDLE, u128::MAX)]
}

/// A record that belongs into the lower or the upper half.
fn put(bench: &mut Bench, low: bool) -> u32 {
    let number = bench.next;
    bench.next += 1;
    let hash = HashKey::new(if low { 1 } else { u128::MAX });
    let record = OutboundRecord::new(format!("key-{number}"), vec![0; 10]).explicit_hash_key(hash);
    bench.step(Event::Admitted(Numbered(number, record)));
    number
}

fn home(record: &OutboundRecord) -> String {
    let low = record.explicit_hash_key.unwrap().get() < MIDDLE;
    if low { LOW.to_owned() } else { HIGH.to_owned() }
}

fn contents(bench: &Bench) -> Vec<Vec<u32>> {
    let items = &bench.batcher.calls[&bench.started[0]].items;
    items.iter().map(|item| item.loads().iter().map(|load| load.put.0).collect()).collect()
}

/// A machine that knows these shards.
fn bench_with(config: &ProducerConfig, shards: Vec<ShardInfo>) -> Bench {
    let mut bench = Bench::new(config);
    put(&mut bench, true);
    bench.step(Event::Listed(Some(shards)));
    bench.wake();
    let expected = bench.batcher.calls[&bench.started[0]].items[0].shard.clone().unwrap();
    bench.store(|_| expected.to_string());
    assert_eq!((bench.listings, bench.stored()), (1, vec![0]));
    bench.done.clear();
    bench
}

/// C-03: the first record asks for the list and waits for it; records of one shard share an aggregate.
#[test]
fn records_of_a_shard_share_an_aggregate() {
    let mut bench = Bench::new(&by_shard());
    for low in [true, false, true, false] {
        put(&mut bench, low);
    }
    assert_eq!((bench.listings, bench.batcher.waiting()), (1, 4));
    bench.pass(500);
    assert_eq!(bench.calls().len(), 0, "they wait for the list");
    bench.step(Event::Listed(Some(halves())));
    assert_eq!(contents(&bench), [vec![0, 2], vec![1, 3]]);
    bench.store(home);
    assert_eq!((bench.stored().len(), bench.listings), (4, 1));
    assert_eq!((bench.batcher.held_bytes(), bench.batcher.next_wake()), (0, None));
}

/// A flush that comes before the list is answered when it is there.
#[test]
fn a_flush_waits_for_the_first_list() {
    let mut bench = Bench::new(&by_shard());
    put(&mut bench, true);
    put(&mut bench, true);
    bench.step(Event::Flush { id: FlushId(1), deadline: None });
    bench.step(Event::Listed(Some(halves())));
    assert_eq!(contents(&bench), [vec![0, 1]]);
    bench.store(home);
    assert_eq!(bench.flushed.len(), 1);
}

/// Without a list (denied, failed) no aggregate mixes hash keys, and the list is asked for again, ever more slowly.
#[test]
fn without_a_list_records_are_packed_by_key() {
    let mut bench = Bench::new(&by_shard());
    bench.put("a", 1);
    bench.put("b", 1);
    bench.put("a", 1);
    bench.step(Event::Listed(None));
    bench.wake();
    assert_eq!(contents(&bench), [vec![0, 2], vec![1]]);
    bench.accept();
    let mut delays = Vec::new();
    for _ in 0..7 {
        let before = bench.millis();
        bench.wake();
        delays.push(bench.millis() - before);
        bench.step(Event::Listed(None));
    }
    assert_eq!(bench.listings, 8);
    for (delay, ceiling) in delays.into_iter().zip([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
        assert!((ceiling / 2 - 100..=ceiling).contains(&delay), "{delay} ms for {ceiling} ms");
    }
    // And once there is one, it is used.
    bench.wake();
    bench.step(Event::Listed(Some(whole())));
    bench.put("a", 1);
    bench.put("b", 1);
    bench.wake();
    assert_eq!(contents(&bench), [vec![3, 4]]);
}

/// F-35: after a split one list explains all that landed elsewhere. What belongs where it is stored is done; the others
/// are packed anew and sent again.
#[test]
fn aggregates_that_a_split_misplaced_are_packed_anew() {
    let mut bench = bench_with(&by_shard(), whole());
    for low in [true, false, true] {
        put(&mut bench, low);
    }
    bench.step(Event::Flush { id: FlushId(1), deadline: None });
    bench.pass(1_000);
    assert_eq!(contents(&bench), [vec![1, 2, 3]]);
    bench.store(home);
    assert_eq!((bench.done.len(), bench.listings), (0, 2), "a list will tell");
    bench.step(Event::Listed(Some(halves())));
    assert_eq!((bench.misplaced, contents(&bench)), (3, vec![vec![1, 3], vec![2]]));
    bench.store(home);
    let sent = bench.sent();
    let places: Vec<_> = sent.values().map(|sent| (sent.shard.as_str(), sent.attempts)).collect();
    assert_eq!(places, [(LOW, 2), (HIGH, 2), (LOW, 2)]);
    assert_eq!(bench.flushed[0].1, FlushReport { sent: 3, failed: 0, unconfirmed: 0 });
    assert_eq!((bench.listings, bench.batcher.held_bytes(), bench.batcher.next_wake()), (2, 0, None));
}

/// F-35: an aggregate that landed elsewhere as a whole is a success, and is not sent again.
#[test]
fn an_aggregate_that_is_at_home_elsewhere_is_done() {
    let mut bench = bench_with(&by_shard(), whole());
    put(&mut bench, true);
    put(&mut bench, true);
    bench.pass(1_000);
    bench.store(home);
    bench.step(Event::Listed(Some(halves())));
    assert_eq!((bench.stored(), bench.misplaced), (vec![1, 2], 0));
    assert_eq!(bench.sent()[&2].shard.as_str(), LOW);
}

/// F-35: a record that was sent alone is a success wherever it landed, and tells that the list is old.
#[test]
fn a_plain_record_is_done_wherever_it_landed() {
    let mut bench = bench_with(&by_shard(), whole());
    put(&mut bench, false);
    bench.pass(1_000);
    bench.store(home);
    assert_eq!((bench.stored(), bench.listings), (vec![1], 2));
}

/// F-35: where readers drop nothing, what was stored is stored.
#[test]
fn misplaced_records_are_accepted_on_request() {
    let mut bench = bench_with(&ProducerConfig { misplaced: Misplaced::Accept, ..by_shard() }, whole());
    put(&mut bench, true);
    put(&mut bench, false);
    bench.pass(1_000);
    bench.store(home);
    assert_eq!((bench.stored(), bench.misplaced, bench.listings), (vec![1, 2], 0, 2));
}

/// F-35: while lists are out of date the records of the shard are packed by key, which is right wherever they land, and
/// lists are asked for ever more slowly.
#[test]
fn a_doubted_shard_is_packed_by_key_until_a_list_explains_it() {
    let mut bench = bench_with(&by_shard(), whole());
    put(&mut bench, true);
    put(&mut bench, false);
    bench.pass(1_000);
    bench.store(home);
    bench.step(Event::Listed(Some(whole())));
    assert_eq!((bench.misplaced, contents(&bench)), (2, vec![vec![1], vec![2]]));
    bench.store(home);
    assert_eq!(bench.stored(), [1, 2]);

    // Ten seconds of traffic under lists that do not change.
    let start = bench.now;
    while bench.now - start < Duration::from_secs(10) {
        let listings = bench.listings;
        for number in 0..4_u128 {
            let key = if number % 2 == 0 { "a" } else { "b" };
            let hash = HashKey::new(if number % 2 == 0 { 1 } else { u128::MAX });
            let numbered = Numbered(bench.next, OutboundRecord::new(key, "x").explicit_hash_key(hash));
            bench.next += 1;
            bench.step(Event::Admitted(numbered));
        }
        bench.pass(100);
        while !bench.started.is_empty() {
            assert_eq!(bench.batcher.calls[&bench.started[0]].items.len(), 2, "one for each key");
            bench.store(home);
        }
        if bench.listings > listings {
            bench.step(Event::Listed(Some(whole())));
        }
    }
    assert_eq!(bench.misplaced, 2, "nothing more than at the first surprise");
    assert!((4..=8).contains(&bench.listings), "{} listings", bench.listings);

    while bench.batcher.atlas.next_wake().is_some() {
        bench.wake();
    }
    bench.step(Event::Listed(Some(halves())));
    put(&mut bench, true);
    put(&mut bench, true);
    bench.pass(100);
    assert_eq!(contents(&bench)[0].len(), 2);
}

/// F-35: what waits or is to be repeated when the list changes is packed by the new one, before it lands elsewhere.
#[test]
fn what_waits_is_packed_by_the_new_list() {
    let mut bench = bench_with(&by_shard(), whole());
    for low in [true, false] {
        put(&mut bench, low);
    }
    bench.pass(1_000);
    assert_eq!(contents(&bench), [vec![1, 2]]);
    bench.answer(|_, _| Some("InternalFailure"));
    // A lone record lands elsewhere.
    let hash = HashKey::MAX;
    let lone = Numbered(3, OutboundRecord::new("lone", "x").explicit_hash_key(hash));
    bench.next += 1;
    bench.step(Event::AdmittedBatch(vec![lone]));
    bench.store(home);
    assert_eq!((bench.stored(), bench.listings), (vec![3], 2));
    for low in [true, false] {
        put(&mut bench, low);
    }
    bench.step(Event::Listed(Some(halves())));
    bench.pass(1_000);
    while !bench.started.is_empty() {
        bench.store(home);
    }
    let sent = bench.sent();
    let attempts: Vec<_> = sent.iter().map(|(number, sent)| (*number, sent.attempts)).collect();
    assert_eq!(attempts, [(1, 2), (2, 2), (3, 1), (4, 1), (5, 1)]);
    for (number, sent) in sent {
        assert_eq!(sent.shard.as_str(), if [1, 4].contains(&number) { LOW } else { HIGH });
    }
    assert_eq!((bench.misplaced, bench.batcher.held_bytes(), bench.listings), (0, 0, 2));
}

/// A list with a hole or with a parent beside its children is not used where it is wrong.
#[test]
fn a_list_that_contradicts_itself_is_asked_for_again() {
    let mut bench = bench_with(&by_shard(), vec![shard(LOW, 0, MIDDLE - 1)]);
    for low in [true, false, true, false] {
        put(&mut bench, low);
    }
    bench.pass(100);
    assert_eq!(contents(&bench), [vec![1, 3], vec![2], vec![4]], "in the hole by key");
    bench.store(home);
    bench.pass(1_000);
    assert_eq!(bench.listings, 2);
    bench.step(Event::Listed(Some(vec![shard(OLD, 0, u128::MAX), shard(LOW, 0, MIDDLE - 1)])));
    bench.pass(2_000);
    assert_eq!(bench.listings, 3);
    bench.step(Event::Listed(Some(halves())));
    assert_eq!(bench.batcher.next_wake(), None);
}

/// A stream that distributes records by itself makes one list of surprises, and is packed by key from then on.
#[test]
fn a_stream_that_ignores_hash_keys_is_packed_by_key() {
    let mut bench = bench_with(&by_shard(), halves());
    for low in [true, false, true, false] {
        put(&mut bench, low);
    }
    bench.pass(1_000);
    bench.store(|record| if home(record) == LOW { HIGH.to_owned() } else { LOW.to_owned() });
    assert_eq!((bench.misplaced, bench.listings), (4, 2));
    bench.step(Event::Listed(Some(halves())));
    for _ in 0..20 {
        while !bench.started.is_empty() {
            bench.store(|_| LOW.to_owned());
        }
        put(&mut bench, true);
        put(&mut bench, false);
        bench.pass(1_000);
    }
    bench.store(|_| LOW.to_owned());
    assert_eq!((bench.stored().len(), bench.misplaced, bench.listings), (44, 4, 2));
}

/// F-35: a stream that was made anew with as many shards needs no list, and one with other shards is no mystery.
#[test]
fn a_stream_that_is_made_anew_gets_a_new_list() {
    let quarter = MIDDLE / 2;
    let mut bench = bench_with(&by_shard(), vec![shard(OLD, 0, MIDDLE - 1), shard(LOW, MIDDLE, u128::MAX)]);
    put(&mut bench, false);
    put(&mut bench, false);
    bench.pass(1_000);
    // Its ids begin anew too: shard-1 is another one now.
    bench.store(|_| HIGH.to_owned());
    let shards =
        vec![shard(OLD, 0, quarter - 1), shard(LOW, quarter, MIDDLE - 1), shard(HIGH, MIDDLE, u128::MAX)];
    bench.step(Event::Listed(Some(shards)));
    assert_eq!((bench.stored(), bench.misplaced), (vec![1, 2], 0));
    put(&mut bench, false);
    put(&mut bench, false);
    bench.pass(100);
    assert_eq!(contents(&bench), [vec![3, 4]]);
}

/// A list that never comes holds records no longer than their time.
#[test]
fn records_that_wait_for_a_list_expire() {
    let config = ProducerConfig { delivery_timeout: Duration::from_secs(1), ..by_shard() };
    let mut bench = Bench::new(&config);
    put(&mut bench, true);
    bench.wake();
    assert_eq!((bench.millis(), bench.failures()), (1_000, vec![(0, RecordErrorKind::Expired, 0)]));

    let mut bench = bench_with(&config, whole());
    bench.pass(1_000);
    put(&mut bench, true);
    put(&mut bench, false);
    bench.pass(100);
    bench.store(home);
    assert_eq!((bench.done.len(), bench.listings), (0, 2));
    bench.wake();
    let kind = RecordErrorKind::Expired;
    assert_eq!(bench.failures(), [(1, kind, 1), (2, kind, 1)]);
    assert!(bench.done.iter().all(|(_, outcome)| outcome.as_ref().unwrap_err().in_doubt));
    assert_eq!((bench.batcher.held(), bench.batcher.held_bytes()), (0, 0));
}

/// F-34: calls of different lists are never under way together, so that keys keep their order when lanes change.
#[test]
fn calls_of_two_lists_are_not_under_way_together() {
    let mut bench = Bench::new(&by_shard());
    bench.put("a", 1);
    bench.step(Event::Listed(None));
    bench.wake();
    assert_eq!(bench.started.len(), 1);
    bench.pass(1_000);
    bench.step(Event::Listed(Some(whole())));
    bench.put("a", 1);
    bench.pass(1_000);
    assert_eq!(bench.started.len(), 1);
    bench.store(|_| OLD.to_owned());
    assert_eq!((bench.started.len(), bench.call()), (1, vec![1]));
}

/// S-133, S-137: with the safety on, no aggregate mixes keys, and the shards do not matter.
#[test]
fn with_key_safety_nothing_is_listed() {
    for aggregation in [Aggregation::ByShard, Aggregation::FirstKey] {
        let config = ProducerConfig { aggregation, partition_key_safety: true, ..ProducerConfig::default() };
        let mut bench = Bench::new(&config);
        for key in ["a", "b", "a"] {
            bench.put(key, 1);
        }
        bench.wake();
        assert_eq!((contents(&bench), bench.listings), (vec![vec![0, 2], vec![1]], 0));
    }
}
