//! Arguments of a task.

use anyhow::{Result, bail};

/// Refuses any argument.
pub(crate) fn none(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(arg) => bail!("unexpected argument `{arg}`"),
    }
}

/// At most one argument, which must be one of `known`.
pub(crate) fn flag<'a>(args: &[String], known: &[&'a str]) -> Result<Option<&'a str>> {
    match args {
        [] => Ok(None),
        [arg] => match known.iter().find(|flag| *flag == arg) {
            Some(flag) => Ok(Some(flag)),
            None => bail!("unexpected argument `{arg}`; known: {}", known.join(", ")),
        },
        [_, extra, ..] => bail!("unexpected argument `{extra}`"),
    }
}

/// What follows a first `--`; anything before it is refused.
pub(crate) fn after_dashes(args: &[String]) -> Result<&[String]> {
    match args {
        [] => Ok(&[]),
        [dashes, rest @ ..] if dashes == "--" => Ok(rest),
        [arg, ..] => bail!("unexpected argument `{arg}`; arguments to pass on follow `--`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn flags_are_known_or_refused() {
        assert_eq!(flag(&owned(&[]), &["--fix"]).unwrap(), None);
        assert_eq!(flag(&owned(&["--fix"]), &["--fix"]).unwrap(), Some("--fix"));
        let error = flag(&owned(&["--fixx"]), &["--fix"]).unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument `--fixx`; known: --fix");
        assert!(flag(&owned(&["--fix", "--fix"]), &["--fix"]).is_err());
    }

    #[test]
    fn arguments_to_pass_on_follow_dashes() {
        assert_eq!(after_dashes(&owned(&["--", "a", "b"])).unwrap(), ["a", "b"]);
        assert!(after_dashes(&owned(&["a"])).is_err());
        assert!(none(&owned(&["a"])).is_err());
    }
}
