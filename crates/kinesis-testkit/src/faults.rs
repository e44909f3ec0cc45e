//! Scripted faults: which calls go wrong, and how.

use std::sync::Arc;
use std::time::Duration;

use crate::error::ServiceError;
use crate::model::Operation;
use crate::service::Service;
use crate::stream_faults::{StreamFault, StreamPoint};

/// What goes wrong with a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The call is refused: `ProvisionedThroughputExceededException` where a shard's quota is meant (reads, writes,
    /// iterators), `LimitExceededException` for every other operation.
    Throttle,
    /// The call is refused with any code, HTTP status and message.
    Error {
        /// The error's code, for example `KMSThrottlingException`.
        code: String,
        /// The HTTP status of the reply.
        status: u16,
        /// The error's message.
        message: String,
    },
    /// The call is refused with `AccessDeniedException`.
    AccessDenied,
    /// The call is refused with `InternalFailure` and status 500.
    InternalFailure,
    /// The call is taken and only carried out and answered after this time; never, if the caller has gone by then.
    Hang(Duration),
    /// The call is carried out at once and answered after this time.
    LateReply(Duration),
    /// The call is carried out, then the connection closes without a reply.
    DropReply,
    /// The connection closes at once; the call is not carried out.
    Disconnect,
    /// The call is refused with `ExpiredIteratorException`: the iterator in it is treated as too old.
    ExpireIterator,
    /// Of the entries of a PutRecords call, every `every`-th (counted from one) is refused with `code`; the others
    /// are stored.
    PartialFailure {
        /// One refuses every entry, two the second, the fourth and so on. Zero counts as one.
        every: usize,
        /// The entry's error code, for example `InternalFailure`.
        code: String,
    },
    /// The connection takes no further request after this call: `GOAWAY` over HTTP/2, `connection: close` over
    /// HTTP/1.1. The call itself is answered. Without effect in process, where there is no connection.
    RetireConnection,
    /// The request is refused unread: `RST_STREAM` with `REFUSED_STREAM` over HTTP/2, elsewhere the connection
    /// closes. The call is not carried out.
    RefuseStream,
    /// Something goes wrong in the event stream of a SubscribeToShard call that succeeds. Several of them, through
    /// [`All`](Self::All), happen each at its own point.
    InStream {
        /// Where.
        at: StreamPoint,
        /// What.
        fault: StreamFault,
    },
    /// A GetRecords call returns no records, the position that it was asked for as the next one, and this
    /// `MillisBehindLatest`.
    EmptyPage {
        /// The lag that it tells, in milliseconds.
        millis_behind: u64,
    },
    /// The `FailedRecordCount` of a PutRecords reply says this, whatever the list of results says.
    FailedRecordCount(i64),
    /// Several of them at once.
    All(Vec<Self>),
}

impl Fault {
    /// Refuses the call with this code and HTTP status 400.
    pub fn error(code: impl Into<String>) -> Self {
        let code = code.into();
        let message = format!("{code} by script.");
        Self::Error { code, status: 400, message }
    }

    /// Something in the event stream of a SubscribeToShard call.
    pub fn in_stream(at: StreamPoint, fault: StreamFault) -> Self {
        Self::InStream { at, fault }
    }

    /// Refuses every `every`-th entry of a PutRecords call with `code`.
    pub fn partial_failure(every: usize, code: impl Into<String>) -> Self {
        Self::PartialFailure { every, code: code.into() }
    }
}

/// Handle to the script of faults, from [`TestKinesis::faults`](crate::TestKinesis::faults).
///
/// Rules are asked in the order in which they were added; the first one that hits a call applies to it, alone.
#[derive(Debug, Clone)]
pub struct Faults(pub(crate) Arc<Service>);

impl Faults {
    /// Applies `fault` to the next `n` calls of `operation`, after those that were scripted before.
    pub fn next(&self, operation: Operation, n: u64, fault: Fault) {
        self.on(operation).times(n).inject(fault);
    }

