//! Registered consumers of enhanced fan-out: RegisterStreamConsumer, Describe, List and Deregister.

use std::collections::BTreeMap;

use super::stream::Stream;
use super::subscription::Slot;
use super::validate::{StreamArn, check_range, required};
use super::{Kinesis, Status};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::limits;
use crate::model::{
    ConsumerInput, ConsumerOutput, DescribeStreamConsumerOutput, ListStreamConsumersInput,
    ListStreamConsumersOutput, RegisterStreamConsumerOutput, Response, Timestamp,
};
use crate::rule::Rule;

/// Consumers of one ListStreamConsumers reply where the request sets no limit.
const DEFAULT_PAGE: usize = 100;

/// A consumer of a stream.
pub(super) struct Consumer {
    pub(super) arn: String,
    created: Moment,
    status: Status,
    /// When the passing status ends.
    due: Option<Moment>,
    /// What is remembered of its subscriptions, by shard.
    pub(super) slots: BTreeMap<usize, Slot>,
}

impl Consumer {
    pub(super) fn is_active(&self) -> bool {
        self.status == Status::Active
    }

    pub(super) fn status_name(&self) -> &'static str {
        self.status.name()
    }

    /// Carries out what was due by `now`; whether the consumer is still there.
    pub(super) fn settle(&mut self, now: Moment) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return true;
        }
        self.due = None;
        let deleted = self.status == Status::Deleting;
        self.status = Status::Active;
        !deleted
    }

    fn output(&self, name: &str, stream: Option<&Stream>) -> ConsumerOutput {
        ConsumerOutput {
            consumer_name: name.to_owned(),
            consumer_arn: self.arn.clone(),
            consumer_status: self.status.name(),
            consumer_creation_timestamp: Timestamp(self.created),
            stream_arn: stream.map(|stream| stream.arn.clone()),
        }
    }
}

/// The name of the consumer in a consumer's ARN, before the time of its creation.
pub(crate) fn name_in(arn: &str) -> Option<&str> {
    arn.rsplit_once("/consumer/")?.1.split_once(':').map(|(name, _)| name)
}

impl Kinesis {
    pub(super) fn register_consumer(
        &mut self,
        now: Moment,
        input: &ConsumerInput,
    ) -> Result<Response, ServiceError> {
        let consumer = self.register(now, input, self.settings.consumer_delay)?;
        Ok(Response::RegisterStreamConsumer(RegisterStreamConsumerOutput { consumer }))
    }

    /// Adds a consumer that becomes active after `delay`.
    pub(super) fn register(
        &mut self,
        now: Moment,
        input: &ConsumerInput,
        delay: std::time::Duration,
    ) -> Result<ConsumerOutput, ServiceError> {
        let name = required(input.consumer_name.as_deref(), "consumerName")?;
        check_consumer_name(name)?;
        let account = self.settings.account.clone();
        let creating = self.consumers_in_creation();
        let too_many = self.enforces(Rule::ConsumersInCreation) && creating >= limits::CONSUMERS_IN_CREATION;
        let quota = self.enforces(Rule::ConsumerQuota).then_some(self.settings.consumer_quota);
        let stream = self.find_mut(&StreamArn(required(input.stream_arn.as_deref(), "streamARN")?))?;
        // A stream serves consumers while its shards change.
        if stream.status != Status::Updating {
            stream.require_active(&account)?;
        }
        if stream.consumers.contains_key(name) {
            return Err(ServiceError::resource_in_use(format!(
                "Consumer {name} under stream {} already exists for account {account}.",
                stream.name
            )));
        }
        if too_many {
            return Err(ServiceError::limit_exceeded(format!(
                "The account {account} has {creating} consumers in CREATING already."
            )));
        }
        if let Some(quota) = quota
            && stream.consumers.len() >= quota
        {
            return Err(ServiceError::limit_exceeded(format!(
                "Stream {} under account {account} has {quota} consumers already.",
                stream.name
            )));
        }
        let mut consumer = Consumer {
            arn: format!("{}/consumer/{name}:{}", stream.arn, now.seconds()),
            created: now,
            status: Status::Creating,
            due: Some(now.plus(delay)),
            slots: BTreeMap::new(),
        };
        let reply = consumer.output(name, None);
        consumer.settle(now);
        stream.consumers.insert(name.to_owned(), consumer);
        Ok(reply)
    }

    fn consumers_in_creation(&self) -> usize {
        let consumers = self.streams.values().flat_map(|stream| stream.consumers.values());
        consumers.filter(|consumer| consumer.status == Status::Creating).count()
    }

    pub(super) fn describe_consumer(&self, input: &ConsumerInput) -> Result<Response, ServiceError> {
        let (stream, name) = self.find_consumer(input)?;
        let stream = self.existing(&stream)?;
        let consumer_description = stream.consumers[&name].output(&name, Some(stream));
        Ok(Response::DescribeStreamConsumer(DescribeStreamConsumerOutput { consumer_description }))
    }

