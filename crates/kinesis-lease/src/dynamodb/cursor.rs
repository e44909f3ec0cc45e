//! Where a scan goes on that reads several segments of the table at once.

/// How far one segment has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    Unread,
    /// The key of the last row that was read.
    After(String),
    Done,
}

/// The progress of each segment that a scan reads. As text: a line each, `-` unread, `.` done, `>` and the key else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor(pub(super) Vec<Progress>);

impl Cursor {
    pub(super) fn start(segments: u32) -> Self {
        Self(vec![Progress::Unread; segments as usize])
    }

    /// Reads a cursor of a scan with as many segments; `None` for anything else.
    pub(super) fn parse(text: &str, segments: u32) -> Option<Self> {
        let parse = |line: &str| match line {
            "-" => Some(Progress::Unread),
            "." => Some(Progress::Done),
            line => line.strip_prefix('>').map(|key| Progress::After(unescaped(key))),
        };
        let lines = text.split('\n').map(parse).collect::<Option<Vec<_>>>()?;
        (lines.len() == segments as usize).then_some(Self(lines))
    }

    /// The cursor as text; `None` when every segment is done.
    pub(super) fn render(&self) -> Option<String> {
        if self.0.iter().all(|progress| *progress == Progress::Done) {
            return None;
        }
        let line = |progress: &Progress| match progress {
            Progress::Unread => "-".to_owned(),
            Progress::Done => ".".to_owned(),
            Progress::After(key) => format!(">{}", escaped(key)),
        };
        Some(self.0.iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    /// The segments to read for the next page and how many rows to ask each for, so that there are at most `limit`.
    pub(super) fn next(&self, limit: usize) -> Vec<(u32, usize)> {
        let open: Vec<u32> = (0_u32..)
            .zip(&self.0)
            .filter(|(_, progress)| **progress != Progress::Done)
            .map(|(segment, _)| segment)
            .take(limit.max(1))
            .collect();
        let share = limit / open.len().max(1);
        open.into_iter().map(|segment| (segment, share.max(1))).collect()
    }
}

/// The keys of other people's rows may have anything in them.
fn escaped(key: &str) -> String {
    key.replace('%', "%25").replace('\n', "%0A")
}

fn unescaped(key: &str) -> String {
    key.replace("%0A", "\n").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let cursor = Cursor(vec![Progress::After("a%0A\n%b".to_owned()), Progress::Unread, Progress::Done]);
        let text = cursor.render().unwrap();
        assert_eq!(text, ">a%250A%0A%25b\n-\n.");
        assert_eq!(Cursor::parse(&text, 3), Some(cursor));
        assert_eq!(Cursor::parse(&text, 2), None);
        assert_eq!(Cursor::parse("shardId-1", 1), None);
        assert_eq!(Cursor(vec![Progress::Done; 2]).render(), None);
        let empty_key = Cursor(vec![Progress::After(String::new())]);
        assert_eq!(Cursor::parse(&empty_key.render().unwrap(), 1), Some(empty_key));
    }

    #[test]
    fn a_page_is_divided_among_the_segments_that_are_not_done() {
        assert_eq!(Cursor::start(3).next(10), [(0, 3), (1, 3), (2, 3)]);
        assert_eq!(Cursor::start(3).next(2), [(0, 1), (1, 1)]);
        let cursor = Cursor(vec![Progress::Done, Progress::Unread, Progress::After("a".to_owned())]);
        assert_eq!(cursor.next(10), [(1, 5), (2, 5)]);
        assert_eq!(cursor.next(1), [(1, 1)]);
    }
}
