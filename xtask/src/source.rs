//! Rust source as lines of code, text and comment.
//!
//! House rules look at code without being misled by strings and comments, and the other way round. This
//! is a scanner, not a parser: it knows comments, literals and braces, nothing else.

/// One line, taken apart.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Code, with the contents of string literals left out.
    pub(crate) code: String,
    /// The contents of string literals.
    pub(crate) text: String,
    /// Comments, with their slashes.
    pub(crate) comment: String,
    /// Inside an item marked `#[cfg(test)]`.
    pub(crate) test: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Nested this deep.
    BlockComment(usize),
    Text,
    /// Closed by a quote and this many hashes.
    RawText(usize),
}

/// Takes a file apart.
pub(crate) fn scan(source: &str) -> Vec<Line> {
    let mut lines = split(source);
    mark_tests(&mut lines);
    lines
}

fn split(source: &str) -> Vec<Line> {
    let chars: Vec<char> = source.chars().collect();
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut state = State::Code;
    let mut at = 0;
    while let Some(&here) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        if here == '\n' {
            lines.push(std::mem::take(&mut line));
            if state == State::LineComment {
                state = State::Code;
            }
            at += 1;
            continue;
        }
        let mut step = 1;
        match state {
            State::Code => match (here, next) {
                ('/', Some('/')) => {
                    state = State::LineComment;
                    line.comment.push(here);
                }
                ('/', Some('*')) => {
                    state = State::BlockComment(1);
                    line.comment.push_str("/*");
                    step = 2;
                }
                ('"', _) => {
                    state = State::Text;
                    line.code.push(here);
                }
                ('r', Some('"' | '#')) if !ends_in_word(&line.code) => {
                    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
                    if chars.get(at + 1 + hashes) == Some(&'"') {
                        state = State::RawText(hashes);
                        line.code.push_str("r\"");
                        step = hashes + 2;
                    } else {
                        line.code.push(here);
                    }
                }
                ('\'', Some(quoted)) => {
                    let length = char_literal(quoted, &chars[at..]);
                    line.code.push(here);
                    if length > 1 {
                        line.code.push('\'');
                    }
                    step = length;
                }
                _ => line.code.push(here),
            },
            State::LineComment => line.comment.push(here),
            State::BlockComment(depth) => match (here, next) {
                ('*', Some('/')) => {
                    state = if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
                    line.comment.push_str("*/");
                    step = 2;
                }
                ('/', Some('*')) => {
                    state = State::BlockComment(depth + 1);
                    line.comment.push_str("/*");
                    step = 2;
                }
                _ => line.comment.push(here),
            },
            State::Text => match (here, next) {
                ('\\', Some(escaped)) if escaped != '\n' => {
                    line.text.push(here);
                    line.text.push(escaped);
                    step = 2;
                }
                ('"', _) => {
                    state = State::Code;
                    line.code.push(here);
                    line.text.push(' ');
                }
                _ => line.text.push(here),
            },
            State::RawText(hashes) => {
                let closing = chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
                if here == '"' && closing {
                    state = State::Code;
                    line.code.push(here);
                    line.text.push(' ');
                    step = hashes + 1;
                } else {
                    line.text.push(here);
                }
            }
        }
        at += step;
    }
    if line != Line::default() {
        lines.push(line);
    }
    lines
}

/// How many characters of `rest`, which begins with a quote, are a character literal; 1 is a lifetime.
fn char_literal(quoted: char, rest: &[char]) -> usize {
    if quoted == '\\' {
        // The character after the backslash may itself be a quote.
        let close = rest.iter().skip(3).position(|c| *c == '\'');
        close.map_or(1, |at| at + 4)
    } else if rest.get(2) == Some(&'\'') {
        3
    } else {
        1
    }
}

/// Whether an `r` after `code` would continue a name; `b` and `c` alone are literal prefixes.
fn ends_in_word(code: &str) -> bool {
    let word: String = code.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    !(word.is_empty() || word == "b" || word == "c")
}

/// Sets `test` on every line from a `#[cfg(test)]` to the end of the item below it.
fn mark_tests(lines: &mut [Line]) {
    let marks = items(lines, is_test_cfg);
    for (line, mark) in lines.iter_mut().zip(marks) {
        line.test = mark;
    }
}

