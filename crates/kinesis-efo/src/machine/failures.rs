//! What the machine makes of failures.

use std::fmt;
use std::time::{Duration, Instant};

use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::{SourceError, SourceEvent};
use kinesis_core::{StartPosition, Timestamp};

use super::delays::jittered;
use super::{Action, EfoMachine, Phase};
use crate::limits::{SUBSCRIBE_IN_USE, SUBSCRIBE_INTERVAL};
use crate::registration::RegistrationError;

pub(crate) const SUBSCRIBE: &str = "SubscribeToShard";

impl EfoMachine {
    /// The limit of what is waited for may be over.
    pub(super) fn check_watch(&mut self, now: Instant) {
        let (Phase::Subscribing(watch) | Phase::Open { watch, .. }) = &mut self.phase else { return };
        if now < watch.due() {
            return;
        }
        if now > watch.due() + self.config.stall_tolerance {
            // This process did not run: what came in the meantime could not be read.
            watch.since = now;
            return;
        }
        let millis = watch.limit.as_millis();
        self.actions.push(Action::Unsubscribe);
        if matches!(self.phase, Phase::Open { .. }) {
            let text = format!("nothing came for {millis} ms");
            self.closed(now, Some(ServiceFailure::local(FailureKind::Timeout, text)));
        } else {
            // It may have arrived, and count, even now.
            self.last.called = Some(now);
            self.cursor.tip.lost();
            let text = format!("no answer within {millis} ms");
            self.failed(now, &ServiceFailure::local(FailureKind::Timeout, text));
        }
    }

    /// The consumer was looked for.
    pub(super) fn consumer(&mut self, now: Instant, answer: Result<(), RegistrationError>) {
        let error = match answer {
            Ok(()) => {
                self.phase = Phase::Resting(self.allowed(now));
                return;
            }
            Err(error) => error,
        };
        let action = error.action();
        let denied = matches!(error, RegistrationError::AccessDenied { .. });
        self.trouble.denials += u32::from(denied);
        let enough = denied && self.trouble.denials >= self.config.denied_attempts;
        if !self.worked || enough || !error.is_retryable() {
            return self.fail(error.into_source_error(self.shard.clone()));
        }
        self.look = Some(true);
        self.retry(now, action, &error);
    }

