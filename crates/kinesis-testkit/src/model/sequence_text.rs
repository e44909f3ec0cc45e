//! Sequence numbers as text without an allocation: a reply may hold ten thousand of them.

use std::fmt;

use serde::{Serialize, Serializer};

/// Digits of the longest sequence number that the service hands out.
pub(crate) const SEQUENCE_DIGITS: usize = 56;

/// A sequence number as text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceText {
    digits: [u8; SEQUENCE_DIGITS],
    /// Where the number starts in `digits`; it goes to their end.
    start: u8,
}

impl SequenceText {
    /// The text that begins with `prefix`, ends with these numbers, each in so many digits, and has zeros between.
    /// Without a prefix it has no leading zeros.
    pub(crate) fn new(prefix: &[u8], number: u64, (last, width): (u64, usize)) -> Self {
        let mut digits = [b'0'; SEQUENCE_DIGITS];
        digits[..prefix.len()].copy_from_slice(prefix);
        write_before(&mut digits, SEQUENCE_DIGITS, last);
        let first = write_before(&mut digits, SEQUENCE_DIGITS - width, number);
        let start = if prefix.is_empty() { first } else { 0 };
        Self { digits, start: start as u8 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[usize::from(self.start)..]
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("decimal digits")
    }
}

/// Writes a number so that it ends before `end`; where it starts.
fn write_before(digits: &mut [u8], end: usize, mut number: u64) -> usize {
    let mut at = end;
    while number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    at
}

impl fmt::Display for SequenceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SequenceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<SequenceText> for String {
    fn from(text: SequenceText) -> Self {
        text.as_str().to_owned()
    }
}

impl Serialize for SequenceText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_padded_after_its_prefix_and_bare_without_one() {
        let text = SequenceText::new(b"49", 1_203, (7, 10));
        assert_eq!(text.to_string(), format!("49{:044}{:010}", 1_203, 7));
        assert_eq!(SequenceText::new(b"", 99, (0, 10)).as_str(), "990000000000");
        assert_eq!(SequenceText::new(b"", u64::MAX, (1, 10)).to_string(), format!("{}{:010}", u64::MAX, 1));
    }
}
