//! What to do after a failed attempt. Pure: the delay is returned, not waited for.

use std::time::Duration;

use kinesis_core::backoff::Backoff;
use kinesis_core::processing::FailureClass;

use crate::{ConsumerConfig, FailurePolicy};

/// The attempts at one batch or record.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: FailurePolicy,
    report_after: u32,
    backoff: Backoff,
    failures: u32,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Offer the records again.
    Retry {
        after: Duration,
        /// Whether to count and log the failure now.
        report: bool,
    },
    /// Give the record to the dead-letter service and go on.
    DeadLetter,
    /// Give up.
    Exhausted,
}

impl Attempts {
    pub(crate) fn new(config: &ConsumerConfig, seed: u64) -> Self {
        Self {
            policy: config.failure_policy,
            report_after: config.report_after,
            backoff: Backoff::new(config.retry_backoff(), seed),
            failures: 0,
        }
    }

    /// How often the handler failed so far.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// A growing delay, where there is no other choice than to try again.
    pub(crate) fn delay(&mut self) -> Duration {
        self.backoff.next_delay()
    }

    /// Takes note of a failure.
    pub(crate) fn failed(&mut self, class: FailureClass) -> Verdict {
        self.failures += 1;
        let permanent = class == FailureClass::Permanent;
        match self.policy {
            FailurePolicy::SkipAfter { attempts } if permanent || self.failures >= attempts => {
                Verdict::DeadLetter
            }
            _ if permanent => Verdict::Exhausted,
            FailurePolicy::StopShard { attempts } if self.failures >= attempts => Verdict::Exhausted,
            _ => Verdict::Retry {
                after: self.backoff.next_delay(),
                report: self.failures.is_multiple_of(self.report_after),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(policy: FailurePolicy) -> Attempts {
        let config = ConsumerConfig { failure_policy: policy, ..ConsumerConfig::default() };
        Attempts::new(&config, 1)
    }

    /// S-189: the default retries for ever and reports every third failure.
    #[test]
    fn retrying_for_ever_reports_once_per_three_failures() {
        let mut attempts = attempts(FailurePolicy::RetryForever);
        let reports: Vec<bool> = (0..9)
            .map(|_| match attempts.failed(FailureClass::Transient) {
                Verdict::Retry { report, .. } => report,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(reports, [false, false, true, false, false, true, false, false, true]);
    }

    #[test]
    fn stopping_and_skipping_use_up_their_attempts() {
        let mut stop = attempts(FailurePolicy::StopShard { attempts: 2 });
        assert!(matches!(stop.failed(FailureClass::Transient), Verdict::Retry { .. }));
        assert_eq!(stop.failed(FailureClass::Transient), Verdict::Exhausted);
        let mut skip = attempts(FailurePolicy::SkipAfter { attempts: 2 });
        assert!(matches!(skip.failed(FailureClass::Transient), Verdict::Retry { .. }));
        assert_eq!(skip.failed(FailureClass::Transient), Verdict::DeadLetter);
        assert_eq!(skip.failures(), 2);
    }

    #[test]
    fn a_permanent_failure_is_never_retried() {
        for (policy, verdict) in [
            (FailurePolicy::RetryForever, Verdict::Exhausted),
            (FailurePolicy::StopShard { attempts: 9 }, Verdict::Exhausted),
            (FailurePolicy::SkipAfter { attempts: 9 }, Verdict::DeadLetter),
        ] {
            assert_eq!(attempts(policy).failed(FailureClass::Permanent), verdict);
        }
    }
}
