//! What to do next when polling a shard: pure, with time and randomness injected.
//!
//! Each [`step`](PollMachine::step) takes what happened and says what to do. The reader around it does the calls and
//! the waiting, and nothing else.

mod clock;
mod count;
mod cursor;
mod insist;
mod pace;
mod share;
mod trouble;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::directory::ShardInfo;
use kinesis_core::source::{SourceBatch, SourceError, SourceEvent, SourceRecord};
use kinesis_core::{ShardRef, StartPosition, Timestamp};

use self::cursor::Cursor;
use self::pace::Pace;
use self::trouble::Trouble;
use crate::PollConfig;
use crate::limits::ITERATOR_LIFE;

const GET_ITERATOR: &str = "GetShardIterator";
const GET_RECORDS: &str = "GetRecords";

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// The caller wants the next event, or a wait is over.
    Resume,
    /// GetShardIterator was answered, or was not.
    Iterator {
        answer: Result<String, ServiceFailure>,
        /// The service's time, where there was an answer that told it.
        service_time: Option<Timestamp>,
    },
    /// GetRecords was answered, or was not.
    Page(Result<Page, ServiceFailure>),
}

/// The answer to a GetRecords.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    pub(crate) records: Vec<SourceRecord>,
    /// The iterator to go on with; none at the end of the shard. An empty one is of no use, but no end.
    pub(crate) next: Option<String>,
    pub(crate) behind: Option<Duration>,
    pub(crate) children: Vec<ShardInfo>,
    /// The service's time, where the answer told it.
    pub(crate) service_time: Option<Timestamp>,
}

impl Page {
    /// Whether the page reaches the tip. A page that does not say how far behind it is does if it is empty.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.behind.map_or(self.records.is_empty(), |behind| behind.is_zero())
    }
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Action {
    GetIterator {
        start: StartPosition,
        /// Whether it takes the place of an expired one; said once per expiry.
        replaces_expired: bool,
    },
    GetRecords {
        iterator: String,
    },
    WaitUntil(Instant),
    /// Hand this out. The next step is due when the caller wants more.
    Emit(SourceEvent),
    /// Give up.
    Fail(SourceError),
    /// Nothing any more: the end or an error was handed out before.
    Done,
}

/// Polls one shard.
#[derive(Debug)]
pub(crate) struct PollMachine {
    shard: ShardRef,
    max_attempts: Option<u32>,
    denied_attempts: u32,
    pace: Pace,
    trouble: Trouble,
    cursor: Cursor,
    iterator: Option<HeldIterator>,
    /// Where the iterator that is being asked for starts.
    asked: StartPosition,
    /// When the last call went out.
    called_at: Option<Instant>,
    expired: bool,
    /// Whether a page was ever read: permissions and names were right then.
    worked: bool,
    outbox: VecDeque<SourceEvent>,
    over: bool,
}

#[derive(Debug)]
struct HeldIterator {
    token: String,
    /// Not later than when it was made.
    born: Instant,
}

impl PollMachine {
    /// Polls `shard` from `start`; `seed` makes the jitter repeatable.
    pub(crate) fn new(shard: ShardRef, start: StartPosition, config: &PollConfig, seed: u64) -> Self {
        Self {
            shard,
            max_attempts: config.max_attempts,
            denied_attempts: config.denied_attempts,
            pace: Pace::new(config, seed.rotate_left(32)),
            trouble: Trouble::new(config, seed),
            asked: start.clone(),
            cursor: Cursor::new(start, config.latest_margin),
            iterator: None,
            called_at: None,
            expired: false,
            worked: false,
            outbox: VecDeque::new(),
            over: false,
        }
    }

    /// Takes what happened and says what to do.
    pub(crate) fn step(&mut self, now: Instant, event: Event) -> Action {
        let taken = match event {
            Event::Resume => Ok(()),
            Event::Iterator { answer, service_time } => self.take_iterator(now, answer, service_time),
            Event::Page(Ok(page)) => {
                self.take_page(now, page);
                Ok(())
            }
            Event::Page(Err(failure)) => self.take_failed_page(now, failure),
        };
        if let Err(error) = taken {
            self.over = true;
            self.outbox.clear();
            return Action::Fail(error);
        }
        if let Some(event) = self.outbox.pop_front() {
            return Action::Emit(event);
        }
        if self.over { Action::Done } else { self.next_call(now) }
    }

    /// Whether the next step makes a call or waits for one: there is nothing to hand out, and no end.
    pub(crate) fn is_idle(&self) -> bool {
        self.outbox.is_empty() && !self.over
    }

    /// When the next call may go out; `None`: at once.
    pub(crate) fn due(&self) -> Option<Instant> {
        // An iterator in hand waits for its turn; asking for one waits for failures only.
        let paced = self.iterator.is_some().then(|| self.pace.ready_at()).flatten();
        paced.max(self.trouble.retry_at())
    }

    fn next_call(&mut self, now: Instant) -> Action {
        if let Some(due) = self.due().filter(|due| *due > now) {
            return Action::WaitUntil(due);
        }
        self.called_at = Some(now);
        let live = |iterator: &&HeldIterator| now.saturating_duration_since(iterator.born) < ITERATOR_LIFE;
        if let Some(iterator) = self.iterator.as_ref().filter(live) {
            self.pace.sent(now);
            return Action::GetRecords { iterator: iterator.token.clone() };
        }
        // What grew too old while it waited would only cost a refused call.
        let replaces_expired = self.iterator.take().is_some() | std::mem::take(&mut self.expired);
        self.asked = self.cursor.opening(now);
        Action::GetIterator { start: self.asked.clone(), replaces_expired }
    }