/// For each line, whether it belongs to an item that starts with a line of which `begins` is true.
pub(crate) fn items(lines: &[Line], begins: impl Fn(&str) -> bool) -> Vec<bool> {
    let mut depth = 0_usize;
    let mut started = false;
    // The depth at which the item's braces began.
    let mut inside: Option<usize> = None;
    let mut marks = Vec::with_capacity(lines.len());
    for line in lines {
        if inside.is_none() && begins(&line.code) {
            started = true;
        }
        marks.push(started || inside.is_some());
        for character in line.code.chars() {
            match character {
                '{' => {
                    if started {
                        inside = Some(depth);
                        started = false;
                    }
                    depth += 1;
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if inside == Some(depth) {
                        inside = None;
                    }
                }
                ';' if inside.is_none() => started = false,
                _ => {}
            }
        }
    }
    marks
}

fn is_test_cfg(code: &str) -> bool {
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    code.contains("#[cfg(test)]") || code.contains("#[cfg(all(test,")
}

/// Whether the whole file is test code by its place.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests" || part == "benches")
}

/// The words (identifiers and keywords) of a piece of code, in order.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_leave_the_code() {
        let lines = scan("let a = \"x // {y}\"; // why\nlet b = 1;\n");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].code, "let a = \"\"; ");
        assert_eq!(lines[0].text, "x // {y} ");
        assert_eq!(lines[0].comment, "// why");
        assert_eq!(lines[1].code, "let b = 1;");
    }

    #[test]
    fn raw_and_escaped_strings_end_where_rust_ends_them() {
        let lines = scan("f(r#\"a\"b\"#, \"c\\\"d\", br\"e\"); g()");
        assert_eq!(lines[0].code, "f(r\"\", \"\", br\"\"); g()");
        assert_eq!(lines[0].text, "a\"b c\\\"d e ");
        assert_eq!(scan("f(br\"\\\", g)")[0].code, "f(br\"\", g)");
        assert_eq!(scan("let for_r = 1;")[0].code, "let for_r = 1;");
        assert_eq!(scan("r#type")[0].code, "r#type");
    }

    #[test]
    fn character_literals_are_not_lifetimes() {
        assert_eq!(
            scan("let q = '\"'; f::<'a>('{', '\\'', '\\n')")[0].code,
            "let q = ''; f::<'a>('', '', '')"
        );
        assert_eq!(scan("'\\u{1F600}' x")[0].code, "'' x");
    }

    #[test]
    fn nested_block_comments_span_lines() {
        let lines = scan("a /* b /* c */\nd */ e");
        assert_eq!(lines[0].code, "a ");
        assert_eq!(lines[1].code, " e");
    }

    #[test]
    fn test_modules_are_marked_to_their_end() {
        let lines = scan("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() { }\n}\nfn c() {}\n");
        let marks: Vec<bool> = lines.iter().map(|line| line.test).collect();
        assert_eq!(marks, [false, true, true, true, true, false]);
    }

    #[test]
    fn a_test_module_in_its_own_file_marks_only_its_declaration() {
        let lines = scan("#[cfg(test)]\nmod tests;\nfn c() {}\n");
        let marks: Vec<bool> = lines.iter().map(|line| line.test).collect();
        assert_eq!(marks, [true, true, false]);
        assert!(is_test_file("crates/a/src/b/tests.rs"));
        assert!(is_test_file("crates/a/tests/c.rs"));
        assert!(!is_test_file("crates/a/src/latests.rs"));
    }

    #[test]
    fn every_file_of_the_workspace_is_read_with_balanced_braces() {
        let workspace = crate::workspace::Workspace::here().unwrap();
        for file in workspace.rust_files().unwrap() {
            let lines = scan(&workspace.read(&file).unwrap());
            let count =
                |brace: char| lines.iter().map(|line| line.code.matches(brace).count()).sum::<usize>();
            assert_eq!(count('{'), count('}'), "{file}");
            assert_eq!(count('('), count(')'), "{file}");
        }
    }
}
