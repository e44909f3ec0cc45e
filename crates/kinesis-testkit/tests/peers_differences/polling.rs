//! Random programs of the calls that read by polling, write, and change shards and settings.

use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::primitives::{Blob, DateTime};
use aws_sdk_kinesis::types::{
    ChildShard, PutRecordsRequestEntry, ScalingType, Shard, ShardFilter, ShardFilterType, ShardIteratorType,
};

use crate::side::{Answer, Side, answer, shard_id};
use crate::support;

/// One call, the same for every server: shards are named by their number, records by their place.
#[derive(Debug, Clone)]
pub enum Step {
    Put { hash_key: u128, data: String },
    PutMany { keys: Vec<String> },
    PutBadly { key: String, hash_key: Option<String> },
    Split { shard: usize, percent: u8 },
    SplitOutside { shard: usize },
    Merge { shard: usize, other: usize },
    List { filter: Option<&'static str>, shard: usize, page: i32 },
    ListAfter { shard: usize },
    Describe { limit: i32 },
    Summary,
    ReadAll { shard: usize },
    ReadFrom { shard: usize, place: usize, after: bool },
    ReadTip { shard: usize },
    ReadNonsense,
    StartAtNoNumber { shard: usize },
    StartInTheFuture { shard: usize },
    KeepLonger { hours: i32 },
    KeepShorter { hours: i32 },
    OtherStream { call: u8 },
}

const FILTERS: [Option<&str>; 5] =
    [None, Some("AT_LATEST"), Some("AT_TRIM_HORIZON"), Some("FROM_TRIM_HORIZON"), Some("AFTER_SHARD_ID")];
const HOURS: [i32; 6] = [23, 24, 48, 100, 8_760, 8_761];

impl Step {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::PutMany { .. } => "put-many",
            Self::PutBadly { .. } => "put-badly",
            Self::Split { .. } => "split",
            Self::SplitOutside { .. } => "split-outside",
            Self::Merge { .. } => "merge",
            Self::List { filter: Some("AT_TRIM_HORIZON"), .. } => "list-at-trim-horizon",
            Self::List { filter: Some("AFTER_SHARD_ID"), .. } => "list-after-shard-id",
            Self::List { .. } => "list",
            Self::ListAfter { .. } => "list-after",
            Self::Describe { .. } => "describe",
            Self::Summary => "summary",
            Self::ReadAll { .. } => "read-all",
            Self::ReadFrom { .. } => "read-from",
            Self::ReadTip { .. } => "read-tip",
            Self::ReadNonsense => "read-nonsense",
            Self::StartAtNoNumber { .. } => "start-at-no-number",
            Self::StartInTheFuture { .. } => "start-in-the-future",
            Self::KeepLonger { .. } => "keep-longer",
            Self::KeepShorter { .. } => "keep-shorter",
            Self::OtherStream { .. } => "other-stream",
        }
    }

    pub fn random(random: &mut fastrand::Rng) -> Self {
        // Shards that are not there are wanted too, now and then.
        let mut shard = || random.usize(..8);
        let (shard, other) = (shard(), shard());
        match random.u8(..32) {
            0..=5 => Self::Put { hash_key: random.u128(..), data: format!("p{}", random.u32(..)) },
            6..=8 => {
                Self::PutMany { keys: (0..random.usize(1..6)).map(|_| random.u16(..).to_string()).collect() }
            }
            9 => {
                let hash_key = random.choice(["340282366920938463463374607431768211456", "-1", "00", "x"]);
                Self::PutBadly { key: "k".to_owned(), hash_key: hash_key.map(str::to_owned) }
            }
            10 => Self::PutBadly { key: "\u{1f980}".repeat(random.usize(256..258)), hash_key: None },
            11 | 12 => Self::Split { shard, percent: random.u8(10..90) },
            13 => Self::SplitOutside { shard },
            14 | 15 => Self::Merge { shard, other },
            16..=18 => Self::List { filter: random.choice(FILTERS).flatten(), shard, page: random.i32(1..4) },
            19 => Self::ListAfter { shard },
            20 => Self::Describe { limit: random.i32(1..4) },
            21 => Self::Summary,
            22 => Self::ReadNonsense,
            23 => Self::StartAtNoNumber { shard },
            24 => Self::StartInTheFuture { shard },
            25 => Self::KeepLonger { hours: random.choice(HOURS).unwrap_or(24) },
            26 => Self::KeepShorter { hours: random.choice(HOURS).unwrap_or(24) },
            27 => Self::OtherStream { call: random.u8(..6) },
            28 | 29 => Self::ReadFrom { shard, place: random.usize(..4), after: random.bool() },
            30 => Self::ReadTip { shard },
            _ => Self::ReadAll { shard },
        }
    }
}

