//! What the key of a row looks like.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use kinesis_core::lease::{LeaseKey, ScanRequest, StoreError};
use kinesis_core::{ApplicationName, ConfigError, ShardId, StreamRef};

/// How the KCL names a stream in a table of several: `account:stream:epoch`, with the stream's creation time in seconds
/// since 1970 as its epoch, so that a stream that was deleted and made again is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamIdentifier {
    account: String,
    name: String,
    epoch: u64,
}

impl StreamIdentifier {
    /// The identifier of a stream.
    ///
    /// # Errors
    /// [`ConfigError`] when the account is not a number, the name has a colon or is empty, or the epoch is 0.
    pub fn new(account: impl Into<String>, name: impl Into<String>, epoch: u64) -> Result<Self, ConfigError> {
        let (account, name) = (account.into(), name.into());
        let problem = if account.is_empty() || !account.bytes().all(|byte| byte.is_ascii_digit()) {
            "the account must be a number"
        } else if name.is_empty() || name.contains(':') {
            "the stream name must not be empty or have a colon"
        } else if epoch == 0 {
            "the creation time must not be 0"
        } else {
            return Ok(Self { account, name, epoch });
        };
        Err(ConfigError::new("stream_identifier", problem))
    }

    /// The account number.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The stream's bare name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When the stream was made, in seconds since 1970.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl fmt::Display for StreamIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.account, self.name, self.epoch)
    }
}

impl FromStr for StreamIdentifier {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let refuse =
            || ConfigError::new("stream_identifier", "must be like `123456789012:orders:1700000000`");
        let mut parts = text.split(':');
        let (Some(account), Some(name), Some(epoch), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(refuse());
        };
        Self::new(account, name, epoch.parse().map_err(|_| refuse())?)
    }
}

/// What the key of a row (the attribute `leaseKey`) looks like. Everything else is the same in all layouts.
///
/// A table has one layout for its whole life: a store that is given another one refuses the table at
/// [`setup`](kinesis_core::lease::LeaseStore::setup), so that the positions in it are not passed over in silence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TableLayout {
    /// `application|stream|shard`: one table serves many applications and streams. For tables of this library alone.
    #[default]
    Native,
    /// The shard id alone, as the KCL has it for one stream: the table is one application's, and the stream must be
    /// this one.
    KclSingleStream {
        /// The stream.
        stream: StreamRef,
    },
    /// `account:stream:epoch:shard`, as the KCL has it for several streams of one application. Rows of streams that are
    /// not listed here are left alone.
    KclMultiStream {
        /// The streams and how the KCL names each.
        streams: BTreeMap<StreamRef, StreamIdentifier>,
    },
}

impl TableLayout {
    /// The KCL's layout for one stream.
    #[must_use]
    pub fn kcl_single_stream(stream: StreamRef) -> Self {
        Self::KclSingleStream { stream }
    }

    /// The KCL's layout for several streams.
    #[must_use]
    pub fn kcl_multi_stream(streams: impl IntoIterator<Item = (StreamRef, StreamIdentifier)>) -> Self {
        Self::KclMultiStream { streams: streams.into_iter().collect() }
    }

    /// Whether workers of the KCL may write to the table.
    pub(super) fn is_shared(&self) -> bool {
        !matches!(self, Self::Native)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Native => NATIVE,
            Self::KclSingleStream { .. } => SINGLE_STREAM,
            Self::KclMultiStream { .. } => MULTI_STREAM,
        }
    }
}

const NATIVE: &str = "native";
const SINGLE_STREAM: &str = "the KCL's single-stream";
const MULTI_STREAM: &str = "the KCL's multi-stream";

/// Divides the parts of a native key.
const DIVIDER: char = '|';

/// Which rows a scan returns, as far as DynamoDB can tell them apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filter {
    All,
    KeyPrefix(String),
    StreamName(String),
}

/// The keys of one application's rows in one table.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    pub(super) application: ApplicationName,
    pub(super) layout: TableLayout,
}

impl Keys {
    /// The attribute `leaseKey` of a row.
    pub(super) fn render(&self, key: &LeaseKey) -> Result<String, StoreError> {
        match &self.layout {
            TableLayout::Native => {
                Ok(format!("{}{}", native_prefix(key.application(), Some(key.stream())), key.shard()))
            }
            TableLayout::KclSingleStream { stream } => {
                self.own_application(key.application())?;
                same_stream(stream, key.stream())?;
                Ok(key.shard().to_string())
            }
            TableLayout::KclMultiStream { .. } => {
                self.own_application(key.application())?;
                Ok(format!("{}:{}", self.identifier(key.stream())?, key.shard()))
            }
        }
    }

    /// The key of the item with the hints about a stream, in a native table. No row of a lease begins with the divider.
    pub(super) fn hint(&self, application: &ApplicationName, stream: &StreamRef) -> String {
        format!("{DIVIDER}{}", native_prefix(application, Some(stream)))
    }

