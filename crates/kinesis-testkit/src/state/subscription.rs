//! SubscribeToShard: which subscriptions live, and what each of them sends next.
//!
//! A subscription is asked for its next [`Step`] by whoever carries it. It keeps no time of its own: a step that has
//! to wait names the moment, and the numbers of subscriptions with news are collected in `Kinesis::take_woken`.

use super::Kinesis;
use super::bucket::TokenBucket;
use super::consumer::stream_arn_in;
use super::position::Start;
use super::read::{Page, children};
use super::validate::{StreamArn, required, required_shard_id};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{ConsumerInput, Response, SubscribeToShardEvent, SubscribeToShardInput};
use crate::rule::Rule;
use crate::view::SubscriptionView;

/// What is remembered of a consumer's subscriptions to one shard, whether one lives or not.
pub(super) struct Slot {
    calls: TokenBucket,
    bytes: TokenBucket,
    last_success: Option<Moment>,
    pub(super) current: Option<u64>,
}

impl Slot {
    fn new(now: Moment) -> Self {
        Self {
            calls: TokenBucket::new(limits::SUBSCRIBE_CALLS_PER_SECOND, now),
            bytes: TokenBucket::new(limits::PUSH_BYTES_PER_SECOND, now),
            last_success: None,
            current: None,
        }
    }
}

/// A subscription that lives.
pub(super) struct Subscription {
    stream: String,
    incarnation: u32,
    consumer: String,
    shard: usize,
    /// The lowest ordinal that was not sent.
    position: u64,
    started: Moment,
    last_event: Moment,
    /// The shard's end was told.
    finished: bool,
    /// The error that ends it.
    failure: Option<ServiceError>,
    events: u64,
    records: u64,
}

/// What a subscription does next.
#[derive(Debug)]
pub(crate) enum Step {
    Event(SubscribeToShardEvent),
    /// Ends with an error in the stream.
    Fail(ServiceError),
    /// Ends in order.
    End,
    /// Nothing before this moment, unless it is woken; none means that only news can wake it.
    Wait(Option<Moment>),
}

impl Kinesis {
    pub(super) fn subscribe(
        &mut self,
        now: Moment,
        input: &SubscribeToShardInput,
    ) -> Result<Response, ServiceError> {
        let arn = required(input.consumer_arn.as_deref(), "consumerARN")?;
        let id = required_shard_id(input.shard_id.as_deref(), "shardId")?;
        let start = input.starting_position.as_ref();
        let start = start.ok_or_else(|| ServiceError::missing("startingPosition"))?;
        let start = Start {
            operation: "SubscribeToShard",
            member: "startingPosition.type",
            kind: required(start.kind.as_deref(), "startingPosition.type")?,
            sequence_number: start.sequence_number.as_deref(),
            timestamp: start.timestamp,
        };
        let consumer_input = ConsumerInput { consumer_arn: Some(arn.to_owned()), ..ConsumerInput::default() };
        let (stream_name, consumer) = self.find_consumer(&consumer_input)?;
        let account = self.settings.account.clone();
        let (limited, exclusive) =
            (self.enforces(Rule::SubscribeCallRate), self.enforces(Rule::SubscribeInUse));
        let (refuse_future, retention) =
            (self.enforces(Rule::FutureTimestamp), self.enforces(Rule::Retention));
        let takes_over = self.enforces(Rule::TakeOver);
        self.check_key(&stream_name)?;
        let number = self.subscriptions_made + 1;

        let missing = self.shard_not_found(id, &stream_name);
        let stream = self.find_serving(&StreamArn(stream_arn_in(arn)))?;
        let horizon = stream.horizon(now).filter(|_| retention);
        let shard = stream.shard(id, horizon).ok_or(missing)?.number;
        let registered = &stream.consumers[&consumer];
        if !registered.is_active() {
            return Err(ServiceError::resource_in_use(format!(
                "Consumer {arn} is not ACTIVE, instead in state {}",
                registered.status_name()
            )));
        }
        let position = start.resolve(now, stream, shard, &account, refuse_future)?;
        input.dry_run.check()?;
        let incarnation = stream.incarnation;
        let registered = stream.consumers.get_mut(&consumer).expect("it was just looked at");
        let slot = registered.slots.entry(shard).or_insert_with(|| Slot::new(now));
        if limited {
            if !slot.calls.holds(now, 1) {
                return Err(ServiceError::limit_exceeded(format!(
                    "Rate exceeded for SubscribeToShard: consumer {arn} called it for shard {id} within the last second."
                )));
            }
            slot.calls.take(now, 1);
        }
        let recent = slot.last_success.is_some_and(|last| now.since(last) < limits::SUBSCRIBE_IN_USE);
        if exclusive && recent {
            return Err(ServiceError::resource_in_use(format!(
                "Another active subscription exists for this consumer: {arn}:{id}"
            )));
        }
        slot.last_success = Some(now);
        let before = slot.current.replace(number);
        stream.shards[shard].subscribers.push(number);
        self.subscriptions_made = number;
        self.subscriptions.insert(
            number,
            Subscription {
                stream: stream_name,
                incarnation,
                consumer,
                shard,
                position,
                started: now,
                last_event: now,
                finished: false,
                failure: None,
                events: 0,
                records: 0,
            },
        );
        if let Some(before) = before.filter(|_| takes_over) {
            let error = ServiceError::resource_in_use(format!(
                "Consumer {arn} was subscribed to shard {id} anew: this subscription ends."
            ));
            self.end_subscription(before, error);
        }
        Ok(Response::Subscribed(number))
    }