/// A shard in words that do not depend on the server. Which of two parents is the adjacent one is not said anywhere.
fn shown(shard: &Shard) -> String {
    let open = shard.sequence_number_range().is_some_and(|range| range.ending_sequence_number.is_none());
    let mut parents: Vec<_> =
        shard.parent_shard_id().into_iter().chain(shard.adjacent_parent_shard_id()).collect();
    parents.sort_unstable();
    format!("{} {parents:?} {:?} open: {open}", shard.shard_id, shard.hash_key_range)
}

fn shards(list: &[Shard]) -> String {
    let mut lines: Vec<_> = list.iter().map(shown).collect();
    lines.sort();
    lines.join("\n    ")
}

fn children(list: &[ChildShard]) -> String {
    let mut lines: Vec<_> = list
        .iter()
        .map(|child| {
            let mut parents = child.parent_shards.clone();
            parents.sort();
            format!("{} {parents:?} {:?}", child.shard_id, child.hash_key_range)
        })
        .collect();
    lines.sort();
    lines.join("\n    ")
}

impl Side {
    pub async fn run(&self, step: &Step) -> Answer {
        let (client, stream) = (&self.client, &self.stream);
        match step {
            Step::Put { hash_key, data } => {
                let put = client.put_record().stream_name(stream).partition_key("k");
                let put = put.explicit_hash_key(hash_key.to_string()).data(Blob::new(data.as_bytes()));
                answer(put.send().await, |reply| {
                    let digits = reply.sequence_number.bytes().all(|byte| byte.is_ascii_digit());
                    [("shard", reply.shard_id), ("digits", digits.to_string())]
                })
            }
            Step::PutMany { keys } => {
                let entries = keys.iter().map(|key| support::entry(key, key.as_bytes())).collect();
                let put = client.put_records().stream_name(stream).set_records(Some(entries));
                answer(put.send().await, |reply| {
                    let results = reply.records().iter();
                    let places: Vec<_> =
                        results.map(|result| (result.shard_id(), result.error_code())).collect();
                    [
                        ("failed", format!("{:?}", reply.failed_record_count())),
                        ("places", format!("{places:?}")),
                    ]
                })
            }
            Step::PutBadly { key, hash_key } => {
                let entry = PutRecordsRequestEntry::builder().partition_key(key).data(Blob::new("x"));
                let entry = entry.set_explicit_hash_key(hash_key.clone()).build().unwrap();
                let put = client.put_records().stream_name(stream).records(entry).send().await;
                answer(put, |reply| [("failed", format!("{:?}", reply.failed_record_count()))])
            }
            Step::OtherStream { call } => self.other_stream(*call).await,
            Step::Split { .. } | Step::SplitOutside { .. } | Step::Merge { .. } => self.reshard(step).await,
            Step::KeepLonger { hours } => {
                let change = client.increase_stream_retention_period().stream_name(stream);
                let change = change.retention_period_hours(*hours).send().await;
                self.wait_active().await;
                answer(change, |_| [])
            }
            Step::KeepShorter { hours } => {
                let change = client.decrease_stream_retention_period().stream_name(stream);
                let change = change.retention_period_hours(*hours).send().await;
                self.wait_active().await;
                answer(change, |_| [])
            }
            Step::List { .. } | Step::ListAfter { .. } | Step::Describe { .. } | Step::Summary => {
                self.describe(step).await
            }
            _ => self.read(step).await,
        }
    }

    async fn other_stream(&self, call: u8) -> Answer {
        let (client, none) = (&self.client, "no-such-stream");
        match call {
            0 => answer(client.list_shards().stream_name(none).send().await, |_| []),
            1 => answer(client.describe_stream_summary().stream_name(none).send().await, |_| []),
            2 => {
                let put = client.put_record().stream_name(none).partition_key("k").data(Blob::new("x"));
                answer(put.send().await, |_| [])
            }
            3 => {
                let start = client.get_shard_iterator().stream_name(none).shard_id(shard_id(0));
                answer(start.shard_iterator_type(ShardIteratorType::Latest).send().await, |_| [])
            }
            4 => answer(client.delete_stream().stream_name(none).send().await, |_| []),
            _ => {
                let again = client.create_stream().stream_name(&self.stream).shard_count(1);
                answer(again.send().await, |_| [])
            }
        }
    }

    /// The range of a shard, in every server's words.
    async fn range(&self, shard: usize) -> Option<(u128, u128)> {
        let list = self.client.list_shards().stream_name(&self.stream).send().await.unwrap();
        let found = list.shards().iter().find(|found| found.shard_id == shard_id(shard))?;
        let range = found.hash_key_range()?;
        Some((range.starting_hash_key.parse().ok()?, range.ending_hash_key.parse().ok()?))
    }

