//! Checks that several operations share, and how a request finds its stream.

use super::stream::Stream;
use super::{Kinesis, Status};
use crate::error::ServiceError;
use crate::model::{
    DescribeStreamInput, EncryptionInput, GetShardIteratorInput, ListShardsInput, MaxRecordSizeInput,
    MergeShardsInput, PutRecordInput, PutRecordsInput, RetentionInput, SplitShardInput, StreamInput,
    TagsInput, UpdateShardCountInput,
};

/// The stream that a request names: by name, by ARN, or by both if they agree.
#[derive(Clone, Copy)]
pub(crate) struct Address<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) arn: Option<&'a str>,
}

/// A request that names a stream.
pub(crate) trait Addressed {
    fn address(&self) -> Address<'_>;
}

macro_rules! addressed {
    ($($input:ty),* $(,)?) => {
        $(impl Addressed for $input {
            fn address(&self) -> Address<'_> {
                Address { name: self.stream_name.as_deref(), arn: self.stream_arn.as_deref() }
            }
        })*
    };
}

addressed!(
    DescribeStreamInput,
    EncryptionInput,
    GetShardIteratorInput,
    ListShardsInput,
    MergeShardsInput,
    PutRecordInput,
    PutRecordsInput,
    RetentionInput,
    SplitShardInput,
    StreamInput,
    UpdateShardCountInput,
);

impl Addressed for TagsInput {
    fn address(&self) -> Address<'_> {
        self.stream.address()
    }
}

impl Addressed for MaxRecordSizeInput {
    fn address(&self) -> Address<'_> {
        Address { name: None, arn: self.stream_arn.as_deref() }
    }
}

/// A stream that is named by its ARN alone.
pub(crate) struct StreamArn<'a>(pub(crate) &'a str);

impl Addressed for StreamArn<'_> {
    fn address(&self) -> Address<'_> {
        Address { name: None, arn: Some(self.0) }
    }
}

impl<'a> Address<'a> {
    /// The stream's name, taken from the ARN if need be. Says nothing of whether it exists.
    pub(crate) fn stream_name(self) -> Option<&'a str> {
        let named = self.arn.and_then(|arn| arn.rsplit_once(":stream/"));
        // A consumer's ARN goes on after the stream's name.
        let named = named.map(|(_, name)| name.split_once('/').map_or(name, |(name, _)| name));
        self.name.or(named)
    }
}

impl Kinesis {
    /// The name of the stream that `address` means.
    ///
    /// An ARN of another account or region names no stream of this service.
    fn resolve(&self, address: Address<'_>) -> Result<String, ServiceError> {
        let Some(arn) = address.arn else {
            let name = address.name.ok_or_else(|| {
                ServiceError::invalid_argument("Either StreamName or StreamARN must be provided.")
            })?;
            check_stream_name(name)?;
            return Ok(name.to_owned());
        };
        let Some((_, name)) = arn.rsplit_once(":stream/").filter(|_| arn.starts_with("arn:")) else {
            return Err(ServiceError::invalid_argument(format!("{arn} is not the ARN of a stream.")));
        };
        check_stream_name(name)?;
        if address.name.is_some_and(|given| given != name) {
            return Err(ServiceError::invalid_argument(
                "StreamName and StreamARN do not name the same stream.",
            ));
        }
        if arn == self.arn(name) { Ok(name.to_owned()) } else { Err(self.not_found(name)) }
    }

    pub(crate) fn arn(&self, name: &str) -> String {
        format!("arn:aws:kinesis:{}:{}:stream/{name}", self.settings.region, self.settings.account)
    }

    /// The stream of a request, whatever its status.
    pub(super) fn find(&self, input: &impl Addressed) -> Result<&Stream, ServiceError> {
        let name = self.resolve(input.address())?;
        self.streams.get(&name).ok_or_else(|| self.not_found(&name))
    }

    /// The stream of a request, to be changed.
    pub(super) fn find_mut(&mut self, input: &impl Addressed) -> Result<&mut Stream, ServiceError> {
        let name = self.resolve(input.address())?;
        let missing = self.not_found(&name);
        self.streams.get_mut(&name).ok_or(missing)
    }

    /// The stream of a read or a write: it must have shards already. Streams being deleted still serve.
    pub(super) fn find_serving(&mut self, input: &impl Addressed) -> Result<&mut Stream, ServiceError> {
        let name = self.resolve(input.address())?;
        let missing = self.not_found(&name);
        self.streams.get_mut(&name).filter(|stream| stream.status != Status::Creating).ok_or(missing)
    }

    pub(super) fn shard_not_found(&self, shard: &str, stream: &str) -> ServiceError {
        ServiceError::resource_not_found(format!(
            "Shard {shard} in stream {stream} under account {} does not exist",
            self.settings.account
        ))
    }
}

/// Fails for a name that no stream can have.
pub(super) fn check_stream_name(name: &str) -> Result<(), ServiceError> {
    if name.is_empty() {
        return Err(ServiceError::constraint("''", "streamName", "have length greater than or equal to 1"));
    }
    if name.len() > 128 {
        return Err(ServiceError::constraint(
            &format!("'{name}'"),
            "streamName",
            "have length less than or equal to 128",
        ));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
        return Err(ServiceError::constraint(
            &format!("'{name}'"),
            "streamName",
            "satisfy regular expression pattern: [a-zA-Z0-9_.-]+",
        ));
    }
    Ok(())
}

/// A number that must lie in a range, if it is given at all.
pub(super) fn check_range(
    value: Option<i64>,
    member: &str,
    lowest: i64,
    highest: i64,
) -> Result<Option<usize>, ServiceError> {
    let Some(number) = value else { return Ok(None) };
    if number < lowest {
        let constraint = format!("have value greater than or equal to {lowest}");
        return Err(ServiceError::constraint(&format!("'{number}'"), member, &constraint));
    }
    if number > highest {
        let constraint = format!("have value less than or equal to {highest}");
        return Err(ServiceError::constraint(&format!("'{number}'"), member, &constraint));
    }
    Ok(usize::try_from(number).ok())
}

/// A text that must be given.
pub(super) fn required<'a>(value: Option<&'a str>, member: &str) -> Result<&'a str, ServiceError> {
    value.ok_or_else(|| ServiceError::missing(member))
}

/// A shard id that must be given and look like one.
pub(super) fn required_shard_id<'a>(value: Option<&'a str>, member: &str) -> Result<&'a str, ServiceError> {
    let id = required(value, member)?;
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if id.is_empty() || id.len() > 128 || !plain {
        return Err(ServiceError::constraint(
            &format!("'{id}'"),
            member,
            "satisfy regular expression pattern: [a-zA-Z0-9_.-]+",
        ));
    }
    Ok(id)
}