    fn take_iterator(
        &mut self,
        now: Instant,
        answer: Result<String, ServiceFailure>,
        service_time: Option<Timestamp>,
    ) -> Result<(), SourceError> {
        self.cursor.tip.learn_time(now, service_time);
        let failure = match answer {
            Ok(token) => {
                if self.cursor.accepts(&self.asked) {
                    self.iterator = Some(HeldIterator { token, born: self.called_at.unwrap_or(now) });
                }
                return Ok(());
            }
            Err(failure) => failure,
        };
        self.cursor.tip.lost();
        if failure.kind() == FailureKind::Invalid {
            if failure.is_rejected_position() && self.cursor.fall_back(now, &self.asked) {
                tracing::warn!(
                    shard = %self.shard,
                    start = %self.asked,
                    error = %failure,
                    "the start position is refused; reading goes on at the oldest record"
                );
                return Ok(());
            }
            // A time that has not come yet is refused until it has.
            let is_future = match &self.asked {
                StartPosition::AtTimestamp { timestamp } => {
                    service_time.is_none_or(|time| *timestamp >= time)
                }
                _ => false,
            };
            if is_future {
                return self.count(now, GET_ITERATOR, failure);
            }
        }
        self.take_failure(now, GET_ITERATOR, failure)
    }

    fn take_page(&mut self, now: Instant, mut page: Page) {
        let asked_at = self.called_at.unwrap_or(now);
        let caught_up = page.is_caught_up();
        // What follows an empty iterator would never be read if that were taken for the end by itself.
        let ended = match page.next.as_deref() {
            None => true,
            Some(token) => token.is_empty() && !page.children.is_empty(),
        };
        self.worked = true;
        if let Some(time) = page.service_time {
            self.pace.heard(now, time);
        }
        self.pace.answered(now, caught_up);
        if self.trouble.end() {
            self.outbox.push_back(SourceEvent::Recovered);
        }
        let gap = self.cursor.read(asked_at, &mut page.records, caught_up);
        self.outbox.extend(gap.map(SourceEvent::Gap));
        if !page.records.is_empty() {
            self.outbox.push_back(SourceEvent::Records(SourceBatch::new(page.records, page.behind)));
        } else if !ended {
            self.outbox.push_back(SourceEvent::Progress { behind: page.behind, continuation: None });
        }
        let next = page.next.filter(|token| !token.is_empty());
        self.iterator = next.map(|token| HeldIterator { token, born: asked_at });
        if ended {
            self.over = true;
            self.outbox.extend(self.cursor.end().map(SourceEvent::Gap));
            self.outbox.push_back(SourceEvent::Ended { children: page.children });
        }
    }

    fn take_failed_page(&mut self, now: Instant, failure: ServiceFailure) -> Result<(), SourceError> {
        match failure.kind() {
            FailureKind::ExpiredIterator => {
                self.iterator = None;
                self.expired = true;
                self.trouble.expiries += 1;
                self.pace.reopen();
                // One is routine. Several without a page between them are a fault of something.
                if self.trouble.expiries > 1 {
                    self.retry(now, GET_RECORDS, &failure);
                }
                Ok(())
            }
            FailureKind::Invalid if self.trouble.bad_iterators == 0 => {
                self.iterator = None;
                self.trouble.bad_iterators += 1;
                self.count(now, GET_RECORDS, failure)
            }
            kind => {
                // A refusal that was to be expected is no failure to recover from.
                if kind == FailureKind::Throttled && self.pace.refused(now) {
                    self.trouble.retry_in_turn();
                    self.say_trouble(now, GET_RECORDS, &failure);
                    return Ok(());
                }
                self.take_failure(now, GET_RECORDS, failure)
            }
        }
    }

    /// A failure that means the same for both calls.
    fn take_failure(
        &mut self,
        now: Instant,
        action: &'static str,
        failure: ServiceFailure,
    ) -> Result<(), SourceError> {
        let shard = || self.shard.clone();
        match failure.kind() {
            FailureKind::NotFound => Err(SourceError::not_found(shard(), action, failure)),
            FailureKind::Invalid => Err(SourceError::refused(shard(), action, failure)),
            FailureKind::AccessDenied => {
                self.trouble.denials += 1;
                if !self.worked || self.trouble.denials >= self.denied_attempts {
                    return Err(SourceError::access_denied(shard(), action, failure));
                }
                self.retry(now, action, &failure);
                Ok(())
            }
            FailureKind::Throttled => {
                self.retry(now, action, &failure);
                Ok(())
            }
            _ => self.count(now, action, failure),
        }
    }

    /// A failure that counts towards giving up.
    fn count(
        &mut self,
        now: Instant,
        action: &'static str,
        failure: ServiceFailure,
    ) -> Result<(), SourceError> {
        self.trouble.failures = self.trouble.failures.saturating_add(1);
        let attempts = self.trouble.failures;
        if self.max_attempts.is_some_and(|most| attempts >= most) {
            return Err(SourceError::exhausted(self.shard.clone(), action, attempts, failure));
        }
        self.retry(now, action, &failure);
        Ok(())
    }

    fn retry(&mut self, now: Instant, action: &'static str, failure: &ServiceFailure) {
        self.trouble.retry(now);
        self.say_trouble(now, action, failure);
    }

    fn say_trouble(&mut self, now: Instant, action: &'static str, failure: &ServiceFailure) {
        tracing::debug!(shard = %self.shard, action, error = %failure, "a call failed and is tried again");
        if self.trouble.announce(now) {
            self.outbox.push_back(SourceEvent::Degraded { reason: format!("{action}: {failure}") });
        }
    }
}
