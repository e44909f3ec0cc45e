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
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        // Decodes from the parser's own buffer: no copy of the text is made.
        impl Visitor<'_> for Text {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a base64 string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Blob, E> {
                match STANDARD.decode(text) {
                    Ok(data) => Ok(Blob(data.into())),
                    Err(_) => Err(E::custom("a blob is not valid base64")),
                }
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// A time, in JSON the seconds since the Unix epoch as a number with up to three decimals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timestamp(pub(crate) Moment);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.millis() as f64 / 1e3)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        // A float cast saturates: times before the epoch become the epoch, those beyond the range its end.
        Ok(Self(Moment::from_millis((seconds * 1e3).round() as u64)))
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
    fn debug_of_a_blob_hides_its_content() {
        assert_eq!(format!("{:?}", Blob(Bytes::from_static(b"secret"))), "Blob(6 bytes)");
    }
}
