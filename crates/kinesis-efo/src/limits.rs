//! Limits of the service, as its documentation states them.

use std::time::Duration;

/// The least time between two SubscribeToShard calls for one consumer and shard: one call a second
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>).
pub const SUBSCRIBE_INTERVAL: Duration = Duration::from_secs(1);

/// For how long after a successful SubscribeToShard another one for the same consumer and shard is refused. Later, it
/// takes over
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>).
pub const SUBSCRIBE_IN_USE: Duration = Duration::from_secs(5);

/// How long a subscription lives
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>).
pub const SUBSCRIPTION_LIFE: Duration = Duration::from_secs(5 * 60);

/// How many RegisterStreamConsumer calls an account may make per second
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html>).
pub const REGISTRATIONS_PER_SECOND: u32 = 5;

/// How many consumers of an account may be in `CREATING` at a time
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html>).
pub const CONSUMERS_IN_CREATION: u32 = 5;

/// The longest name of a consumer, in characters
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html>).
pub const MAX_CONSUMER_NAME: usize = 128;

/// The most tags of a consumer
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html>).
pub const MAX_TAGS: usize = 50;

/// The shortest time that a stream keeps its records
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_IncreaseStreamRetentionPeriod.html>).
pub const MIN_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