    async fn reshard(&self, step: &Step) -> Answer {
        match step {
            Step::Split { shard, percent } => {
                let (start, end) = self.range(*shard).await.unwrap_or((0, u128::MAX));
                self.split(*shard, start + (end - start) / 100 * u128::from(*percent)).await
            }
            Step::SplitOutside { shard } => {
                // Its own start is not used: kinesis-local takes it, against the documentation.
                match self.range(*shard).await {
                    Some((0, u128::MAX)) => Answer::new(),
                    Some((0, end)) => self.split(*shard, end + 1).await,
                    Some((start, _)) => self.split(*shard, start - 1).await,
                    None => self.split(*shard, 7).await,
                }
            }
            Step::Merge { shard, other } => {
                let merge =
                    self.client.merge_shards().stream_name(&self.stream).shard_to_merge(shard_id(*shard));
                let merged = merge.adjacent_shard_to_merge(shard_id(*other)).send().await;
                self.wait_active().await;
                answer(merged, |_| [])
            }
            other => panic!("{other:?} changes no shards"),
        }
    }

    async fn split(&self, shard: usize, at: u128) -> Answer {
        let split = self.client.split_shard().stream_name(&self.stream).shard_to_split(shard_id(shard));
        let split = split.new_starting_hash_key(at.to_string()).send().await;
        self.wait_active().await;
        answer(split, |_| [])
    }

    /// Changes the shard count; what is open afterwards. How it comes about is not documented, so it ends a program.
    pub async fn scale(&self, target: i32) -> Answer {
        let scale = self.client.update_shard_count().stream_name(&self.stream).target_shard_count(target);
        let scaled = scale.scaling_type(ScalingType::UniformScaling).send().await;
        self.wait_active().await;
        let list = self.client.list_shards().stream_name(&self.stream).send().await.unwrap();
        let open = list.shards().iter().filter(|shard| shown(shard).ends_with("open: true"));
        let mut open: Vec<_> = open.map(|shard| format!("{:?}", shard.hash_key_range)).collect();
        open.sort();
        answer(scaled, |reply| {
            [
                ("current", format!("{:?}", reply.current_shard_count)),
                ("target", format!("{:?}", reply.target_shard_count)),
                ("open", open.join("\n    ")),
            ]
        })
    }

    pub async fn open_shards(&self) -> usize {
        let list = self.client.list_shards().stream_name(&self.stream).send().await.unwrap();
        list.shards().iter().filter(|shard| shown(shard).ends_with("open: true")).count()
    }

    async fn describe(&self, step: &Step) -> Answer {
        let (client, stream) = (&self.client, &self.stream);
        match step {
            Step::List { filter, shard, page } => {
                let filter = filter.map(|kind| {
                    let filter = ShardFilter::builder().r#type(ShardFilterType::from(kind));
                    let id = (kind == "AFTER_SHARD_ID").then(|| shard_id(*shard));
                    filter.set_shard_id(id).build().unwrap()
                });
                let first =
                    client.list_shards().stream_name(stream).set_shard_filter(filter).max_results(*page);
                let mut reply = match first.send().await {
                    Ok(reply) => reply,
                    refused => return answer(refused, |_| []),
                };
                let (mut found, mut sizes) = (Vec::new(), Vec::new());
                loop {
                    sizes.push(reply.shards().len());
                    found.extend(reply.shards.unwrap_or_default());
                    let Some(token) = reply.next_token else { break };
                    reply = match client.list_shards().next_token(token).max_results(*page).send().await {
                        Ok(reply) => reply,
                        refused => return answer(refused, |_| []),
                    };
                }
                [("shards", shards(&found)), ("pages", format!("{sizes:?}"))].into()
            }
            Step::ListAfter { shard } => {
                let list =
                    client.list_shards().stream_name(stream).exclusive_start_shard_id(shard_id(*shard));
                answer(list.send().await, |reply| [("shards", shards(reply.shards()))])
            }
            Step::Describe { limit } => {
                let describe = client.describe_stream().stream_name(stream).limit(*limit);
                answer(describe.send().await, |reply| {
                    let about = reply.stream_description.unwrap();
                    [
                        ("shards", shards(about.shards())),
                        ("more", about.has_more_shards.to_string()),
                        ("status", about.stream_status.to_string()),
                        ("retention", about.retention_period_hours.to_string()),
                        ("encryption", format!("{:?}", about.encryption_type)),
                    ]
                })
            }
            Step::Summary => {
                let summary = client.describe_stream_summary().stream_name(stream).send().await;
                answer(summary, |reply| {
                    let about = reply.stream_description_summary.unwrap();
                    [
                        ("name", about.stream_name),
                        ("status", about.stream_status.to_string()),
                        ("mode", format!("{:?}", about.stream_mode_details.map(|mode| mode.stream_mode))),
                        ("open", about.open_shard_count.to_string()),
                        ("retention", about.retention_period_hours.to_string()),
                        ("consumers", about.consumer_count.unwrap_or_default().to_string()),
                        ("monitoring", format!("{:?}", about.enhanced_monitoring)),
                        ("record size", format!("{:?}", about.max_record_size_in_kib)),
                    ]
                })
            }
            other => panic!("{other:?} describes nothing"),
        }
    }

