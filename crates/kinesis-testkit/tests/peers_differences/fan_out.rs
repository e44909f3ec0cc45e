//! Random programs of enhanced fan-out: consumers come and go, subscriptions start everywhere, and records are pushed.

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{ConsumerStatus, ShardIteratorType, StartingPosition};
use tokio::time::timeout;

use crate::side::{Answer, LIMIT, Side, answer, shard_id};
use crate::support::efo::{Subscribed, after_number, from_oldest, from_tip, subscribe, texts};

/// What a consumer is called by its number.
const CONSUMERS: usize = 3;

/// Longer than the pause between the calls of a step, shorter than the window of five seconds.
const WITHIN_WINDOW: Duration = Duration::from_millis(1_200);
const BEYOND_WINDOW: Duration = Duration::from_millis(5_200);

/// One step, the same for every server.
#[derive(Debug, Clone)]
pub enum Step {
    Put {
        data: String,
    },
    Register {
        consumer: usize,
    },
    Deregister {
        consumer: usize,
    },
    Describe {
        consumer: usize,
        by_name: bool,
    },
    List {
        page: i32,
    },
    /// Subscribes with a consumer of its own and reads all there is: from the oldest, at or after a record by its
    /// place, or from a time before everything.
    Replay {
        start: Start,
    },
    /// Subscribes at the tip with a consumer of its own, and gets what is put then.
    Follow {
        data: String,
    },
    /// Subscribes twice within the window of five seconds.
    TooEarly,
    /// Subscribes again after the window, from where the first stands, which ends.
    TakeOver {
        data: String,
    },
    BadStart {
        kind: u8,
    },
    Nobody {
        kind: u8,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum Start {
    Oldest,
    At(usize),
    After(usize),
    Time,
}

impl Step {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::Register { .. } => "register",
            Self::Deregister { .. } => "deregister",
            Self::Describe { .. } => "describe-consumer",
            Self::List { .. } => "list-consumers",
            Self::Replay { .. } => "replay",
            Self::Follow { .. } => "follow",
            Self::TooEarly => "too-early",
            Self::TakeOver { .. } => "take-over",
            Self::BadStart { .. } => "bad-start",
            Self::Nobody { .. } => "nobody",
        }
    }

    pub fn random(random: &mut fastrand::Rng) -> Self {
        let consumer = random.usize(..CONSUMERS);
        let mut data = || format!("p{}", random.u32(..));
        let data = data();
        let place = random.usize(..4);
        match random.u8(..32) {
            0..=7 => Self::Put { data },
            8..=11 => Self::Register { consumer },
            12 | 13 => Self::Deregister { consumer },
            14..=16 => Self::Describe { consumer, by_name: random.bool() },
            17 | 18 => Self::List { page: random.i32(1..4) },
            19..=23 => {
                let starts = [Start::Oldest, Start::At(place), Start::After(place), Start::Time];
                Self::Replay { start: random.choice(starts).unwrap_or(Start::Oldest) }
            }
            24 | 25 => Self::Follow { data },
            26 => Self::TooEarly,
            27 => Self::TakeOver { data },
            28 | 29 => Self::BadStart { kind: random.u8(..4) },
            _ => Self::Nobody { kind: random.u8(..3) },
        }
    }
}

/// One server's side of a program: a stream of one shard, and what was written to it.
pub struct Reader {
    side: Side,
    arn: String,
    /// The numbers of the records in the order in which they were put.
    numbers: Vec<String>,
    texts: Vec<String>,
    /// Consumers made for a single step.
    made: usize,
}

impl Reader {
    pub async fn new(side: Side) -> Self {
        side.create(1).await;
        Self { arn: side.arn().await, side, numbers: Vec::new(), texts: Vec::new(), made: 0 }
    }

    pub async fn run(&mut self, step: &Step) -> Answer {
        let client = self.side.client.clone();
        match step {
            Step::Put { data } => {
                self.put(data).await;
                Answer::new()
            }
            Step::Register { consumer } => {
                let register = client.register_stream_consumer().stream_arn(&self.arn);
                let reply = register.consumer_name(format!("app-{consumer}")).send().await;
                let done = reply.is_ok();
                let answer = answer(reply, |reply| {
                    let consumer = reply.consumer.unwrap();
                    let named = consumer.consumer_arn.contains("/consumer/app-");
                    [("name", consumer.consumer_name), ("arn", named.to_string())]
                });
                if done {
                    self.wait_active(&format!("app-{consumer}")).await;
                }
                answer
            }
            Step::Deregister { consumer } => {
                let name = format!("app-{consumer}");
                let remove = client.deregister_stream_consumer().stream_arn(&self.arn).consumer_name(&name);
                let reply = remove.send().await;
                if reply.is_ok() {
                    self.wait_gone(&name).await;
                }
                answer(reply, |_| [])
            }
            Step::Describe { consumer, by_name } => self.describe(*consumer, *by_name).await,
            Step::List { page } => self.list(*page).await,
            Step::Replay { start } => self.replay(*start).await,
            Step::Follow { data } => self.follow(data).await,
            Step::TooEarly => self.too_early().await,
            Step::TakeOver { data } => self.take_over(data).await,
            Step::BadStart { kind } => self.bad_start(*kind).await,
            Step::Nobody { kind } => self.nobody(*kind).await,
        }
    }

