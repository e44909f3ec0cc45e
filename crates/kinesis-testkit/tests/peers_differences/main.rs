//! Differential tests: the same random programs of calls against this service and against servers that were not
//! written here, answers compared field by field. What differs is listed, with who is right by the documentation.
//!
//! Compared is what the documentation determines. Sequence numbers, times, iterators and tokens are each server's own:
//! of them only the order and the effect are compared.
#![allow(unreachable_pub, clippy::unwrap_used)] // helpers of tests may panic like tests

mod deviations;
mod fan_out;
mod polling;
mod side;
#[path = "../support/mod.rs"]
mod support;

use deviations::{KINESIS_LOCAL, MINISTACK};
use side::{Answer, Side, differences, endpoint, ours};

/// Programs of polling per run, and the steps of each.
const POLLING: (u64, usize) = (5, 40);
/// Programs of fan-out per run, and the steps of each.
const FAN_OUT: (u64, usize) = (4, 30);

/// Polling, writing, resharding and settings are those of kinesis-local, but for what is listed.
#[tokio::test]
#[ignore = "needs peers (kinesis-local)"]
async fn random_programs_give_the_answers_of_kinesis_local() {
    let peer = endpoint("KINESIS_LOCAL_ENDPOINT");
    let (_kinesis, server) = ours().await;
    let mut found = Vec::new();
    let (programs, steps) = POLLING;
    for seed in 0..programs {
        let mut random = fastrand::Rng::with_seed(seed);
        let stream = format!("differences-{}-{seed}", std::process::id());
        let (own, other) = (Side::new(&server.url(), &stream), Side::new(&peer, &stream));
        // Not two: kinesis-local then puts the boundary one key lower than the service does.
        let shards = if random.bool() { 1 } else { 3 };
        own.create(shards).await;
        other.create(shards).await;
        let mut compare = |number: usize, name: &str, call: String, mine: &Answer, theirs: &Answer| {
            let lines = differences(name, mine, theirs, &KINESIS_LOCAL);
            found.extend(lines.iter().map(|line| format!("seed {seed} step {number}: {line}\n  {call}")));
        };
        for number in 0..steps {
            let step = polling::Step::random(&mut random);
            compare(number, step.name(), format!("{step:?}"), &own.run(&step).await, &other.run(&step).await);
        }
        let open = own.open_shards().await;
        for target in [open * 2 + 1, open * 2] {
            let target = i32::try_from(target).unwrap();
            compare(
                steps,
                "scale",
                format!("to {target}"),
                &own.scale(target).await,
                &other.scale(target).await,
            );
        }
        other.client.delete_stream().stream_name(&stream).send().await.unwrap();
    }
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
    server.shutdown().await;
}

/// S-246: registration, push, the window of five seconds, take-over and resumption are those of ministack.
#[tokio::test]
#[ignore = "needs peers (ministack)"]
async fn random_programs_give_the_answers_of_ministack() {
    let peer = endpoint("MINISTACK_ENDPOINT");
    let (_kinesis, server) = ours().await;
    let mut found = Vec::new();
    let (programs, steps) = FAN_OUT;
    for seed in 0..programs {
        let mut random = fastrand::Rng::with_seed(seed);
        let stream = format!("fan-out-{}-{seed}", std::process::id());
        let mut own = fan_out::Reader::new(Side::new(&server.url(), &stream)).await;
        let mut other = fan_out::Reader::new(Side::new(&peer, &stream)).await;
        for number in 0..steps {
            let step = fan_out::Step::random(&mut random);
            let (mine, theirs) = tokio::join!(own.run(&step), other.run(&step));
            let lines = differences(step.name(), &mine, &theirs, &MINISTACK);
            found.extend(lines.iter().map(|line| format!("seed {seed} step {number}: {line}\n  {step:?}")));
        }
    }
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
    server.shutdown().await;
}