    /// SubscribeToShard was refused.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        failure: &ServiceFailure,
        service_time: Option<Timestamp>,
    ) {
        match failure.kind() {
            FailureKind::InUse => self.contended(now, failure),
            FailureKind::Invalid => {
                if failure.is_rejected_position() && self.cursor.fall_back(now, &self.asked) {
                    tracing::warn!(
                        shard = %self.shard,
                        start = %self.asked,
                        error = %failure,
                        "the start position is refused; reading goes on at the oldest record"
                    );
                    self.phase = Phase::Resting(self.allowed(now));
                } else if is_to_come(&self.asked, service_time) {
                    self.count(now, failure);
                } else {
                    self.failed(now, failure);
                }
            }
            _ => self.failed(now, failure),
        }
    }

    /// Another reader of the consumer has the shard, as in a hand-over; or this one had it a moment ago.
    fn contended(&mut self, now: Instant, failure: &ServiceFailure) {
        tracing::debug!(shard = %self.shard, error = %failure, "the shard is in use; subscribing is tried again");
        self.failed = true;
        if self.trouble.announce(now, true) {
            self.say_degraded(SUBSCRIBE, failure);
        }
        // The service's limit without growth: whoever has the shard is about to let it go.
        let mut due = now + jittered(SUBSCRIBE_INTERVAL, &mut self.random);
        let own = self.last.accepted.map(|accepted| accepted + SUBSCRIBE_IN_USE);
        if let Some(own) = own.filter(|own| *own > now) {
            due = due.max(own);
        }
        self.phase = Phase::Resting(due);
    }

    /// The subscription ended.
    pub(super) fn closed(&mut self, now: Instant, failure: Option<ServiceFailure>) {
        let Phase::Open { heard, .. } = self.phase else { return };
        self.cursor.tip.lost();
        let Some(failure) = failure else {
            if self.said_last {
                self.end(Vec::new());
            } else if heard {
                self.phase = Phase::Resting(self.allowed(now));
            } else {
                let text = "the subscription ended before its first event";
                self.count(now, &ServiceFailure::local(FailureKind::Other, text));
            }
            return;
        };
        self.actions.push(Action::CountStreamError);
        if failure.kind() == FailureKind::InUse {
            self.taken_over(now, &failure);
        } else {
            self.failed(now, &failure);
        }
    }

    /// Another reader of the consumer subscribed to the shard: most likely its lease has gone there.
    fn taken_over(&mut self, now: Instant, failure: &ServiceFailure) {
        tracing::debug!(shard = %self.shard, error = %failure, "another reader took the subscription over");
        self.failed = true;
        // The other one succeeded just now, so nothing sooner can.
        let delay = self.trouble.taken_over(self.lived(now)).max(SUBSCRIBE_IN_USE);
        if self.trouble.announce_take_overs() {
            self.say_degraded(SUBSCRIBE, failure);
        }
        self.rest(now, delay);
    }

    /// How long the last subscription that was accepted has lived.
    pub(super) fn lived(&self, now: Instant) -> Duration {
        self.last.accepted.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// SubscribeToShard or its subscription failed.
    fn failed(&mut self, now: Instant, failure: &ServiceFailure) {
        let shard = || self.shard.clone();
        match failure.kind() {
            FailureKind::NotFound => {
                self.trouble.missing += 1;
                // It may be the consumer that is gone; the next call says if it is the shard or the stream.
                if self.trouble.missing > 1 {
                    return self.fail(SourceError::not_found(shard(), SUBSCRIBE, failure.clone()));
                }
                self.look = Some(true);
                self.retry(now, SUBSCRIBE, failure);
            }
            FailureKind::Invalid => self.fail(SourceError::refused(shard(), SUBSCRIBE, failure.clone())),
            FailureKind::AccessDenied => {
                self.trouble.denials += 1;
                if !self.worked || self.trouble.denials >= self.config.denied_attempts {
                    return self.fail(SourceError::access_denied(shard(), SUBSCRIBE, failure.clone()));
                }
                self.retry(now, SUBSCRIBE, failure);
            }
            FailureKind::Throttled => self.retry(now, SUBSCRIBE, failure),
            _ => self.count(now, failure),
        }
    }

    /// A failure that counts towards giving up.
    fn count(&mut self, now: Instant, failure: &ServiceFailure) {
        self.trouble.failures = self.trouble.failures.saturating_add(1);
        let attempts = self.trouble.failures;
        if self.config.max_attempts.is_some_and(|most| attempts >= most) {
            let shard = self.shard.clone();
            return self.fail(SourceError::exhausted(shard, SUBSCRIBE, attempts, failure.clone()));
        }
        self.retry(now, SUBSCRIBE, failure);
    }

    fn retry(&mut self, now: Instant, action: &'static str, failure: &dyn fmt::Display) {
        tracing::debug!(shard = %self.shard, action, error = %failure, "subscribing failed and is tried again");
        self.failed = true;
        if self.trouble.announce(now, false) {
            self.say_degraded(action, failure);
        }
        let delay = self.trouble.failed();
        self.rest(now, delay);
    }

    fn rest(&mut self, now: Instant, delay: Duration) {
        let due = now + jittered(delay, &mut self.random);
        self.phase = Phase::Resting(due.max(self.allowed(now)));
    }

    fn say_degraded(&mut self, action: &'static str, failure: &dyn fmt::Display) {
        let reason = format!("{action}: {failure}");
        self.actions.push(Action::Emit(SourceEvent::Degraded { reason }));
    }

    fn fail(&mut self, error: SourceError) {
        self.phase = Phase::Over;
        self.actions.push(Action::Fail(error));
    }
}

/// Whether the start is a time that has not come yet by the service's clock: it is refused until it has.
fn is_to_come(start: &StartPosition, service_time: Option<Timestamp>) -> bool {
    let StartPosition::AtTimestamp { timestamp } = start else { return false };
    service_time.is_none_or(|time| *timestamp >= time)
}
