//! Names of things: opaque, cheap to clone, compared as text.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use bytestring::ByteString;

/// A name that the service or this library would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind}: {problem}")]
pub struct InvalidId {
    kind: &'static str,
    problem: &'static str,
}

impl InvalidId {
    /// What kind of name was refused, for example `"shard id"`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, max $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(ByteString);

        impl $name {
            /// The longest accepted name, in bytes.
            pub const MAX_LEN: usize = $max;

            #[doc = concat!("Makes a ", $kind, " from text, without a copy when given a `String`.")]
            ///
            /// # Errors
            /// [`InvalidId`] when the text is blank, longer than [`Self::MAX_LEN`] bytes, or has control characters.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                let problem = if text.trim().is_empty() {
                    "must not be blank"
                } else if text.len() > Self::MAX_LEN {
                    concat!("must not be longer than ", $max, " bytes")
                } else if text.chars().any(char::is_control) {
                    "must not contain control characters"
                } else {
                    return Ok(Self(ByteString::from(text)));
                };
                Err(InvalidId { kind: $kind, problem })
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidId;

            fn try_from(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id! {
    /// The id of a shard, for example `shardId-000000000003`.
    ShardId, "shard id", max 128
}

text_id! {
    /// The name of one worker (one process, or one consumer in it). Two live workers must not share a name. As long as
    /// those of the KCL may be, whose rows name them.
    WorkerId, "worker id", max 2048
}

text_id! {
    /// The name of a consuming application: all its workers share one set of leases.
    ApplicationName, "application name", max 255
}

/// The partition key of a record.
///
/// Short keys are kept in place and long ones shared, without a copy of the SDK's `String`: either way cheap to clone.
/// Keys are data of the user, so `Debug` shows only the length.
#[derive(Clone)]
pub struct PartitionKey(Key);

/// A text of up to [`SHORT`] bytes is always `Short`, so equal keys have the same form. As large as its larger half.
#[derive(Clone)]
enum Key {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(ByteString),
}

const SHORT: usize = 23;

impl PartitionKey {
    /// The longest key that the service takes, in Unicode characters
    /// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecordsRequestEntry.html>).
    pub const MAX_CHARS: usize = 256;

    /// Takes any text; a writer checks it with [`is_valid`](Self::is_valid).
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::short(&text).unwrap_or_else(|| Self(Key::Long(ByteString::from(text))))
    }

    fn short(text: &str) -> Option<Self> {
        let mut bytes = [0; SHORT];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self(Key::Short { len: text.len() as u8, bytes }))
    }

    /// Whether the service would accept this key in a write: 1 to 256 characters.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let len = self.byte_len();
        len > 0 && (len <= Self::MAX_CHARS || self.as_str().chars().count() <= Self::MAX_CHARS)
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Key::Short { len, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("it was made from text")
            }
            Key::Long(text) => text,
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.as_bytes().len()
    }

    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Key::Short { len, bytes } => &bytes[..usize::from(*len)],
            Key::Long(text) => text.as_bytes(),
        }
    }
}

impl Default for PartitionKey {
    fn default() -> Self {
        Self(Key::Short { len: 0, bytes: [0; SHORT] })
    }
}

impl PartialEq for PartitionKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for PartitionKey {}

impl PartialOrd for PartitionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PartitionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for PartitionKey {
    /// As `str` does, so that maps can be asked with text.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionKey({} bytes)", self.byte_len())
    }
}

impl From<String> for PartitionKey {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for PartitionKey {
    fn from(text: &str) -> Self {
        Self::short(text).unwrap_or_else(|| Self::new(text.to_owned()))
    }
}

impl FromStr for PartitionKey {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::from(text))
    }
}

impl AsRef<str> for PartitionKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for PartitionKey {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// A stream, by name or by ARN. With an ARN every call to the service carries it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamRef {
    text: ByteString,
    /// Where the name starts in `text`: 0 for a bare name.
    name_at: usize,
}

impl StreamRef {
    /// The longest stream name, in characters
    /// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_CreateStream.html>).
    pub const MAX_NAME_LEN: usize = 128;

