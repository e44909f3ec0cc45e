/// The text of an error and its causes, joined with `: `. A cause whose text the error repeats is left out.
///
/// For logs and reports. It never uses debug text, which may hold payloads.
#[must_use]
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let part = cause.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn causes_are_joined_once() {
        let cause = "x".parse::<u8>().unwrap_err();
        let expected = format!("outer: {cause}");
        assert_eq!(error_chain(&Outer(cause)), expected);
    }
}
