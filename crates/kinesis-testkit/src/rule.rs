//! The rules of the service that can be switched off.

use std::fmt;
use std::str::FromStr;

/// Declares the rules: documentation, variant, name on the command line, page of the AWS documentation.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal at $page:literal),* $(,)?) => {
        /// A rule of the service that a test may switch off, to show that it bites or to get it out of the way.
        ///
        /// [`Builder::without`](crate::Builder::without) switches one off. The numbers are in
        /// [`limits`](crate::limits).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(
                $(#[$doc])*
                ///
                #[doc = concat!("<https://docs.aws.amazon.com/", $page, ">")]
                $rule,
            )*
        }

        impl Rule {
            /// Every rule, in the order of their declaration.
            pub const ALL: [Self; rules!(@count $($rule)*)] = [$(Self::$rule),*];

            /// The rule's name as the command line knows it, for example `read-call-rate`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name),*
                }
            }

            /// The page of the AWS documentation that the rule comes from.
            pub fn documentation(self) -> &'static str {
                match self {
                    $(Self::$rule => concat!("https://docs.aws.amazon.com/", $page)),*
                }
            }
        }
    };
    (@count) => { 0 };
    (@count $head:ident $($tail:ident)*) => { 1 + rules!(@count $($tail)*) };
}

rules! {
    /// 5 GetRecords calls per second and shard.
    ReadCallRate = "read-call-rate" at "kinesis/latest/APIReference/API_GetRecords.html",
    /// 2 MiB read per second and shard; a larger page is given on credit and blocks the shard until it is repaid.
    ReadByteRate = "read-byte-rate" at "kinesis/latest/APIReference/API_GetRecords.html",
    /// A GetRecords reply has at most 10,000 records and 10 MiB; `Limit` may not ask for more.
    ReadPageSize = "read-page-size" at "kinesis/latest/APIReference/API_GetRecords.html",
    /// 5 GetShardIterator calls per second and shard.
    IteratorCallRate = "iterator-call-rate" at "kinesis/latest/APIReference/API_GetShardIterator.html",
    /// 1 MiB written per second and shard.
    WriteByteRate = "write-byte-rate" at "kinesis/latest/APIReference/API_PutRecords.html",
    /// 1,000 records written per second and shard.
    WriteRecordRate = "write-record-rate" at "kinesis/latest/APIReference/API_PutRecords.html",
    /// A PutRecords call has at most 500 entries and 10 MiB, counted in bytes of data and partition keys.
    WriteCallSize = "write-call-size" at "kinesis/latest/APIReference/API_PutRecords.html",
    /// A record has at most 1 MiB, or what the stream allows, counted in bytes of data and partition key.
    RecordSize = "record-size" at "kinesis/latest/APIReference/API_UpdateMaxRecordSize.html",
    /// A shard iterator may be used for 5 minutes.
    IteratorLife = "iterator-life" at "kinesis/latest/APIReference/API_GetShardIterator.html",
    /// A timestamp in the future is refused by GetShardIterator and SubscribeToShard.
    FutureTimestamp = "future-timestamp" at "kinesis/latest/APIReference/API_GetShardIterator.html",
    /// GetRecords and events tell how far behind they are. Without it they always say that nothing is left.
    MillisBehindLatest = "millis-behind-latest" at "kinesis/latest/APIReference/API_GetRecords.html",
    /// The end of a shard names its children, in GetRecords and in the last event of a subscription.
    ChildShards = "child-shards" at "kinesis/latest/APIReference/API_ChildShard.html",
    /// Records older than the retention period are gone, and so are closed shards that held nothing younger.
    Retention = "retention" at "streams/latest/dev/kinesis-extended-retention.html",
    /// The entries of one PutRecords call are stored in any order: here one that the seed decides.
    RecordOrder = "record-order" at "kinesis/latest/APIReference/API_PutRecords.html",
    /// Calls of the control plane per second, by operation and account or stream.
    ControlCallRate = "control-call-rate" at "streams/latest/dev/service-sizes-and-limits.html",
    /// The `NextToken` of ListShards and ListStreamConsumers may be used for 5 minutes.
    NextTokenLife = "next-token-life" at "kinesis/latest/APIReference/API_ListShards.html",
    /// The account has 20,000 open shards, or what [`Builder::shard_quota`](crate::Builder::shard_quota) says.
    ShardQuota = "shard-quota" at "streams/latest/dev/service-sizes-and-limits.html",
    /// At most 5 streams of the account in `CREATING`.
    StreamsInCreation = "streams-in-creation" at "kinesis/latest/APIReference/API_CreateStream.html",
    /// UpdateShardCount at most doubles and at least halves the number of open shards.
    ScaleFactor = "scale-factor" at "kinesis/latest/APIReference/API_UpdateShardCount.html",
    /// 10 changes of the shard count per stream and 24 hours.
    ShardCountChanges = "shard-count-changes" at "kinesis/latest/APIReference/API_UpdateShardCount.html",
    /// New shards are listed only some time after they take records, as far as
    /// [`Builder::shard_list_lag`](crate::Builder::shard_list_lag) asks for it.
    ShardListLag = "shard-list-lag" at "streams/latest/dev/kinesis-using-sdk-java-after-resharding.html",
    /// A shard of an on-demand stream that had to refuse a write is split.
    OnDemandSplits = "on-demand-splits" at "streams/latest/dev/how-do-i-size-a-stream.html",
    /// The key of an encrypted stream must be usable, see
    /// [`TestKinesis::set_key_state`](crate::TestKinesis::set_key_state).
    KeyState = "key-state" at "streams/latest/dev/what-is-sse.html",
    /// At most 5 consumers in `CREATING`.
    ConsumersInCreation =
        "consumers-in-creation" at "kinesis/latest/APIReference/API_RegisterStreamConsumer.html",
    /// 20 consumers per stream, or what [`Builder::consumer_quota`](crate::Builder::consumer_quota) says.
    ConsumerQuota = "consumer-quota" at "kinesis/latest/APIReference/API_RegisterStreamConsumer.html",
    /// 1 SubscribeToShard call per second, consumer and shard.
    SubscribeCallRate = "subscribe-call-rate" at "kinesis/latest/APIReference/API_SubscribeToShard.html",
    /// Within 5 seconds of a successful SubscribeToShard call another one is refused, whether the subscription
    /// still lives or not.
    SubscribeInUse = "subscribe-in-use" at "kinesis/latest/APIReference/API_SubscribeToShard.html",
    /// A later SubscribeToShard call ends the subscription before it.
    TakeOver = "take-over" at "kinesis/latest/APIReference/API_SubscribeToShard.html",
    /// A subscription ends after 5 minutes.
    SubscriptionLife = "subscription-life" at "kinesis/latest/APIReference/API_SubscribeToShard.html",
    /// 2 MiB pushed per second, consumer and shard.
    SubscriptionByteRate = "subscription-byte-rate" at "streams/latest/dev/enhanced-consumers.html",
    /// Events without records while there are none.
    Heartbeats = "heartbeats" at "kinesis/latest/APIReference/API_SubscribeToShardEvent.html",
}

impl Rule {
    /// The throughput rules: what a test of something else, or a demo that loads data fast, may want to be without.
    pub const THROUGHPUT: [Self; 7] = [
        Self::ReadCallRate,
        Self::ReadByteRate,
        Self::IteratorCallRate,
        Self::WriteByteRate,
        Self::WriteRecordRate,
        Self::ControlCallRate,
        Self::SubscriptionByteRate,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no rule's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no rule has the name `{0}`")]
pub struct UnknownRule(String);

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(name: &str) -> Result<Self, UnknownRule> {
        Self::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| UnknownRule(name.to_owned()))
    }
}