    /// Makes a reference from a stream name (`orders`) or ARN (`arn:aws:kinesis:eu-west-1:123456789012:stream/orders`).
    ///
    /// # Errors
    /// [`InvalidId`] when the name has other characters than `a-z A-Z 0-9 _ . -`, is blank or too long, or when
    /// the ARN is not that of a stream.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        let refuse = |problem| Err(InvalidId { kind: "stream", problem });
        let name_at = if text.starts_with("arn:") {
            let mut parts = text.splitn(6, ':');
            let service = parts.nth(2).unwrap_or_default();
            match parts.nth(2) {
                Some(resource) if service == "kinesis" && resource.starts_with("stream/") => {
                    text.len() - resource.len() + "stream/".len()
                }
                _ => return refuse("the ARN is not that of a Kinesis stream"),
            }
        } else {
            0
        };
        let name = &text[name_at..];
        if name.trim().is_empty() {
            return refuse("the name must not be blank");
        }
        if name.len() > Self::MAX_NAME_LEN {
            return refuse("the name must not be longer than 128 characters");
        }
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')) {
            return refuse("the name may only have letters, digits, '_', '.' and '-'");
        }
        Ok(Self { text: ByteString::from(text), name_at })
    }

    /// The stream's bare name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text[self.name_at..]
    }

    /// The ARN, where the reference was made from one.
    #[must_use]
    pub fn arn(&self) -> Option<&str> {
        (self.name_at > 0).then_some(&*self.text)
    }

    /// The text that the reference was made from: name or ARN.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for StreamRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

impl FromStr for StreamRef {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl TryFrom<&str> for StreamRef {
    type Error = InvalidId;

    fn try_from(text: &str) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl TryFrom<String> for StreamRef {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

/// One shard of one stream. Cheap to clone: records share it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardRef(Arc<(StreamRef, ShardId)>);

impl ShardRef {
    /// Names `shard` of `stream`.
    #[must_use]
    pub fn new(stream: StreamRef, shard: ShardId) -> Self {
        Self(Arc::new((stream, shard)))
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &StreamRef {
        &self.0.0
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &ShardId {
        &self.0.1
    }
}

impl fmt::Display for ShardRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream().name(), self.shard())
    }
}

impl fmt::Debug for ShardRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_and_overlong_names_are_refused_with_their_kind() {
        for text in ["", "  ", "a\nb"] {
            let error = ShardId::new(text).unwrap_err();
            assert_eq!(error.kind(), "shard id");
        }
        assert_eq!(WorkerId::new("w".repeat(2_048)).unwrap().as_str().len(), 2_048);
        assert!(WorkerId::new("w".repeat(2_049)).is_err());
        assert_eq!(ShardId::new("shardId-000000000000").unwrap().as_str(), "shardId-000000000000");
    }

    #[test]
    fn a_stream_is_named_by_name_or_arn() {
        let by_name = StreamRef::new("orders").unwrap();
        assert_eq!((by_name.name(), by_name.arn()), ("orders", None));
        let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";
        let by_arn = StreamRef::new(arn).unwrap();
        assert_eq!((by_arn.name(), by_arn.arn()), ("orders", Some(arn)));
        for bad in ["", " ", "a b", "arn:aws:sqs:eu-west-1:1:queue", "arn:aws:kinesis:x:1:stream/", "a/b"] {
            assert!(StreamRef::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    /// F-42: partition keys are data of the user and do not show in debug output.
    #[test]
    fn debug_of_a_partition_key_hides_the_key() {
        let key = PartitionKey::new("secret-customer");
        assert_eq!(format!("{key:?}"), "PartitionKey(15 bytes)");
        assert_eq!(key.to_string(), "secret-customer");
    }

    /// Short and long keys compare and hash as their text, and a key is no larger than a shared text.
    #[test]
    fn partition_keys_are_equal_as_text() {
        let texts = ["", "a", "ab", "b", &"k".repeat(22), &"k".repeat(23), &"k".repeat(24), &"ü".repeat(12)];
        for one in texts {
            for other in texts {
                let (a, b) = (PartitionKey::new(one), PartitionKey::from(other.to_owned()));
                assert_eq!(a.cmp(&b), one.cmp(other));
                assert_eq!(a == b, one == other);
            }
            let set = std::collections::HashSet::from([PartitionKey::from(one)]);
            assert!(set.contains(one) && !set.contains("other"));
            assert_eq!(PartitionKey::new(one).as_str(), one);
        }
        assert_eq!(PartitionKey::default(), PartitionKey::new(""));
        assert_eq!(size_of::<PartitionKey>(), size_of::<ByteString>());
    }

    #[test]
    fn a_partition_key_knows_its_bytes() {
        for (text, bytes) in [("", 0), ("ä", 2), (&"k".repeat(23), 23), (&"ä".repeat(100), 200)] {
            assert_eq!(PartitionKey::from(text).byte_len(), bytes);
        }
    }

    #[test]
    fn a_partition_key_is_valid_by_characters_not_bytes() {
        assert!(PartitionKey::new("ü".repeat(256)).is_valid());
        assert!(!PartitionKey::new("ü".repeat(257)).is_valid());
        assert!(!PartitionKey::new("").is_valid());
    }
}