    /// Starts a rule for calls of `operation`; it is added by [`FaultRule::inject`].
    pub fn on(&self, operation: Operation) -> FaultRule {
        self.rule(Some(operation))
    }

    /// Starts a rule for calls of every operation.
    pub fn on_any(&self) -> FaultRule {
        self.rule(None)
    }

    fn rule(&self, operation: Option<Operation>) -> FaultRule {
        FaultRule {
            service: Arc::clone(&self.0),
            rule: Rule {
                operation,
                stream: None,
                chance: None,
                until: None,
                shard: None,
                skip: 0,
                every: 1,
                left: Some(1),
                fault: None,
            },
        }
    }

    /// Forgets every rule.
    pub fn clear(&self) {
        self.0.lock().plan.rules.clear();
    }

    /// How many rules still wait for a call; rules without an end count too.
    pub fn pending(&self) -> usize {
        self.0.lock().plan.rules.len()
    }
}

/// A rule being written: which calls of an operation a fault hits. By default the next one, whatever its stream.
#[derive(Debug)]
#[must_use = "a rule applies only once it is injected"]
pub struct FaultRule {
    service: Arc<Service>,
    rule: Rule,
}

impl FaultRule {
    /// Only calls for this stream.
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.rule.stream = Some(name.into());
        self
    }

    /// Only calls for this shard; of the operations that name one.
    pub fn shard(mut self, id: impl Into<String>) -> Self {
        self.rule.shard = Some(id.into());
        self
    }

    /// Leaves the first `n` fitting calls alone.
    pub fn skip(mut self, n: u64) -> Self {
        self.rule.skip = n;
        self
    }

    /// Hits only every `n`-th fitting call. Zero counts as one.
    pub fn every(mut self, n: u64) -> Self {
        self.rule.every = n.max(1);
        self
    }

    /// Of the calls that it would hit, hits only this part, from 0 to 1, as the service's seed decides.
    pub fn chance(mut self, part: f64) -> Self {
        self.rule.chance = Some(part);
        self
    }

    /// Hits calls only for this time of the service's clock, from now on.
    pub fn during(mut self, time: Duration) -> Self {
        self.rule.until = Some(self.service.clock.elapsed().saturating_add(time));
        self
    }

    /// Hits `n` calls, then no more.
    pub fn times(mut self, n: u64) -> Self {
        self.rule.left = Some(n);
        self
    }

    /// Hits calls until the script is cleared.
    pub fn always(mut self) -> Self {
        self.rule.left = None;
        self
    }

    /// Adds the rule to the script.
    pub fn inject(mut self, fault: Fault) {
        if self.rule.left != Some(0) {
            self.rule.skip = self.rule.skip.saturating_add(self.rule.every - 1);
            self.rule.fault = Some(fault);
            self.service.lock().plan.rules.push(self.rule);
        }
    }
}

/// The script.
#[derive(Debug)]
pub(crate) struct Plan {
    rules: Vec<Rule>,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Rule {
    /// None means every operation.
    operation: Option<Operation>,
    stream: Option<String>,
    shard: Option<String>,
    /// Fitting calls still to be left alone.
    skip: u64,
    every: u64,
    /// Of the calls that would be hit, this part is.
    chance: Option<f64>,
    /// When it ends, as the time since the service's clock was made.
    until: Option<Duration>,
    /// Calls still to be hit; none means without end.
    left: Option<u64>,
    fault: Option<Fault>,
}

impl Rule {
    fn fits(&self, operation: Operation, stream: Option<&str>, shard: Option<&str>) -> bool {
        self.operation.is_none_or(|wanted| wanted == operation)
            && self.stream.as_deref().is_none_or(|wanted| stream == Some(wanted))
            && self.shard.as_deref().is_none_or(|wanted| shard == Some(wanted))
    }