    async fn put(&mut self, data: &str) {
        let put = self.side.client.put_record().stream_name(&self.side.stream).partition_key("k");
        let reply = put.data(Blob::new(data)).send().await.unwrap();
        self.numbers.push(reply.sequence_number);
        self.texts.push(data.to_owned());
    }

    async fn status(&self, name: &str) -> Option<ConsumerStatus> {
        let describe = self.side.client.describe_stream_consumer().stream_arn(&self.arn).consumer_name(name);
        Some(describe.send().await.ok()?.consumer_description?.consumer_status)
    }

    async fn wait_active(&self, name: &str) {
        let active = async {
            while self.status(name).await != Some(ConsumerStatus::Active) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, active).await.expect("the consumer becomes active");
    }

    async fn wait_gone(&self, name: &str) {
        let gone = async {
            while self.status(name).await.is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, gone).await.expect("the consumer goes away");
    }

    /// A consumer that no other step uses, so that no window of five seconds is open for it.
    async fn own_consumer(&mut self) -> String {
        self.made += 1;
        let name = format!("own-{}", self.made);
        let register = self.side.client.register_stream_consumer().stream_arn(&self.arn);
        let reply = register.consumer_name(&name).send().await.unwrap();
        self.wait_active(&name).await;
        reply.consumer.unwrap().consumer_arn
    }

    /// Removes a consumer, to keep their number below the quota.
    async fn remove(&self, arn: &str) {
        self.side.client.deregister_stream_consumer().consumer_arn(arn).send().await.unwrap();
    }

    async fn describe(&self, consumer: usize, by_name: bool) -> Answer {
        let name = format!("app-{consumer}");
        let client = &self.side.client;
        let by_names = client.describe_stream_consumer().stream_arn(&self.arn).consumer_name(&name);
        let reply = by_names.send().await;
        let reply = match (by_name, reply) {
            (false, Ok(found)) => {
                let arn = found.consumer_description.unwrap().consumer_arn;
                client.describe_stream_consumer().consumer_arn(arn).send().await
            }
            (_, reply) => reply,
        };
        answer(reply, |reply| {
            let about = reply.consumer_description.unwrap();
            let stream = about.stream_arn == self.arn;
            [
                ("name", about.consumer_name),
                ("status", about.consumer_status.to_string()),
                ("stream", stream.to_string()),
            ]
        })
    }

    async fn list(&self, page: i32) -> Answer {
        let list = || self.side.client.list_stream_consumers().stream_arn(&self.arn).max_results(page);
        let (mut names, mut token) = (Vec::new(), None);
        loop {
            let reply = match list().set_next_token(token).send().await {
                Ok(reply) => reply,
                refused => return answer(refused, |_| []),
            };
            names.extend(reply.consumers().iter().map(|consumer| consumer.consumer_name.clone()));
            token = reply.next_token;
            if token.is_none() {
                break;
            }
        }
        // Those of single steps go away at their own pace.
        names.retain(|name| name.starts_with("app-"));
        names.sort();
        [("names", format!("{names:?}"))].into()
    }

    /// What comes until `count` records have, and where the stream then stands.
    async fn receive(&self, stream: &mut Subscribed, count: usize) -> (Vec<String>, String, i64) {
        let (mut received, mut continuation, mut behind) = (Vec::new(), String::new(), 0);
        while received.len() < count {
            let event = timeout(LIMIT, stream.event()).await.expect("an event").expect("an open stream");
            received.extend(texts(&event));
            continuation = event.continuation_sequence_number;
            behind = event.millis_behind_latest;
        }
        (received, continuation, behind)
    }

