//! Binary values and times in their JSON form.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::clock::Moment;

/// Binary data, base64 in JSON. `Debug` shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Bytes);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&STANDARD.encode(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(BlobVisitor)
        } else {
            deserializer.deserialize_byte_buf(BlobVisitor)
        }
    }
}

struct BlobVisitor;

// Decodes from the parser's own buffer: no copy of the text is made.
impl Visitor<'_> for BlobVisitor {
    type Value = Blob;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("binary data, in text as base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Blob, E> {
        match STANDARD.decode(text) {
            Ok(data) => Ok(Blob(data.into())),
            Err(_) => Err(E::custom("a blob is not valid base64")),
        }
    }

    fn visit_bytes<E: de::Error>(self, data: &[u8]) -> Result<Blob, E> {
        Ok(Blob(Bytes::copy_from_slice(data)))
    }

    fn visit_byte_buf<E: de::Error>(self, data: Vec<u8>) -> Result<Blob, E> {
        Ok(Blob(data.into()))
    }
}

/// A time: in JSON the seconds since the Unix epoch as a number with up to three decimals, in CBOR the milliseconds
/// with the tag 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timestamp(pub(crate) Moment);

/// CBOR's tag for a time since the epoch.
const EPOCH_TAG: u64 = 1;

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_f64(self.0.millis() as f64 / 1e3)
        } else {
            ciborium::tag::Required::<u64, EPOCH_TAG>(self.0.millis()).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A float cast saturates: times before the epoch become the epoch, those beyond the range its end.
        if deserializer.is_human_readable() {
            let seconds = f64::deserialize(deserializer)?;
            return Ok(Self(Moment::from_millis((seconds * 1e3).round() as u64)));
        }
        let value = match ciborium::Value::deserialize(deserializer)? {
            ciborium::Value::Tag(EPOCH_TAG, value) => *value,
            value => value,
        };
        let millis = match value {
            ciborium::Value::Integer(millis) => i128::from(millis).clamp(0, i128::from(u64::MAX)) as u64,
            ciborium::Value::Float(millis) => millis.round() as u64,
            _ => return Err(de::Error::custom("a time is not a number")),
        };
        Ok(Self(Moment::from_millis(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_keeps_its_milliseconds() {
        let moment = Moment::from_millis(1_767_225_600_123);
        let json = serde_json::to_string(&Timestamp(moment)).unwrap();
        assert_eq!(json, "1767225600.123");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap().0, moment);
    }

    #[test]
    fn a_timestamp_outside_the_range_saturates() {
        assert_eq!(serde_json::from_str::<Timestamp>("-5").unwrap().0, Moment::EPOCH);
        assert_eq!(serde_json::from_str::<Timestamp>("1e300").unwrap().0.millis(), u64::MAX);
    }

    #[test]
    fn cbor_has_tagged_milliseconds_and_plain_bytes() {
        let mut bytes = Vec::new();
        let value = (Timestamp(Moment::from_millis(1_767_225_600_123)), Blob(Bytes::from_static(b"ab")));
        ciborium::into_writer(&value, &mut bytes).unwrap();
        assert_eq!(bytes, b"\x82\xc1\x1b\x00\x00\x01\x9b\x76\xda\xa8\x7b\x42ab");
        let read: (Timestamp, Blob) = ciborium::from_reader(&bytes[..]).unwrap();
        assert_eq!(read, value);
        // Without the tag, as a float, before the epoch.
        for (bytes, millis) in [(&b"\x19\x03\xe8"[..], 1_000), (b"\xc1\xf9\x3c\x00", 1), (b"\xc1\x20", 0)] {
            let Timestamp(moment) = ciborium::from_reader(bytes).unwrap();
            assert_eq!(moment.millis(), millis);
        }
        assert!(ciborium::from_reader::<Timestamp, _>(&b"\x61a"[..]).is_err());
    }

    #[test]
    fn debug_of_a_blob_hides_its_content() {
        assert_eq!(format!("{:?}", Blob(Bytes::from_static(b"secret"))), "Blob(6 bytes)");
    }
}
