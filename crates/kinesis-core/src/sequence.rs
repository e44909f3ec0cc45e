//! Sequence numbers: decimal numbers of up to 186 bits today, compared as numbers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Text that is not a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid sequence number: must be decimal digits without leading zeros")]
pub struct InvalidSequenceNumber;

/// The sequence number of a record in its stream.
///
/// Ordered as a number, whatever its number of digits. Up to 77 digits are packed into 32 bytes, so that a position
/// for each user record of an aggregate costs no allocation; longer ones (the service has none) are shared text.
/// `FromStr` refuses leading zeros, so that equal numbers are equal text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceNumber(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    /// Most significant limb first, so that the derived order of the array is that of the number.
    Packed([u64; 4]),
    Long(Arc<str>),
}

/// The most digits that always fit 256 bits.
const MAX_PACKED_DIGITS: usize = 77;
/// The largest power of ten in a `u64`, and its exponent: digits are written in groups of 19.
const GROUP: u64 = 10_000_000_000_000_000_000;
const GROUP_DIGITS: usize = 19;

/// Room for a packed sequence number as text; see [`SequenceNumber::write_to`].
#[derive(Debug, Clone)]
pub struct SequenceBuf([u8; 5 * GROUP_DIGITS]);

impl Default for SequenceBuf {
    fn default() -> Self {
        Self([b'0'; 5 * GROUP_DIGITS])
    }
}

impl SequenceNumber {
    /// Sequence number zero, below every one of the service.
    pub const ZERO: Self = Self(Repr::Packed([0; 4]));

    /// Writes the digits into `buf` and returns them: text without an allocation.
    #[must_use]
    pub fn write_to<'a>(&'a self, buf: &'a mut SequenceBuf) -> &'a str {
        let limbs = match &self.0 {
            Repr::Packed(limbs) => limbs,
            Repr::Long(text) => return text,
        };
        let mut rest = *limbs;
        let mut at = buf.0.len();
        loop {
            let mut group = divide(&mut rest, GROUP);
            let last = rest == [0; 4];
            for i in 0..GROUP_DIGITS {
                if last && group == 0 && i > 0 {
                    break;
                }
                at -= 1;
                buf.0[at] = b'0' + (group % 10) as u8;
                group /= 10;
            }
            if last {
                break;
            }
        }
        std::str::from_utf8(&buf.0[at..]).expect("only ASCII digits were written")
    }
}

/// Divides in place and returns the remainder.
fn divide(limbs: &mut [u64; 4], by: u64) -> u64 {
    let mut remainder = 0_u64;
    for limb in limbs {
        let value = (u128::from(remainder) << 64) | u128::from(*limb);
        *limb = (value / u128::from(by)) as u64;
        remainder = (value % u128::from(by)) as u64;
    }
    remainder
}

/// The number of up to [`MAX_PACKED_DIGITS`] digits. Every record that is read has one, so it is read eight digits at a
/// time, and whether all are digits is asked once at the end.
fn parse(digits: &[u8]) -> Option<[u64; 4]> {
    let mut wrong = 0;
    let (head, rest) = digits.split_at(digits.len() % 16);
    let (first, second) = head.split_at(head.len() % 8);
    let mut value = few_digits(first, digits, &mut wrong);
    if let Some(chunk) = second.first_chunk() {
        value = value * EIGHT + eight_digits(u64::from_le_bytes(*chunk), &mut wrong);
    }
    let mut limbs = [0, 0, 0, value];
    let (chunks, _) = rest.as_chunks::<16>();
    // Sixteen digits more take one limb more at the most.
    if let [first, second, third] = chunks {
        multiply_add::<1>(&mut limbs, sixteen_digits(*first, &mut wrong));
        multiply_add::<2>(&mut limbs, sixteen_digits(*second, &mut wrong));
        multiply_add::<3>(&mut limbs, sixteen_digits(*third, &mut wrong));
    } else {
        // The service has no such numbers today.
        for chunk in chunks {
            multiply_add::<4>(&mut limbs, sixteen_digits(*chunk, &mut wrong));
        }
    }
    (wrong & HIGH_HALVES == 0).then_some(limbs)
}

const EIGHT: u64 = 100_000_000;

/// `limbs` times ten to the sixteenth, plus `plus`, where only the last `USED` limbs are not 0.
#[inline]
fn multiply_add<const USED: usize>(limbs: &mut [u64; 4], plus: u64) {
    let mut carry = plus;
    for limb in limbs.iter_mut().rev().take(USED) {
        let value = u128::from(*limb) * u128::from(EIGHT * EIGHT) + u128::from(carry);
        *limb = value as u64;
        carry = (value >> 64) as u64;
    }
    if USED < 4 {
        limbs[3 - USED] = carry;
    }
}

const ZEROS: u64 = 0x3030_3030_3030_3030;
const HIGH_HALVES: u64 = 0xF0F0_F0F0_F0F0_F0F0;

/// The value of sixteen digits.
#[inline]
fn sixteen_digits(chunk: [u8; 16], wrong: &mut u64) -> u64 {
    let both = u128::from_le_bytes(chunk);
    eight_digits(both as u64, wrong) * EIGHT + eight_digits((both >> 64) as u64, wrong)
}