    async fn read(&self, step: &Step) -> Answer {
        let start = |shard: usize, kind: ShardIteratorType| {
            let start = self.client.get_shard_iterator().stream_name(&self.stream).shard_id(shard_id(shard));
            start.shard_iterator_type(kind)
        };
        match step {
            Step::ReadAll { shard } => {
                self.read_on(start(*shard, ShardIteratorType::TrimHorizon).send().await).await
            }
            Step::ReadTip { shard } => {
                self.read_on(start(*shard, ShardIteratorType::Latest).send().await).await
            }
            Step::ReadFrom { shard, place, after } => {
                let all = match start(*shard, ShardIteratorType::TrimHorizon).send().await {
                    Ok(reply) => self.pages(reply.shard_iterator).await,
                    refused => return answer(refused, |_| []),
                };
                let records = all.unwrap_or_default();
                let number = records.iter().flat_map(GetRecordsOutput::records).nth(*place);
                let Some(number) = number.map(|record| record.sequence_number.clone()) else {
                    return [("records", "too few".to_owned())].into();
                };
                let kind = if *after {
                    ShardIteratorType::AfterSequenceNumber
                } else {
                    ShardIteratorType::AtSequenceNumber
                };
                self.read_on(start(*shard, kind).starting_sequence_number(number).send().await).await
            }
            Step::ReadNonsense => {
                let read = self.client.get_records().shard_iterator("bm9uc2Vuc2U=").send().await;
                answer(read, |_| [])
            }
            Step::StartAtNoNumber { shard } => {
                let start = start(*shard, ShardIteratorType::AtSequenceNumber);
                answer(start.starting_sequence_number("no-number").send().await, |_| [])
            }
            Step::StartInTheFuture { shard } => {
                let future = DateTime::from_secs(4_000_000_000);
                answer(start(*shard, ShardIteratorType::AtTimestamp).timestamp(future).send().await, |_| [])
            }
            other => panic!("{other:?} reads nothing"),
        }
    }

    /// Everything from an iterator to the tip or the end of the shard.
    async fn read_on<E>(
        &self,
        start: Result<
            aws_sdk_kinesis::operation::get_shard_iterator::GetShardIteratorOutput,
            aws_sdk_kinesis::error::SdkError<E>,
        >,
    ) -> Answer
    where
        E: aws_sdk_kinesis::error::ProvideErrorMetadata,
    {
        let pages = match start {
            Ok(reply) => self.pages(reply.shard_iterator).await,
            refused => return answer(refused, |_| []),
        };
        let pages = match pages {
            Ok(pages) => pages,
            Err(refused) => return refused,
        };
        let records: Vec<_> = pages.iter().flat_map(GetRecordsOutput::records).collect();
        let data: Vec<_> =
            records.iter().map(|record| String::from_utf8_lossy(record.data().as_ref())).collect();
        let keys: Vec<_> = records.iter().map(|record| record.partition_key()).collect();
        let mut numbers: Vec<_> =
            records.iter().map(|record| record.sequence_number.parse::<num::Wide>().unwrap()).collect();
        let ordered = numbers.is_sorted();
        numbers.dedup();
        let last = pages.last().unwrap();
        [
            ("data", format!("{data:?}")),
            ("keys", format!("{keys:?}")),
            ("ordered", (ordered && numbers.len() == records.len()).to_string()),
            ("ended", last.next_shard_iterator.is_none().to_string()),
            ("children", children(last.child_shards())),
            ("behind", format!("{:?}", last.millis_behind_latest())),
        ]
        .into()
    }

    async fn pages(&self, mut iterator: Option<String>) -> Result<Vec<GetRecordsOutput>, Answer> {
        let mut pages = Vec::new();
        while let Some(current) = iterator {
            match self.client.get_records().shard_iterator(current).send().await {
                Ok(page) => {
                    let caught_up = page.millis_behind_latest() == Some(0) && page.records().is_empty();
                    iterator = page.next_shard_iterator.clone().filter(|_| !caught_up);
                    pages.push(page);
                }
                Err(error) => return Err(answer::<(), _, 0>(Err(error), |()| [])),
            }
        }
        Ok(pages)
    }
}

mod num {
    /// A decimal number of any length, in the order of numbers.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    pub struct Wide(usize, String);

    impl std::str::FromStr for Wide {
        type Err = std::convert::Infallible;

        fn from_str(text: &str) -> Result<Self, Self::Err> {
            let digits = text.trim_start_matches('0');
            Ok(Self(digits.len(), digits.to_owned()))
        }
    }
}
