//! Vectors for `kinesis-kpl`: checked by the same code as its tests.

#[path = "../../../crates/kinesis-kpl/tests/support/checker.rs"]
mod checker;

use serde_json::Value;

/// Checks a line of the file `stem`.
pub(super) fn check(stem: &str, line: &Value, strict: bool) -> Result<(), String> {
    checker::check(stem, line, strict)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::vectors::check_folder;

    #[test]
    fn the_copies_in_the_repository_agree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/kinesis-kpl/tests/vectors");
        for strict in [false, true] {
            assert_eq!(check_folder(&root, strict).unwrap(), (276, 0));
        }
    }
}