/// The value of fewer than eight digits, the first ones of `all`.
#[inline]
fn few_digits(digits: &[u8], all: &[u8], wrong: &mut u64) -> u64 {
    if let (Some(chunk), bits @ 8..) = (all.first_chunk(), digits.len() * 8) {
        // Zeros before them, and what follows them pushed out.
        let text = u64::from_le_bytes(*chunk) << (64 - bits) | ZEROS >> bits;
        return eight_digits(text, wrong);
    }
    digits.iter().fold(0, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        *wrong |= u64::from(digit > 9) << 4;
        value * 10 + u64::from(digit)
    })
}

/// The value of eight digits, in the eight bytes of one number, the first one in the lowest; sets bits of the high halves
/// of `wrong` if one of them is no digit.
#[inline]
fn eight_digits(text: u64, wrong: &mut u64) -> u64 {
    let digits = text ^ ZEROS;
    // Digits are 0 to 9 now, and plus 6 they still have nothing in their high halves.
    *wrong |= digits | digits.wrapping_add(0x0606_0606_0606_0606);
    // Neighbours are joined to pairs, those to fours and those to the eight: each time one product adds so many times
    // the left one to the right one.
    let pairs = digits.wrapping_mul(1 + (10 << 8)) >> 8 & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & 0x0000_FFFF_0000_FFFF;
    fours.wrapping_mul(1 + (10_000 << 32)) >> 32
}

impl FromStr for SequenceNumber {
    type Err = InvalidSequenceNumber;

    fn from_str(text: &str) -> Result<Self, InvalidSequenceNumber> {
        let digits = text.as_bytes();
        match digits {
            [] | [b'0', _, ..] => return Err(InvalidSequenceNumber),
            _ if digits.len() > MAX_PACKED_DIGITS => {
                let plain = digits.iter().all(u8::is_ascii_digit);
                return if plain {
                    Ok(Self(Repr::Long(Arc::from(text))))
                } else {
                    Err(InvalidSequenceNumber)
                };
            }
            _ => {}
        }
        parse(digits).map(|limbs| Self(Repr::Packed(limbs))).ok_or(InvalidSequenceNumber)
    }
}

impl TryFrom<&str> for SequenceNumber {
    type Error = InvalidSequenceNumber;

    fn try_from(text: &str) -> Result<Self, InvalidSequenceNumber> {
        text.parse()
    }
}

impl From<u128> for SequenceNumber {
    fn from(number: u128) -> Self {
        Self(Repr::Packed([0, 0, (number >> 64) as u64, number as u64]))
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (&self.0, &other.0) {
            (Repr::Packed(a), Repr::Packed(b)) => a.cmp(b),
            // Without leading zeros the longer text is the larger number.
            (Repr::Packed(_), Repr::Long(_)) => std::cmp::Ordering::Less,
            (Repr::Long(_), Repr::Packed(_)) => std::cmp::Ordering::Greater,
            (Repr::Long(a), Repr::Long(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        }
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.write_to(&mut SequenceBuf::default()))
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SequenceNumber {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.write_to(&mut SequenceBuf::default()))
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SequenceNumber {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> SequenceNumber {
        text.parse().unwrap()
    }

    /// F-10: numbers of different lengths compare as numbers.
    #[test]
    fn order_is_numeric_across_lengths() {
        let long = "9".repeat(78);
        let texts = [
            "0",
            "9",
            "10",
            "99",
            "100",
            "49590338271490256608559692538361571095921575989136588898",
            &"9".repeat(77),
            &long,
        ];
        for pair in texts.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn one_wrong_byte_anywhere_is_refused() {
        for digits in [1, 7, 8, 9, 15, 16, 17, 54, 56, 64, 77] {
            for place in 0..digits {
                for wrong in ['/', ':', ' ', 'A', '\0', '\u{7f}', '?', '@', 'p'] {
                    let mut text: Vec<char> = "1".repeat(digits).chars().collect();
                    text[place] = wrong;
                    let text: String = text.into_iter().collect();
                    assert!(text.parse::<SequenceNumber>().is_err(), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_every_length_are_read_as_they_are_written() {
        for digits in 1..=80 {
            let text: String =
                (0..digits).map(|place| char::from(b'1' + (place * 7 + digits) as u8 % 9)).collect();
            assert_eq!(number(&text).to_string(), text);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for bad in ["", "00", "01", "-1", "+1", "1 ", "1a", "TRIM_HORIZON", "١"] {
            assert_eq!(bad.parse::<SequenceNumber>(), Err(InvalidSequenceNumber), "{bad:?}");
        }
    }

    #[test]
    fn one_wrong_character_anywhere_is_refused() {
        let digits = "49590338271490256608559692538361571095921575989136588898";
        for at in 0..digits.len() {
            for wrong in ["/", ":", "@", "", " ", "\u{7f}"] {
                let text = format!("{}{wrong}{}", &digits[..at], &digits[at + 1..]);
                assert_eq!(text.parse::<SequenceNumber>().is_ok(), wrong.is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn a_packed_number_is_small() {
        assert!(std::mem::size_of::<SequenceNumber>() <= 40);
    }

    proptest! {
        #[test]
        fn text_round_trips(text in "0|[1-9][0-9]{0,90}") {
            prop_assert_eq!(number(&text).to_string(), text);
        }

        #[test]
        fn order_is_that_of_padded_text(a in "0|[1-9][0-9]{0,80}", b in "0|[1-9][0-9]{0,80}") {
            let padded = |text: &str| format!("{text:0>90}");
            prop_assert_eq!(number(&a).cmp(&number(&b)), padded(&a).cmp(&padded(&b)));
        }
    }
}
