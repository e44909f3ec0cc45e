//! Capacity mode, record distribution and account limits.

use super::reshard::Reshard;
use super::stream::{Change, Mode, Status};
use super::validate::{StreamArn, required};
use super::{Kinesis, Stream};
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::model::{DescribeLimitsOutput, DistributionInput, Response, StreamModeDetails, StreamModeInput};

/// On-demand streams of an account, which the test kit reports but does not enforce.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_DescribeLimits.html>
const ON_DEMAND_STREAMS: usize = 50;

/// How records find their shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Distribution {
    /// By the partition key or the explicit hash key.
    #[default]
    UserPartitionKey,
    /// The service spreads them evenly and ignores the keys.
    Auto,
}

impl Distribution {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::UserPartitionKey => "USER_PARTITION_KEY",
            Self::Auto => "AUTO",
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, ServiceError> {
        match text {
            "USER_PARTITION_KEY" => Ok(Self::UserPartitionKey),
            "AUTO" => Ok(Self::Auto),
            other => Err(ServiceError::constraint(
                &format!("'{other}'"),
                "recordDistributionStrategy",
                "satisfy enum value set: [AUTO, USER_PARTITION_KEY]",
            )),
        }
    }

    /// Only on-demand streams may be `AUTO`.
    pub(super) fn check(self, mode: Mode) -> Result<Self, ServiceError> {
        if self == Self::Auto && mode != Mode::OnDemand {
            return Err(ServiceError::invalid_argument(
                "RecordDistributionStrategy AUTO is only for streams in ON_DEMAND mode.",
            ));
        }
        Ok(self)
    }
}

/// The mode in a request; provisioned if it names none.
pub(super) fn parse_mode(details: Option<&StreamModeDetails>) -> Result<Mode, ServiceError> {
    match details.and_then(|details| details.stream_mode.as_deref()) {
        None | Some("PROVISIONED") => Ok(Mode::Provisioned),
        Some("ON_DEMAND") => Ok(Mode::OnDemand),
        Some(other) => Err(ServiceError::constraint(
            &format!("'{other}'"),
            "streamModeDetails.streamMode",
            "satisfy enum value set: [PROVISIONED, ON_DEMAND]",
        )),
    }
}

impl Stream {
    /// As it is reported: only of on-demand streams.
    pub(super) fn distribution_name(&self) -> Option<&'static str> {
        (self.mode == Mode::OnDemand).then(|| self.distribution.name())
    }

    /// Splits a shard of an on-demand stream that had to refuse a write, when `due`, unless something changes already.
    pub(super) fn split_on_demand(&mut self, shard: usize, due: Moment) {
        let idle = self.status == Status::Active && self.pending.is_none();
        let range = self.shards[shard].range;
        if self.mode == Mode::OnDemand && idle && range.end - range.start > 2 {
            let at = range.start + (range.end - range.start) / 2 + 1;
            self.pending = Some((due, Change::Reshard(Reshard::Split { shard, at })));
        }
    }

    /// The shard of the next record that has no say in it.
    pub(super) fn next_in_turn(&mut self) -> usize {
        let turn = self.turn % self.open.len().max(1);
        self.turn = self.turn.wrapping_add(1);
        *self.open.values().nth(turn).expect("the open shards cover every hash key")
    }
}

impl Kinesis {
    pub(super) fn update_stream_mode(
        &mut self,
        now: Moment,
        input: &StreamModeInput,
    ) -> Result<Response, ServiceError> {
        let details = input.stream_mode_details.as_ref();
        let mode = parse_mode(Some(details.ok_or_else(|| ServiceError::missing("streamModeDetails"))?))?;
        let account = self.settings.account.clone();
        let due = now.plus(self.settings.reshard_delay);
        let stream = self.find_mut(&StreamArn(required(input.stream_arn.as_deref(), "streamARN")?))?;
        stream.require_active(&account)?;
        stream.mode = mode;
        if mode == Mode::Provisioned {
            stream.distribution = Distribution::UserPartitionKey;
        }
        stream.status = Status::Updating;
        stream.pending = Some((due, Change::Activate));
        self.settle(now);
        Ok(Response::Empty)
    }

    pub(super) fn update_distribution(
        &mut self,
        input: &DistributionInput,
    ) -> Result<Response, ServiceError> {
        let wanted = Distribution::parse(required(
            input.record_distribution_strategy.as_deref(),
            "recordDistributionStrategy",
        )?)?;
        let account = self.settings.account.clone();
        let stream = self.find_mut(&StreamArn(required(input.stream_arn.as_deref(), "streamARN")?))?;
        stream.require_active(&account)?;
        stream.distribution = wanted.check(stream.mode)?;
        Ok(Response::Empty)
    }

    pub(super) fn describe_limits(&self) -> Response {
        let on_demand = self.streams.values().filter(|stream| stream.mode == Mode::OnDemand);
        Response::DescribeLimits(DescribeLimitsOutput {
            shard_limit: self.settings.shard_quota,
            open_shard_count: self.open_shards(),
            on_demand_stream_count: on_demand.count(),
            on_demand_stream_count_limit: ON_DEMAND_STREAMS,
        })
    }
}
