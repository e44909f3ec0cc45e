use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in wall-clock time: milliseconds since 1970-01-01T00:00:00Z, the resolution of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The point `earlier` before this one; never before the epoch.
    #[must_use]
    pub fn minus(self, earlier: Duration) -> Self {
        let millis = i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis).max(0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
