//! Scripted faults inside of an event stream.

use std::time::Duration;

/// Where in a subscription's event stream a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamPoint {
    /// The headers of the reply were sent, but no frame yet, not even the initial response.
    BeforeFirstFrame,
    /// So many events were sent; zero means after the initial response.
    AfterEvents(u64),
    /// So much time of the service's clock has gone by since the reply began.
    AfterTime(Duration),
}

/// What goes wrong in an event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFault {
    /// Nothing is sent for this time while the connection stays open. `Duration::MAX` is for ever.
    Silence(Duration),
    /// The stream ends in order.
    End,
    /// The connection breaks between two frames.
    Cut,
    /// Half of the next event is sent, then the connection breaks.
    CutInside,
    /// Half of the next event is sent, then the stream ends as if that were all.
    EndInside,
    /// The next event has a wrong checksum. The stream goes on.
    CorruptChecksum,
    /// An exception frame with this code, which the service's model may know or not, ends the stream.
    Exception {
        /// The exception's type, for example `InternalFailureException`.
        code: String,
        /// Its message.
        message: String,
    },
    /// A frame of the type `error`, which no model knows, ends the stream.
    Error {
        /// The `:error-code` header.
        code: String,
        /// The `:error-message` header.
        message: String,
    },
    /// An event of a type that the service's model does not know. The stream goes on.
    UnknownEvent {
        /// The event's type.
        kind: String,
    },
    /// The initial response is left out. Only before the first frame; elsewhere it does nothing.
    OmitInitialResponse,
    /// From here on frames are sent in pieces of so many bytes. Zero counts as one.
    Pieces(usize),
}

impl StreamFault {
    /// An exception frame with this code.
    pub fn exception(code: impl Into<String>) -> Self {
        let code = code.into();
        let message = format!("{code} by script.");
        Self::Exception { code, message }
    }

    /// An error frame with this code.
    pub fn error(code: impl Into<String>) -> Self {
        let code = code.into();
        let message = format!("{code} by script.");
        Self::Error { code, message }
    }
}
