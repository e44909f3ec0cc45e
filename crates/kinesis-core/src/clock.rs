//! Time as a dependency: a monotonic clock for ages, a wall clock for what people and the service read.

use std::fmt;
use std::time::{Instant, SystemTime};

use crate::Timestamp;

/// Where time comes from.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Monotonic time. Ages, expiry and pacing use only this.
    fn now(&self) -> Instant;

    /// Wall-clock time of this host. Never compared with that of another host.
    fn wall(&self) -> Timestamp;
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        SystemTime::now().into()
    }
}

/// Follows the time of the current tokio runtime, also a paused one.
///
/// Wall time is that of the host when the clock was made, plus what has passed on the runtime's clock since.
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    started: Instant,
    wall_at_start: Timestamp,
}

#[cfg(feature = "tokio")]
impl TokioClock {
    /// A clock that starts at the host's time.
    #[must_use]
    pub fn new() -> Self {
        Self { started: tokio::time::Instant::now().into_std(), wall_at_start: SystemClock.wall() }
    }
}

#[cfg(feature = "tokio")]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "tokio")]
impl Clock for TokioClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Timestamp {
        let passed = self.now().saturating_duration_since(self.started);
        Timestamp::from_millis(
            self.wall_at_start.as_millis() + i64::try_from(passed.as_millis()).unwrap_or(i64::MAX),
        )
    }
}
