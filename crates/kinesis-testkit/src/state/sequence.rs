//! Sequence numbers: they grow with every record of the stream, across reshards too.
//!
//! Usually they have 56 decimal digits, from the left: `49`, the stream's creation in milliseconds (13), its incarnation
//! (5), the ordinal (26) and the shard (10). All have the same length, so the order of the text is the order of the
//! numbers. Where the service is asked for growing numbers there is only the ordinal, without leading zeros, and the
//! shard: they gain a digit again and again, and only the numeric order counts.
//! The ordinal skips a random number of values each time, as the service's numbers do: nobody may count on `+ 1`.

use crate::clock::Moment;
use crate::model::SequenceText;

/// Digits of a sequence number.
const DIGITS: usize = 56;
/// Digits of the shard, the last ones.
const SHARD: usize = 10;
/// The most that the ordinal grows from one record to the next.
const WIDEST_GAP: u64 = 64;

/// Hands out the sequence numbers of one stream.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Empty if the numbers grow in length.
    prefix: String,
    last: u64,
    gaps: fastrand::Rng,
}

/// What a sequence number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A number of this stream.
    Own { ordinal: u64, shard: usize },
    /// A well-formed number of another stream.
    Foreign,
    /// No sequence number at all.
    Malformed,
}

impl Sequences {
    pub(crate) fn new(created: Moment, incarnation: u32, seed: u64, growing: bool) -> Self {
        let prefix = if growing {
            String::new()
        } else {
            format!("49{:013}{:05}", created.millis() % 10_000_000_000_000, incarnation % 100_000)
        };
        Self { prefix, last: 0, gaps: fastrand::Rng::with_seed(seed) }
    }

    /// The next ordinal, above all before it.
    pub(crate) fn allocate(&mut self) -> u64 {
        self.last += self.gaps.u64(1..=WIDEST_GAP);
        self.last
    }

    /// The lowest ordinal that may still be handed out.
    pub(crate) fn upcoming(&self) -> u64 {
        self.last + 1
    }

    /// The sequence number of `ordinal` in the shard with number `shard`.
    pub(crate) fn render(&self, ordinal: u64, shard: usize) -> SequenceText {
        SequenceText::new(self.prefix.as_bytes(), ordinal, (shard as u64, SHARD))
    }

    pub(crate) fn parse(&self, text: &str) -> Parsed {
        if text.is_empty() || text.len() > 128 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Parsed::Malformed;
        }
        if text.len() > 1 && text.starts_with('0') {
            return Parsed::Malformed;
        }
        let length = if self.prefix.is_empty() { SHARD + 1..=DIGITS } else { DIGITS..=DIGITS };
        if !length.contains(&text.len()) || !text.starts_with(&self.prefix) {
            return Parsed::Foreign;
        }
        let (ordinal, shard) = text[self.prefix.len()..].split_at(text.len() - self.prefix.len() - SHARD);
        match (ordinal.parse(), shard.parse()) {
            (Ok(ordinal), Ok(shard)) => Parsed::Own { ordinal, shard },
            _ => Parsed::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences(incarnation: u32) -> Sequences {
        Sequences::new(Moment::from_millis(1_767_225_600_000), incarnation, 7, false)
    }

    #[test]
    fn numbers_have_56_digits_and_grow_as_text_and_as_numbers() {
        let mut sequences = sequences(1);
        assert_eq!(sequences.prefix.len(), 20);
        let mut before = String::new();
        for shard in [5, 3, 9, 0, 2] {
            let ordinal = sequences.allocate();
            let number = sequences.render(ordinal, shard).to_string();
            assert_eq!(number.len(), DIGITS);
            assert!(number > before);
            assert_eq!(sequences.parse(&number), Parsed::Own { ordinal, shard });
            before = number;
        }
    }

    #[test]
    fn growing_numbers_gain_digits_and_are_read_back() {
        let mut sequences = Sequences::new(Moment::from_millis(0), 1, 7, true);
        let mut lengths = std::collections::BTreeSet::new();
        for shard in (0..3).cycle().take(60) {
            let ordinal = sequences.allocate();
            let number = sequences.render(ordinal, shard).to_string();
            assert_eq!(number, format!("{ordinal}{shard:010}"));
            assert_eq!(sequences.parse(&number), Parsed::Own { ordinal, shard });
            lengths.insert(number.len());
        }
        assert!(lengths.len() >= 3, "{lengths:?}");
        assert_eq!(sequences.parse("0"), Parsed::Foreign);
    }

    #[test]
    fn a_number_of_another_incarnation_is_foreign() {
        let mut first = sequences(1);
        let ordinal = first.allocate();
        let number = first.render(ordinal, 0).to_string();
        assert_eq!(sequences(2).parse(&number), Parsed::Foreign);
        assert_eq!(sequences(2).parse("12"), Parsed::Foreign);
    }

    #[test]
    fn text_is_no_number() {
        for text in ["", "abc", "-1", "01", &"1".repeat(200)] {
            assert_eq!(sequences(1).parse(text), Parsed::Malformed, "{text}");
        }
    }
}