    /// What the KCL calls the stream of a row in a table of several.
    pub(super) fn identifier(&self, stream: &StreamRef) -> Result<&StreamIdentifier, StoreError> {
        let TableLayout::KclMultiStream { streams } = &self.layout else {
            return Err(StoreError::misconfigured("only the KCL's multi-stream layout names streams", None));
        };
        streams.get(stream).ok_or_else(|| {
            let listed: Vec<&str> = streams.keys().map(StreamRef::as_str).collect();
            let problem = format!(
                "the lease table's layout does not list the stream {stream}, only {}",
                listed.join(", ")
            );
            StoreError::misconfigured(problem, None)
        })
    }

    /// Which rows to ask DynamoDB for.
    pub(super) fn filter(&self, request: &ScanRequest) -> Result<Filter, StoreError> {
        match (&self.layout, &request.stream) {
            (TableLayout::Native, stream) => {
                Ok(Filter::KeyPrefix(native_prefix(&request.application, stream.as_ref())))
            }
            (TableLayout::KclSingleStream { stream }, wanted) => {
                self.own_application(&request.application)?;
                wanted.as_ref().map_or(Ok(()), |wanted| same_stream(stream, wanted))?;
                Ok(Filter::All)
            }
            (TableLayout::KclMultiStream { .. }, wanted) => {
                self.own_application(&request.application)?;
                Ok(match wanted {
                    Some(stream) => Filter::StreamName(self.identifier(stream)?.to_string()),
                    None => Filter::All,
                })
            }
        }
    }

    /// The key of a row that a scan has found; `None` for one of another application, stream or kind.
    pub(super) fn parse(&self, text: &str, request: &ScanRequest) -> Option<LeaseKey> {
        let (stream, shard) = match &self.layout {
            TableLayout::Native => {
                let rest = text.strip_prefix(&native_prefix(&request.application, None))?;
                let (stream, shard) = rest.split_once(DIVIDER)?;
                (StreamRef::new(unescaped(stream)).ok()?, shard)
            }
            TableLayout::KclSingleStream { stream } => {
                (request.stream.clone().unwrap_or_else(|| stream.clone()), text)
            }
            TableLayout::KclMultiStream { streams } => {
                let (identifier, shard) = multi_parts(text)?;
                let listed = |(_, known): &(&StreamRef, &StreamIdentifier)| known.to_string() == identifier;
                (streams.iter().find(listed)?.0.clone(), shard)
            }
        };
        if request.stream.as_ref().is_some_and(|wanted| *wanted != stream) {
            return None;
        }
        Some(LeaseKey::new(request.application.clone(), stream, ShardId::new(shard).ok()?))
    }

    /// Says so when the key of a lease that is in the table belongs to another layout than this one.
    pub(super) fn check_layout(&self, text: &str) -> Result<(), StoreError> {
        let found = if text.split(DIVIDER).count() == 3 {
            NATIVE
        } else if multi_parts(text).is_some() {
            MULTI_STREAM
        } else if text.starts_with("shardId-") {
            SINGLE_STREAM
        } else {
            return Ok(());
        };
        if found == self.layout.name() {
            return Ok(());
        }
        Err(StoreError::misconfigured(
            format!(
                "the lease table has rows in {found} layout, but the store is set to {} layout; a table keeps its \
                 layout, so set the one it has or use another table",
                self.layout.name()
            ),
            None,
        ))
    }

    fn own_application(&self, application: &ApplicationName) -> Result<(), StoreError> {
        if *application == self.application {
            return Ok(());
        }
        let problem = format!(
            "in {} layout the lease table belongs to the application {}, not to {application}",
            self.layout.name(),
            self.application
        );
        Err(StoreError::misconfigured(problem, None))
    }
}

/// Refuses a second stream where keys have no room for it: the positions of one are never used for another.
pub(super) fn same_stream(known: &StreamRef, other: &StreamRef) -> Result<(), StoreError> {
    let same = match (known.arn(), other.arn()) {
        (Some(known), Some(other)) => known == other,
        _ => known.name() == other.name(),
    };
    if same {
        return Ok(());
    }
    let problem = format!(
        "the lease table has the leases of the stream {known} and cannot have those of {other} too: give the other \
         stream an application or table of its own, or use a layout for several streams"
    );
    Err(StoreError::misconfigured(problem, None))
}

fn native_prefix(application: &ApplicationName, stream: Option<&StreamRef>) -> String {
    let application = escaped(application.as_str());
    match stream {
        Some(stream) => format!("{application}{DIVIDER}{}{DIVIDER}", escaped(stream.as_str())),
        None => format!("{application}{DIVIDER}"),
    }
}

/// Identifier and shard of a key in the multi-stream form.
fn multi_parts(text: &str) -> Option<(&str, &str)> {
    let (at, _) = text.match_indices(':').nth(2)?;
    let (identifier, shard) = (&text[..at], &text[at + 1..]);
    let is_one = identifier.parse::<StreamIdentifier>().is_ok() && !shard.is_empty();
    is_one.then_some((identifier, shard))
}

fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(['%', DIVIDER]) {
        Cow::Owned(text.replace('%', "%25").replace(DIVIDER, "%7C"))
    } else {
        Cow::Borrowed(text)
    }
}

fn unescaped(text: &str) -> String {
    text.replace("%7C", "|").replace("%25", "%")
}

#[cfg(test)]
#[path = "tests/layout.rs"]
mod tests;
