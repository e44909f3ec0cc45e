//! Faults from a file: rules as JSON.

use std::time::Duration;

use serde::Deserialize;

use crate::faults::{Fault, Faults};
use crate::model::Operation;
use crate::stream_faults::{StreamFault, StreamPoint};

/// A text that holds no rules.
#[derive(Debug, thiserror::Error)]
#[error("the rules cannot be read: {reason}")]
pub struct RulesError {
    reason: String,
}

impl RulesError {
    fn new(reason: &impl ToString) -> Self {
        Self { reason: reason.to_string() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    /// Absent means every operation.
    operation: Option<String>,
    stream: Option<String>,
    shard: Option<String>,
    #[serde(default)]
    skip: u64,
    every: Option<u64>,
    chance: Option<f64>,
    /// Absent means that the rule has no end.
    times: Option<u64>,
    /// How long it holds after the start.
    during_ms: Option<u64>,
    fault: FaultEntry,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FaultEntry {
    Throttle,
    Error {
        code: String,
        #[serde(default = "bad_request")]
        status: u16,
        message: Option<String>,
    },
    AccessDenied,
    InternalFailure,
    HangMs(u64),
    Hang,
    LateReplyMs(u64),
    DropReply,
    Disconnect,
    ExpireIterator,
    RetireConnection,
    RefuseStream,
    PartialFailure {
        every: usize,
        code: String,
    },
    EmptyPage {
        millis_behind: u64,
    },
    FailedRecordCount(i64),
    InStream {
        #[serde(default)]
        at: PointEntry,
        #[serde(flatten)]
        fault: StreamFaultEntry,
    },
    All(Vec<Self>),
}

fn bad_request() -> u16 {
    400
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PointEntry {
    #[default]
    BeforeFirstFrame,
    AfterEvents(u64),
    AfterMs(u64),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
enum StreamFaultEntry {
    Silence { ms: Option<u64> },
    End,
    Cut,
    CutInside,
    EndInside,
    CorruptChecksum,
    Exception { code: String, message: Option<String> },
    Error { code: String, message: Option<String> },
    UnknownEvent { kind: String },
    OmitInitialResponse,
    Pieces { bytes: usize },
}

impl From<FaultEntry> for Fault {
    fn from(entry: FaultEntry) -> Self {
        match entry {
            FaultEntry::Throttle => Self::Throttle,
            FaultEntry::Error { code, status, message } => {
                let message = message.unwrap_or_else(|| format!("{code} by script."));
                Self::Error { code, status, message }
            }
            FaultEntry::AccessDenied => Self::AccessDenied,
            FaultEntry::InternalFailure => Self::InternalFailure,
            FaultEntry::HangMs(ms) => Self::Hang(Duration::from_millis(ms)),
            FaultEntry::Hang => Self::Hang(Duration::MAX),
            FaultEntry::LateReplyMs(ms) => Self::LateReply(Duration::from_millis(ms)),
            FaultEntry::DropReply => Self::DropReply,
            FaultEntry::Disconnect => Self::Disconnect,
            FaultEntry::ExpireIterator => Self::ExpireIterator,
            FaultEntry::RetireConnection => Self::RetireConnection,
            FaultEntry::RefuseStream => Self::RefuseStream,
            FaultEntry::PartialFailure { every, code } => Self::PartialFailure { every, code },
            FaultEntry::EmptyPage { millis_behind } => Self::EmptyPage { millis_behind },
            FaultEntry::FailedRecordCount(count) => Self::FailedRecordCount(count),
            FaultEntry::InStream { at, fault } => Self::InStream { at: at.into(), fault: fault.into() },
            FaultEntry::All(entries) => Self::All(entries.into_iter().map(Self::from).collect()),
        }
    }
}

impl From<PointEntry> for StreamPoint {
    fn from(entry: PointEntry) -> Self {
        match entry {
            PointEntry::BeforeFirstFrame => Self::BeforeFirstFrame,
            PointEntry::AfterEvents(events) => Self::AfterEvents(events),
            PointEntry::AfterMs(ms) => Self::AfterTime(Duration::from_millis(ms)),
        }
    }
}

impl From<StreamFaultEntry> for StreamFault {
    fn from(entry: StreamFaultEntry) -> Self {
        let text =
            |code: &str, message: Option<String>| message.unwrap_or_else(|| format!("{code} by script."));
        match entry {
            StreamFaultEntry::Silence { ms } => {
                Self::Silence(ms.map_or(Duration::MAX, Duration::from_millis))
            }
            StreamFaultEntry::End => Self::End,
            StreamFaultEntry::Cut => Self::Cut,
            StreamFaultEntry::CutInside => Self::CutInside,
            StreamFaultEntry::EndInside => Self::EndInside,
            StreamFaultEntry::CorruptChecksum => Self::CorruptChecksum,
            StreamFaultEntry::Exception { code, message } => {
                Self::Exception { message: text(&code, message), code }
            }
            StreamFaultEntry::Error { code, message } => Self::Error { message: text(&code, message), code },
            StreamFaultEntry::UnknownEvent { kind } => Self::UnknownEvent { kind },
            StreamFaultEntry::OmitInitialResponse => Self::OmitInitialResponse,
            StreamFaultEntry::Pieces { bytes } => Self::Pieces(bytes),
        }
    }
}

impl Faults {
    /// Adds the rules of a JSON text, in their order, and returns how many there are. None is added if one is wrong.
    ///
    /// The text is a list of objects. Each has a `fault` and, as far as the rule is not for every call, `operation`,
    /// `stream`, `shard`, `skip`, `every`, `chance`, `times` and `during_ms`, as the methods of [`FaultRule`](crate::FaultRule).
    /// A rule without `times` has no end. Faults are named as the variants of [`Fault`] in kebab-case; times are in
    /// milliseconds.
    ///
    /// ```
    /// # use kinesis_testkit::TestKinesis;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = r#"[
    ///     {"operation": "PutRecords", "every": 3, "fault": "throttle"},
    ///     {"operation": "GetRecords", "chance": 0.1, "fault": {"hang-ms": 2000}},
    ///     {"operation": "ListShards", "times": 2, "fault": {"error": {"code": "InternalFailure", "status": 500}}},
    ///     {"operation": "SubscribeToShard", "times": 1,
    ///      "fault": {"in-stream": {"at": {"after-events": 3}, "do": "exception", "code": "InternalFailureException"}}},
    ///     {"operation": "SubscribeToShard",
    ///      "fault": {"all": [{"in-stream": {"do": "pieces", "bytes": 7}},
    ///                        {"in-stream": {"at": {"after-ms": 1000}, "do": "silence"}}]}}
    /// ]"#;
    /// assert_eq!(TestKinesis::new().faults().add_json(rules)?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// For a text that is not such a list, with the place of the mistake.
    pub fn add_json(&self, text: &str) -> Result<usize, RulesError> {
        let entries: Vec<RuleEntry> = serde_json::from_str(text).map_err(|error| RulesError::new(&error))?;
        let mut rules = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut rule = match &entry.operation {
                Some(name) => self.on(name.parse::<Operation>().map_err(|error| RulesError::new(&error))?),
                None => self.on_any(),
            };
            if let Some(chance) = entry.chance {
                if !(0.0..=1.0).contains(&chance) {
                    return Err(RulesError::new(&format!("a chance of {chance} is not between 0 and 1")));
                }
                rule = rule.chance(chance);
            }
            if let Some(stream) = entry.stream {
                rule = rule.stream(stream);
            }
            if let Some(shard) = entry.shard {
                rule = rule.shard(shard);
            }
            rule = rule.skip(entry.skip).every(entry.every.unwrap_or(1));
            if let Some(ms) = entry.during_ms {
                rule = rule.during(Duration::from_millis(ms));
            }
            rule = match entry.times {
                Some(times) => rule.times(times),
                None => rule.always(),
            };
            rules.push((rule, Fault::from(entry.fault)));
        }
        let count = rules.len();
        for (rule, fault) in rules {
            rule.inject(fault);
        }
        Ok(count)
    }
}