    /// Counts a fitting call; whether it is hit.
    fn hits(&mut self, random: &mut fastrand::Rng) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        // `every - 1` calls go by before the next hit.
        self.skip = self.every - 1;
        self.chance.is_none_or(|chance| random.f64() < chance)
    }
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rules: Vec::new(), random: fastrand::Rng::with_seed(seed) }
    }

    /// What happens to a call.
    pub(crate) fn effect(
        &mut self,
        now: Duration,
        operation: Operation,
        stream: Option<&str>,
        shard: Option<&str>,
    ) -> Effect {
        let mut effect = Effect::default();
        self.rules.retain(|rule| rule.until.is_none_or(|until| now < until));
        let random = &mut self.random;
        let hit =
            self.rules.iter_mut().position(|rule| rule.fits(operation, stream, shard) && rule.hits(random));
        if let Some(place) = hit {
            let rule = &mut self.rules[place];
            if let Some(fault) = &rule.fault {
                effect.add(operation, fault);
            }
            rule.left = rule.left.map(|left| left.saturating_sub(1));
            if rule.left == Some(0) {
                self.rules.remove(place);
            }
        }
        effect
    }
}

/// What the script does to one call.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// Wait before the call is carried out.
    pub(crate) before: Duration,
    /// Wait before the reply.
    pub(crate) after: Duration,
    pub(crate) refuse: Option<ServiceError>,
    pub(crate) disconnect: bool,
    pub(crate) drop_reply: bool,
    pub(crate) retire: bool,
    pub(crate) refuse_stream: bool,
    pub(crate) stream: Vec<(StreamPoint, StreamFault)>,
    pub(crate) records: RecordFaults,
}

impl Effect {
    fn add(&mut self, operation: Operation, fault: &Fault) {
        match fault {
            Fault::Throttle if operation.is_data_plane() => {
                self.refuse = Some(ServiceError::throughput_exceeded("Rate exceeded by script."));
            }
            Fault::Throttle => self.refuse = Some(ServiceError::limit_exceeded("Rate exceeded by script.")),
            Fault::Error { code, status, message } => {
                self.refuse = Some(ServiceError::new(code.clone(), *status, message.clone()));
            }
            Fault::AccessDenied => {
                self.refuse = Some(ServiceError::access_denied(format!(
                    "The caller is not authorized to perform: kinesis:{operation}"
                )));
            }
            Fault::InternalFailure => self.refuse = Some(ServiceError::internal_failure()),
            Fault::Hang(time) => self.before = self.before.saturating_add(*time),
            Fault::LateReply(time) => self.after = self.after.saturating_add(*time),
            Fault::DropReply => self.drop_reply = true,
            Fault::RetireConnection => self.retire = true,
            Fault::RefuseStream => self.refuse_stream = true,
            Fault::InStream { at, fault } => self.stream.push((*at, fault.clone())),
            Fault::Disconnect => self.disconnect = true,
            Fault::ExpireIterator => {
                self.refuse = Some(ServiceError::expired_iterator("Iterator expired by script."));
            }
            Fault::PartialFailure { every, code } => self.records.every.push(((*every).max(1), code.clone())),
            Fault::EmptyPage { millis_behind } => self.records.empty_page = Some(*millis_behind),
            Fault::FailedRecordCount(count) => self.records.failed_count = Some(*count),
            Fault::All(faults) => faults.iter().for_each(|fault| self.add(operation, fault)),
        }
    }
}

/// What the script does to the records of one call.
#[derive(Debug, Default)]
pub(crate) struct RecordFaults {
    every: Vec<(usize, String)>,
    failed_count: Option<i64>,
    empty_page: Option<u64>,
}

impl RecordFaults {
    /// The error of the entry at `index`, counted from zero.
    pub(crate) fn refuse(&self, index: usize) -> Option<ServiceError> {
        let (_, code) = self.every.iter().find(|(every, _)| (index + 1).is_multiple_of(*every))?;
        Some(ServiceError::new(code.clone(), 400, "Refused by script."))
    }

    /// The lag that a page without records tells.
    pub(crate) fn empty_page(&self) -> Option<u64> {
        self.empty_page
    }

    pub(crate) fn failed_count(&self) -> Option<i64> {
        self.failed_count
    }
}