    /// What the subscription does next. After an end it is gone.
    pub(crate) fn step(&mut self, now: Moment, number: u64) -> Step {
        self.settle(now);
        let step = self.next_step(now, number);
        if matches!(step, Step::Fail(_) | Step::End) {
            self.unsubscribe(number);
        }
        step
    }

    fn next_step(&mut self, now: Moment, number: u64) -> Step {
        let paced = self.enforces(Rule::SubscriptionByteRate);
        let lives_on = !self.enforces(Rule::SubscriptionLife);
        let heartbeats = self.enforces(Rule::Heartbeats).then_some(self.settings.heartbeat);
        let retention = self.enforces(Rule::Retention);
        let most_records = self.settings.event_records;
        let life = self.settings.subscription_life;
        let (tells_lag, tells_children) =
            (self.enforces(Rule::MillisBehindLatest), self.enforces(Rule::ChildShards));
        let Some(sub) = self.subscriptions.get(&number) else { return Step::End };
        if let Some(error) = &sub.failure {
            return Step::Fail(error.clone());
        }
        let ends = sub.started.plus(life);
        if sub.finished || (!lives_on && now >= ends) {
            return Step::End;
        }
        if let Err(error) = self.check_key(&sub.stream.clone()) {
            return Step::Fail(error);
        }
        let Some(sub) = self.subscriptions.get_mut(&number) else { return Step::End };
        let stream = self.streams.get_mut(&sub.stream);
        let Some(stream) = stream.filter(|stream| stream.incarnation == sub.incarnation) else {
            return Step::Fail(ServiceError::resource_not_found(format!("Stream {} not found.", sub.stream)));
        };
        let horizon = stream.horizon(now).filter(|_| retention);
        let Some(shard) = stream.shards.get_mut(sub.shard) else {
            return Step::Fail(ServiceError::resource_not_found("The shard has expired."));
        };
        if let Some(horizon) = horizon {
            shard.trim(horizon);
        }
        let shard = &stream.shards[sub.shard];
        let page = Page::of(shard, sub.position, most_records, limits::EVENT_BYTES);
        let reshard = stream.pending.as_ref().map(|(due, _)| *due);
        let wait = |until: Option<Moment>| {
            let end = (!lives_on).then_some(ends);
            Step::Wait(until.into_iter().chain(end).chain(reshard).min())
        };
        let mut continuation = None;
        if page.count > 0 {
            if paced {
                let consumer = stream.consumers.get_mut(&sub.consumer);
                let slot = consumer.and_then(|consumer| consumer.slots.get_mut(&sub.shard));
                if let Some(slot) = slot {
                    let available = slot.bytes.available_at(now, page.bytes);
                    if available > now {
                        return wait(Some(available));
                    }
                    slot.bytes.take(now, page.bytes);
                }
            }
            continuation = page.last(shard).map(|last| last.ordinal);
        } else if shard.is_open() {
            let due = heartbeats.map(|every| sub.last_event.plus(every));
            if due.is_none_or(|due| due > now) {
                return wait(due);
            }
            // A number that no record has or will have: nothing can lie between it and the last record.
            continuation = Some(stream.sequences.allocate());
        }
        let shard = &stream.shards[sub.shard];
        sub.finished = !shard.is_open() && !page.leaves_unread(shard);
        sub.position = continuation.map_or(sub.position, |last| last + 1);
        sub.last_event = now;
        sub.events += 1;
        sub.records += page.count as u64;
        Step::Event(SubscribeToShardEvent {
            records: page.records(stream, shard),
            continuation_sequence_number: continuation
                .filter(|_| !sub.finished)
                .map(|ordinal| stream.sequences.render(ordinal, shard.number)),
            millis_behind_latest: if tells_lag { page.millis_behind(shard, now) } else { 0 },
            child_shards: (sub.finished && tells_children).then(|| children(stream, shard)),
        })
    }

