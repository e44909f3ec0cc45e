//! The bytes of the format: magic, field keys, varints, and skipping what is not known.

use bytes::BufMut;

/// The first four bytes of every aggregate.
pub const MAGIC: [u8; 4] = [0xF3, 0x89, 0x9A, 0xC2];

/// The length of the MD5 digest at the end of every aggregate, in bytes.
pub const DIGEST_LEN: usize = 16;

/// What an aggregate carries besides its protobuf message, in bytes: magic and digest.
pub const FRAME_LEN: usize = MAGIC.len() + DIGEST_LEN;

/// The deepest nesting of messages and groups that is read: the limit of the Java and C++ protobuf parsers.
pub const MAX_NESTING: usize = 100;

// Field keys (number << 3 | wire type) of the messages.
pub(crate) const TOP_PARTITION_KEY: u8 = (1 << 3) | LEN;
pub(crate) const TOP_HASH_KEY: u8 = (2 << 3) | LEN;
pub(crate) const TOP_RECORD: u8 = (3 << 3) | LEN;
pub(crate) const RECORD_PARTITION_KEY_INDEX: u8 = 1 << 3;
pub(crate) const RECORD_HASH_KEY_INDEX: u8 = 2 << 3;
pub(crate) const RECORD_DATA: u8 = (3 << 3) | LEN;
pub(crate) const RECORD_TAG: u8 = (4 << 3) | LEN;
pub(crate) const TAG_KEY: u8 = (1 << 3) | LEN;
pub(crate) const TAG_VALUE: u8 = (2 << 3) | LEN;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u8 = 2;
const GROUP_START: u32 = 3;
const GROUP_END: u32 = 4;
const FIXED32: u32 = 5;

/// The bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads protobuf from `bytes`, never past `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes` from `at` on, and no further than their end.
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next byte is.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Whether everything was read.
    pub(crate) const fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// A varint of up to ten bytes; longer than needed is legal. Bits beyond the 64th are dropped, as Google's
    /// parsers do.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    #[inline]
    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (i, byte) in self.bytes.get(self.at..).unwrap_or_default().iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * i);
            if byte & 0x80 == 0 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A length and the place of that many bytes: start and end. The length is compared with what is really there.
    #[inline(always)]
    pub(crate) fn length_delimited(&mut self) -> Result<(usize, usize), Malformed> {
        let len = self.varint()?;
        let start = self.at;
        if len > (self.bytes.len() - start) as u64 {
            return Err(Malformed);
        }
        self.at = start + len as usize;
        Ok((start, self.at))
    }

    /// Skips the value of the field whose key was just read. `depth` counts the messages around it.
    #[cold]
    pub(crate) fn skip(&mut self, key: u64, depth: usize) -> Result<(), Malformed> {
        let (number, wire_type) = split_key(key)?;
        if wire_type == GROUP_START { self.skip_group(number, depth) } else { self.skip_scalar(wire_type) }
    }

    fn skip_scalar(&mut self, wire_type: u32) -> Result<(), Malformed> {
        let fixed = match wire_type {
            VARINT => return self.varint().map(|_| ()),
            FIXED64 => 8,
            FIXED32 => 4,
            w if w == u32::from(LEN) => return self.length_delimited().map(|_| ()),
            _ => return Err(Malformed), // a group end that nobody opened, or the undefined types 6 and 7
        };
        if self.bytes.len() - self.at < fixed {
            return Err(Malformed);
        }
        self.at += fixed;
        Ok(())
    }

    /// Skips to the end of a group. The open groups are kept in a fixed array: a nesting bomb costs nothing.
    fn skip_group(&mut self, number: u32, depth: usize) -> Result<(), Malformed> {
        let mut open = [0; MAX_NESTING];
        let limit = MAX_NESTING.saturating_sub(depth);
        let mut level = 0;
        let mut opened = Some(number);
        loop {
            if let Some(number) = opened.take() {
                if level >= limit {
                    return Err(Malformed);
                }
                open[level] = number;
                level += 1;
            }
            let key = self.varint()?;
            match split_key(key)? {
                (number, GROUP_START) => opened = Some(number),
                (number, GROUP_END) => {
                    level -= 1;
                    if open[level] != number {
                        return Err(Malformed);
                    }
                    if level == 0 {
                        return Ok(());
                    }
                }
                (_, wire_type) => self.skip_scalar(wire_type)?,
            }
        }
    }
}

/// Field number and wire type. Keys have 32 bits, and field number 0 does not exist.
fn split_key(key: u64) -> Result<(u32, u32), Malformed> {
    let key = u32::try_from(key).map_err(|_| Malformed)?;
    if key >> 3 == 0 { Err(Malformed) } else { Ok((key >> 3, key & 7)) }
}

/// How many bytes `value` takes as a varint.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends `value` as a varint of minimal length.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_written_minimal_and_their_length_is_known_before() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut cursor = Cursor::new(&out, 0);
                assert_eq!(cursor.varint(), Ok(value));
                assert!(cursor.is_done());
            }
        }
    }

    #[test]
    fn a_varint_has_at_most_ten_bytes_and_must_end() {
        let read = |bytes: &[u8]| Cursor::new(bytes, 0).varint();
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Ok(0));
        assert_eq!(read(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01]), Ok(u64::MAX));
        assert_eq!(read(&[0x80; 11]), Err(Malformed));
        assert_eq!(read(&[0x80, 0x80]), Err(Malformed));
        assert_eq!(read(&[]), Err(Malformed));
    }

    #[test]
    fn groups_are_skipped_to_their_own_end_and_no_deeper_than_the_limit() {
        let nest = |levels: usize| -> Vec<u8> {
            let mut bytes = vec![0x4B; levels];
            bytes.extend(std::iter::repeat_n(0x4C, levels));
            bytes
        };
        let skip = |bytes: &[u8], depth| {
            let mut cursor = Cursor::new(bytes, 0);
            let key = cursor.varint()?;
            cursor.skip(key, depth).map(|()| cursor.at())
        };
        assert_eq!(skip(&nest(100), 0), Ok(200));
        assert_eq!(skip(&nest(101), 0), Err(Malformed));
        assert_eq!(skip(&nest(99), 1), Ok(198));
        assert_eq!(skip(&nest(100), 1), Err(Malformed));
        // Field 9 opened, field 10 closed; never closed; closed without being opened; field number 0 inside.
        for bad in [&[0x4B, 0x54][..], &[0x4B], &[0x4C], &[0x4B, 0x00, 0x00, 0x4C]] {
            assert_eq!(skip(bad, 0), Err(Malformed), "{bad:02x?}");
        }
    }
}
