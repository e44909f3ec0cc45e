//! The ARN of a consumer.

use std::fmt;
use std::sync::Arc;

use kinesis_core::StreamRef;

/// `arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/billing:1767225600`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerArn(Arc<str>);

impl ConsumerArn {
    /// Takes the text if it is a consumer's ARN.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ':');
        let [arn, _partition, service, region, account] = std::array::from_fn(|_| parts.next());
        let known = (arn, service) == (Some("arn"), Some("kinesis"));
        let located = [region, account].iter().all(|part| part.is_some_and(|part| !part.is_empty()));
        let (stream, consumer) = parts.next()?.strip_prefix("stream/")?.split_once("/consumer/")?;
        let (name, created) = consumer.split_once(':')?;
        let dated = !created.is_empty() && created.bytes().all(|byte| byte.is_ascii_digit());
        (known && located && dated && !stream.is_empty() && !name.is_empty()).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a consumer of this stream.
    pub(crate) fn is_of(&self, stream: &StreamRef) -> bool {
        let of = self.0.split_once("/consumer/").map_or("", |(of, _)| of);
        match stream.arn() {
            Some(arn) => arn == of,
            None => of.rsplit_once(":stream/").is_some_and(|(_, name)| name == stream.name()),
        }
    }
}

impl fmt::Display for ConsumerArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_arn_of_a_consumer_is_taken() {
        let good = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/billing:1767225600";
        let arn = ConsumerArn::parse(good).unwrap();
        assert_eq!(arn.as_str(), good);
        assert!(arn.is_of(&"orders".parse().unwrap()) && !arn.is_of(&"order".parse().unwrap()));
        assert!(arn.is_of(&"arn:aws:kinesis:us-east-1:123456789012:stream/orders".parse().unwrap()));
        assert!(!arn.is_of(&"arn:aws:kinesis:eu-west-1:123456789012:stream/orders".parse().unwrap()));
        for bad in [
            "",
            "billing",
            "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
            "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/billing",
            "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/billing:soon",
            "arn:aws:kinesis:us-east-1:123456789012:stream//consumer/billing:1",
            "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/:1",
            "arn:aws:kinesis::123456789012:stream/orders/consumer/billing:1",
            "arn:aws:dynamodb:us-east-1:123456789012:stream/orders/consumer/billing:1",
        ] {
            assert_eq!(ConsumerArn::parse(bad), None, "{bad}");
        }
    }
}