    /// Ends a subscription with an error that its carrier has still to send.
    pub(super) fn end_subscription(&mut self, number: u64, error: ServiceError) {
        if let Some(sub) = self.subscriptions.get_mut(&number) {
            sub.failure = Some(error);
            self.woken.push(number);
        }
    }

    /// Wakes every subscription of a stream.
    pub(super) fn wake_stream(&mut self, name: &str) {
        let of_stream = self.subscriptions.iter().filter(|(_, sub)| sub.stream == name);
        self.woken.extend(of_stream.map(|(number, _)| *number));
    }

    /// Forgets a subscription, whose carrier is gone.
    pub(crate) fn unsubscribe(&mut self, number: u64) {
        let Some(sub) = self.subscriptions.remove(&number) else { return };
        let stream = self.streams.get_mut(&sub.stream);
        let Some(stream) = stream.filter(|stream| stream.incarnation == sub.incarnation) else { return };
        if let Some(shard) = stream.shards.get_mut(sub.shard) {
            shard.subscribers.retain(|other| *other != number);
        }
        let consumer = stream.consumers.get_mut(&sub.consumer);
        if let Some(slot) = consumer.and_then(|consumer| consumer.slots.get_mut(&sub.shard))
            && slot.current == Some(number)
        {
            slot.current = None;
        }
    }

    /// The subscriptions that have news since the last time this was asked.
    pub(crate) fn take_woken(&mut self) -> Vec<u64> {
        let mut woken = std::mem::take(&mut self.woken);
        for stream in self.streams.values_mut() {
            woken.append(&mut stream.woken);
        }
        woken
    }

    /// The subscriptions to a stream that live, in the order in which they were made.
    pub(crate) fn subscription_views(
        &mut self,
        now: Moment,
        name: &str,
    ) -> Result<Vec<SubscriptionView>, ServiceError> {
        self.settle(now);
        let stream = self.existing(name)?;
        let living = self.subscriptions.values();
        let living = living.filter(|sub| sub.stream == name && sub.incarnation == stream.incarnation);
        Ok(living
            .filter(|sub| sub.failure.is_none())
            .map(|sub| SubscriptionView {
                consumer_name: sub.consumer.clone(),
                shard_id: super::shard::shard_id(sub.shard),
                since: sub.started.into(),
                events: sub.events,
                records: sub.records,
            })
            .collect())
    }
}
