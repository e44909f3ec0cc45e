//! The clock that everything in the service goes by.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

/// Where the default clock's wall time starts: 2026-01-01T00:00:00Z, in seconds since the Unix epoch.
pub const DEFAULT_START_SECONDS: u64 = 1_767_225_600;

/// Waits beyond this are for ever: a paused clock must not jump there when nothing else is due.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A point in the service's time: the time since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) const EPOCH: Self = Self(Duration::ZERO);

    pub(crate) fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }

    /// Nanoseconds since the Unix epoch.
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whole milliseconds since the Unix epoch.
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Whole seconds since the Unix epoch.
    pub(crate) fn seconds(self) -> u64 {
        self.0.as_secs()
    }

    /// The time since `earlier`, zero when that lies ahead.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    pub(crate) fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl From<Moment> for SystemTime {
    fn from(moment: Moment) -> Self {
        // Moments come from a SystemTime plus a bounded age; what cannot be represented stays at the epoch.
        Self::UNIX_EPOCH.checked_add(moment.0).unwrap_or(Self::UNIX_EPOCH)
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

/// The service's clock: arrival times, quotas, retention, iterator life and the `Date` header all follow it.
///
/// Cheap to clone; clones are the same clock.
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use kinesis_testkit::TestClock;
/// let clock = TestClock::manual(SystemTime::UNIX_EPOCH);
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now(), SystemTime::UNIX_EPOCH + Duration::from_secs(3600));
/// ```
#[derive(Clone)]
pub struct TestClock(Arc<Source>);

enum Source {
    /// A fixed start plus the age of tokio's clock, plus what `advance` added.
    Tokio { start: Moment, base: Instant, ahead: watch::Sender<Duration> },
    /// Moves only by `advance`.
    Manual { start: Moment, ahead: watch::Sender<Duration> },
}

impl TestClock {
    /// Follows tokio's clock from [`DEFAULT_START_SECONDS`] on, so virtual under `start_paused`. The default.
    pub fn tokio() -> Self {
        Self::tokio_at(SystemTime::UNIX_EPOCH + Duration::from_secs(DEFAULT_START_SECONDS))
    }

    /// Follows tokio's clock; `start` is the wall time at this moment.
    pub fn tokio_at(start: SystemTime) -> Self {
        let ahead = watch::Sender::new(Duration::ZERO);
        Self(Arc::new(Source::Tokio { start: start.into(), base: Instant::now(), ahead }))
    }

    /// Follows the machine's clock: for the HTTP front, whose clients go by real time.
    ///
    /// The wall time is read once and then advances monotonically.
    #[expect(clippy::disallowed_methods, reason = "this is the test kit's own clock seam")]
    pub fn system() -> Self {
        Self::tokio_at(SystemTime::now())
    }

    /// Stands at `start` and moves only by [`advance`](Self::advance).
    pub fn manual(start: SystemTime) -> Self {
        Self(Arc::new(Source::Manual { start: start.into(), ahead: watch::Sender::new(Duration::ZERO) }))
    }

    /// Moves the clock forward. A clock that follows another one stays ahead of it by so much from then on.
    pub fn advance(&self, duration: Duration) {
        self.ahead().send_modify(|ahead| *ahead = ahead.saturating_add(duration));
    }

    /// The service's wall time.
    pub fn now(&self) -> SystemTime {
        self.moment().into()
    }

    /// The time since the clock was made, including what it was advanced by.
    pub fn elapsed(&self) -> Duration {
        match &*self.0 {
            Source::Tokio { base, ahead, .. } => base.elapsed().saturating_add(*ahead.borrow()),
            Source::Manual { ahead, .. } => *ahead.borrow(),
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        let (Source::Tokio { start, .. } | Source::Manual { start, .. }) = &*self.0;
        start.plus(self.elapsed())
    }

    /// Waits until the clock has moved by `duration`. Cancel-safe.
    pub(crate) async fn sleep(&self, duration: Duration) {
        let until = self.elapsed().saturating_add(duration);
        let mut moved = self.ahead().subscribe();
        loop {
            let left = until.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            let ticks = matches!(&*self.0, Source::Tokio { .. }) && left < FOREVER;
            tokio::select! {
                () = tokio::time::sleep(left), if ticks => {}
                // The sender lives in `self`, so this ends only by a move.
                _ = moved.changed() => {}
            }
        }
    }

    fn ahead(&self) -> &watch::Sender<Duration> {
        let (Source::Tokio { ahead, .. } | Source::Manual { ahead, .. }) = &*self.0;
        ahead
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::tokio()
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.0 {
            Source::Tokio { .. } => "tokio",
            Source::Manual { .. } => "manual",
        };
        f.debug_struct("TestClock").field("kind", &kind).field("elapsed", &self.elapsed()).finish()
    }
}