    async fn replay(&mut self, start: Start) -> Answer {
        let arn = self.own_consumer().await;
        let number = |place: usize| self.numbers.get(place).cloned();
        let at = StartingPosition::builder().r#type(ShardIteratorType::AtSequenceNumber);
        let (position, first) = match start {
            Start::Oldest => (from_oldest(), 0),
            Start::At(place) => match number(place) {
                Some(number) => (at.sequence_number(number).build().unwrap(), place),
                None => (from_oldest(), 0),
            },
            Start::After(place) => match number(place) {
                Some(number) => (after_number(&number), place + 1),
                None => (from_oldest(), 0),
            },
            Start::Time => {
                let long_ago = aws_sdk_kinesis::primitives::DateTime::from_secs(1_700_000_000);
                let time = StartingPosition::builder().r#type(ShardIteratorType::AtTimestamp);
                (time.timestamp(long_ago).build().unwrap(), 0)
            }
        };
        let subscribed = subscribe(&self.side.client, &arn, &shard_id(0), position).await;
        let mut stream = match subscribed {
            Ok(subscribed) => Subscribed(subscribed),
            refused => return answer(refused, |_| []),
        };
        let wanted = self.texts.len() - first;
        let (received, continuation, behind) = self.receive(&mut stream, wanted).await;
        drop(stream);
        self.remove(&arn).await;
        [
            ("received", format!("{received:?}")),
            ("continuation", (wanted == 0 || !continuation.is_empty()).to_string()),
            ("behind", behind.to_string()),
        ]
        .into()
    }

    async fn follow(&mut self, data: &str) -> Answer {
        let arn = self.own_consumer().await;
        let mut stream = match subscribe(&self.side.client, &arn, &shard_id(0), from_tip()).await {
            Ok(subscribed) => Subscribed(subscribed),
            refused => return answer(refused, |_| []),
        };
        self.put(data).await;
        let (received, ..) = self.receive(&mut stream, 1).await;
        drop(stream);
        self.remove(&arn).await;
        [("received", format!("{received:?}"))].into()
    }

    async fn too_early(&mut self) -> Answer {
        let arn = self.own_consumer().await;
        let shard = shard_id(0);
        let again = || subscribe(&self.side.client, &arn, &shard, from_oldest());
        let first = again().await.unwrap();
        tokio::time::sleep(WITHIN_WINDOW).await;
        let second = answer(again().await, |_| []);
        drop(first);
        self.remove(&arn).await;
        second
    }

    async fn take_over(&mut self, data: &str) -> Answer {
        let arn = self.own_consumer().await;
        let mut first =
            Subscribed(subscribe(&self.side.client, &arn, &shard_id(0), from_oldest()).await.unwrap());
        if self.texts.is_empty() {
            self.put("something").await;
        }
        let (_, continuation, _) = self.receive(&mut first, self.texts.len()).await;
        tokio::time::sleep(BEYOND_WINDOW).await;
        let second = subscribe(&self.side.client, &arn, &shard_id(0), after_number(&continuation)).await;
        let mut second = match second {
            Ok(subscribed) => Subscribed(subscribed),
            refused => return answer(refused, |_| []),
        };
        let ended = timeout(LIMIT, first.error()).await.unwrap_or_else(|_| "it goes on".to_owned());
        self.put(data).await;
        let (received, ..) = self.receive(&mut second, 1).await;
        drop(second);
        self.remove(&arn).await;
        [("first", ended), ("received", format!("{received:?}"))].into()
    }

    async fn bad_start(&mut self, kind: u8) -> Answer {
        let arn = self.own_consumer().await;
        let start = StartingPosition::builder();
        let start = match kind {
            0 => start.r#type("SOMEWHERE".into()),
            1 => start.r#type(ShardIteratorType::AfterSequenceNumber),
            2 => start.r#type(ShardIteratorType::AtTimestamp),
            _ => start.r#type(ShardIteratorType::AtSequenceNumber).sequence_number("no-number"),
        };
        let refused = subscribe(&self.side.client, &arn, &shard_id(0), start.build().unwrap()).await;
        let mut answer = answer(refused, |_| []);
        self.remove(&arn).await;
        // Which of them it was, so that a deviation can name it.
        if let Some(code) = answer.get_mut("error") {
            code.push_str(
                [" for a type", " for no number", " for no time", " for no digits"][usize::from(kind.min(3))],
            );
        }
        answer
    }

    async fn nobody(&self, kind: u8) -> Answer {
        let client = &self.side.client;
        let arn = format!("{}/consumer/nobody:1", self.arn);
        match kind {
            0 => answer(subscribe(client, &arn, &shard_id(0), from_oldest()).await, |_| []),
            1 => answer(client.describe_stream_consumer().consumer_arn(&arn).send().await, |_| []),
            _ => answer(client.deregister_stream_consumer().consumer_arn(&arn).send().await, |_| []),
        }
    }
}