    pub(super) fn list_consumers(
        &self,
        now: Moment,
        input: &ListStreamConsumersInput,
    ) -> Result<Response, ServiceError> {
        let limit = check_range(input.max_results, "maxResults", 1, 10_000)?.unwrap_or(DEFAULT_PAGE);
        let stream = self.find(&StreamArn(required(input.stream_arn.as_deref(), "streamARN")?))?;
        if let Some(Timestamp(created)) = input.stream_creation_timestamp
            && created.millis() != stream.created.millis()
        {
            return Err(self.not_found(&stream.name));
        }
        // The token is the time of the page before and the name that it ended with.
        let after = match input.next_token.as_deref() {
            None => None,
            Some(token) => {
                let invalid = || ServiceError::invalid_argument("Invalid NextToken.");
                let (issued, name) = token.split_once('/').ok_or_else(invalid)?;
                let issued = Moment::from_millis(issued.parse().map_err(|_| invalid())?);
                if self.enforces(Rule::NextTokenLife) && now.since(issued) > limits::NEXT_TOKEN_LIFE {
                    return Err(ServiceError::expired_next_token("The NextToken has expired."));
                }
                Some(name)
            }
        };
        let mut wanted =
            stream.consumers.iter().filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
        let page: Vec<_> = wanted.by_ref().take(limit).collect();
        let more = wanted.next().is_some();
        let last = page.last().map(|(name, _)| format!("{}/{name}", now.millis()));
        Ok(Response::ListStreamConsumers(ListStreamConsumersOutput {
            consumers: page.into_iter().map(|(name, consumer)| consumer.output(name, None)).collect(),
            next_token: last.filter(|_| more),
        }))
    }

    pub(super) fn deregister_consumer(
        &mut self,
        now: Moment,
        input: &ConsumerInput,
    ) -> Result<Response, ServiceError> {
        let (stream_name, name) = self.find_consumer(input)?;
        let due = now.plus(self.settings.delete_delay);
        let missing = self.not_found(&stream_name);
        let stream = self.streams.get_mut(&stream_name).ok_or(missing)?;
        let consumer = stream.consumers.get_mut(&name).expect("it was just found");
        if !consumer.is_active() {
            return Err(ServiceError::resource_in_use(format!(
                "Consumer {name} is not ACTIVE, instead in state {}",
                consumer.status.name()
            )));
        }
        consumer.status = Status::Deleting;
        consumer.due = Some(due);
        let lost: Vec<_> = consumer.slots.values().filter_map(|slot| slot.current).collect();
        for id in lost {
            self.end_subscription(
                id,
                ServiceError::resource_not_found(format!("Consumer {name} not found.")),
            );
        }
        self.settle(now);
        Ok(Response::Empty)
    }

    /// The stream's and the consumer's name.
    pub(super) fn find_consumer(&self, input: &ConsumerInput) -> Result<(String, String), ServiceError> {
        if let Some(arn) = input.consumer_arn.as_deref() {
            let by_name = input.stream_arn.is_some() || input.consumer_name.is_some();
            let name = name_in(arn).filter(|_| arn.starts_with("arn:")).ok_or_else(|| {
                ServiceError::invalid_argument(format!("{arn} is not the ARN of a consumer."))
            })?;
            let missing = || ServiceError::resource_not_found(format!("Consumer {arn} not found."));
            let stream = self.find(&StreamArn(stream_arn_in(arn))).map_err(|_| missing())?;
            let found = stream.consumers.get(name).filter(|consumer| consumer.arn == arn);
            found.ok_or_else(missing)?;
            let agrees = input.stream_arn.as_ref().is_none_or(|given| *given == stream.arn)
                && input.consumer_name.as_deref().is_none_or(|given| given == name);
            if by_name && !agrees {
                return Err(ServiceError::invalid_argument(
                    "StreamARN, ConsumerName and ConsumerARN do not name the same consumer.",
                ));
            }
            return Ok((stream.name.clone(), name.to_owned()));
        }
        let (Some(arn), Some(name)) = (input.stream_arn.as_deref(), input.consumer_name.as_deref()) else {
            return Err(ServiceError::invalid_argument(
                "Either ConsumerARN, or StreamARN and ConsumerName must be provided.",
            ));
        };
        check_consumer_name(name)?;
        let stream = self.find(&StreamArn(arn))?;
        if !stream.consumers.contains_key(name) {
            return Err(ServiceError::resource_not_found(format!(
                "Consumer {name} under stream {} not found for account {}.",
                stream.name, self.settings.account
            )));
        }
        Ok((stream.name.clone(), name.to_owned()))
    }
}

/// The ARN of the stream in a consumer's ARN; the text itself if it holds none.
pub(super) fn stream_arn_in(arn: &str) -> &str {
    arn.split_once("/consumer/").map_or(arn, |(stream, _)| stream)
}

/// Fails for a name that no consumer can have.
fn check_consumer_name(name: &str) -> Result<(), ServiceError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if plain && (1..=128).contains(&name.len()) {
        return Ok(());
    }
    Err(ServiceError::constraint(
        &format!("'{name}'"),
        "consumerName",
        "satisfy regular expression pattern: [a-zA-Z0-9_.-]+",
    ))
}
