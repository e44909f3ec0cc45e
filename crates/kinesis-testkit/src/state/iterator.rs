//! Shard iterators: opaque to clients, complete for the service, so that none needs to be remembered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use super::shard::shard_id;
use crate::clock::Moment;

/// What a shard iterator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardIterator {
    pub(crate) stream: String,
    pub(crate) incarnation: u32,
    pub(crate) shard: usize,
    /// The lowest ordinal that it reads.
    pub(crate) position: u64,
    pub(crate) issued: Moment,
}

impl ShardIterator {
    pub(crate) fn shard_id(&self) -> String {
        shard_id(self.shard)
    }

    pub(crate) fn encode(&self) -> String {
        let text = format!(
            "{}/{}/{}/{}/{}",
            self.stream,
            self.incarnation,
            self.shard,
            self.position,
            self.issued.millis()
        );
        STANDARD.encode(format!("{text}/{}", checksum(&text)))
    }
}

/// Reads an iterator; none for anything that the service has not made.
pub(crate) fn decode(token: &str) -> Option<ShardIterator> {
    let text = String::from_utf8(STANDARD.decode(token).ok()?).ok()?;
    let (text, sum) = text.rsplit_once('/')?;
    if sum != checksum(text) {
        return None;
    }
    let mut parts = text.split('/');
    Some(ShardIterator {
        stream: parts.next()?.to_owned(),
        incarnation: parts.next()?.parse().ok()?,
        shard: parts.next()?.parse().ok()?,
        position: parts.next()?.parse().ok()?,
        issued: Moment::from_millis(parts.next()?.parse().ok()?),
    })
}

/// Guards against iterators that were cut or changed, not against malice.
fn checksum(text: &str) -> String {
    let digest = Md5::digest(text.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iterator_survives_its_encoding_and_nothing_else_does() {
        let iterator = ShardIterator {
            stream: "a.b-c_d".to_owned(),
            incarnation: 3,
            shard: 17,
            position: 99,
            issued: Moment::from_millis(1_767_225_600_000),
        };
        let token = iterator.encode();
        assert_eq!(decode(&token), Some(iterator));
        for bad in ["", "x", "AAAA", &token[1..], &token[..token.len() - 4]] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
