//! What carries a subscription: it asks the state machine for steps, renders them as frames and does what the script
//! wants in between. It runs inside of the poll of the reply's body: no task, and nothing is read ahead.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::error::ServiceError;
use crate::format::Format;
use crate::frames;
use crate::service::Service;
use crate::state::Step;
use crate::stream_faults::{StreamFault, StreamPoint};

/// The name of the only event.
const EVENT: &str = "SubscribeToShardEvent";

/// The stream broke off by script.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut by script")]
pub(crate) struct Cut;

#[derive(Serialize)]
struct ErrorPayload<'a> {
    message: &'a str,
}

/// A subscription in the hands of its reply. Dropping it ends the subscription.
pub(crate) struct Feed {
    service: Arc<Service>,
    number: u64,
    woken: Arc<Notify>,
}

impl Feed {
    pub(crate) fn new(service: Arc<Service>, number: u64, woken: Arc<Notify>) -> Self {
        Self { service, number, woken }
    }

    /// The next step that is not a wait. Cancel-safe: a step is taken only when it is returned.
    async fn next(&self) -> Step {
        loop {
            let (now, step) = self.service.step(self.number);
            let Step::Wait(until) = step else { return step };
            let left = until.map_or(Duration::MAX, |until| until.since(now));
            tokio::select! {
                () = self.woken.notified() => {}
                () = self.service.clock.sleep(left) => {}
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.service.unsubscribe(self.number);
    }
}

/// The frames of one subscription.
pub(crate) struct EventStream {
    feed: Feed,
    format: Format,
    script: Vec<(StreamPoint, StreamFault)>,
    /// When the reply began.
    began: Moment,
    /// The initial response was sent or left out.
    started: bool,
    events: u64,
    /// Frames are cut into pieces of so many bytes.
    pieces: Option<usize>,
    /// What is to be sent before anything else.
    ready: VecDeque<Result<Bytes, Cut>>,
    ended: bool,
}

impl EventStream {
    pub(crate) fn new(feed: Feed, format: Format, script: Vec<(StreamPoint, StreamFault)>) -> Self {
        Self {
            began: feed.service.clock.moment(),
            feed,
            format,
            script,
            started: false,
            events: 0,
            pieces: None,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// The next bytes; none at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            if self.ended {
                return None;
            }
            if let Some(fault) = self.due_fault() {
                self.apply(fault).await;
            } else if !self.started {
                self.started = true;
                let payload = Bytes::from_static(self.format.empty());
                self.send(frames::event("initial-response", self.format.content_type(), payload));
            } else {
                let interrupt = self.next_fault_in();
                tokio::select! {
                    step = self.feed.next() => {
                        if let Some(frame) = self.render(step) {
                            self.send(frame);
                        }
                    }
                    () = self.feed.service.clock.sleep(interrupt) => {}
                }
            }
        }
    }

    /// Takes the first fault of the script whose point is reached.
    fn due_fault(&mut self) -> Option<StreamFault> {
        let age = self.age();
        let due = self.script.iter().position(|(point, _)| match *point {
            StreamPoint::BeforeFirstFrame => !self.started,
            StreamPoint::AfterEvents(events) => self.started && self.events >= events,
            StreamPoint::AfterTime(time) => age >= time,
        })?;
        Some(self.script.remove(due).1)
    }

    fn age(&self) -> Duration {
        self.feed.service.clock.moment().since(self.began)
    }

    /// The time to the next fault that goes by time.
    fn next_fault_in(&self) -> Duration {
        let times = self.script.iter().filter_map(|(point, _)| match point {
            StreamPoint::AfterTime(time) => Some(*time),
            _ => None,
        });
        times.min().map_or(Duration::MAX, |time| time.saturating_sub(self.age()))
    }

    async fn apply(&mut self, fault: StreamFault) {
        match fault {
            StreamFault::Silence(time) => self.feed.service.clock.sleep(time).await,
            StreamFault::End => self.ended = true,
            StreamFault::Cut => self.cut(),
            StreamFault::CutInside | StreamFault::EndInside => {
                let step = self.feed.next().await;
                if let Some(frame) = self.render(step) {
                    self.send(frame.slice(..frame.len() / 2));
                }
                if fault == StreamFault::CutInside {
                    self.cut();
                }
                self.ended = true;
            }
            StreamFault::CorruptChecksum => {
                let step = self.feed.next().await;
                if let Some(frame) = self.render(step) {
                    self.send(frames::corrupt(&frame));
                }
            }
            StreamFault::Exception { code, message } => self.fail(&ServiceError::new(code, 400, message)),
            StreamFault::Error { code, message } => {
                self.send(frames::error(&code, &message));
                self.ended = true;
            }
            StreamFault::UnknownEvent { kind } => {
                let payload = Bytes::from_static(self.format.empty());
                self.send(frames::event(&kind, self.format.content_type(), payload));
            }
            StreamFault::OmitInitialResponse => self.started = true,
            StreamFault::Pieces(bytes) => self.pieces = Some(bytes.max(1)),
        }
    }

    /// The frame of a step; none at an end in order.
    fn render(&mut self, step: Step) -> Option<Bytes> {
        match step {
            Step::Event(event) => {
                self.events += 1;
                let payload = self.format.encode_event(&event);
                Some(frames::event(EVENT, self.format.content_type(), payload))
            }
            Step::Fail(error) => {
                self.fail(&error);
                None
            }
            Step::End | Step::Wait(_) => {
                self.ended = true;
                None
            }
        }
    }

    fn fail(&mut self, error: &ServiceError) {
        let payload = self.format.encode(&ErrorPayload { message: error.message() });
        self.send(frames::exception(error.code(), self.format.content_type(), payload));
        self.ended = true;
    }

    fn cut(&mut self) {
        self.ready.push_back(Err(Cut));
        self.ended = true;
    }

    fn send(&mut self, mut frame: Bytes) {
        if let Some(size) = self.pieces {
            while frame.len() > size {
                self.ready.push_back(Ok(frame.split_to(size)));
            }
        }
        self.ready.push_back(Ok(frame));
    }
}

type NextFrame = Pin<Box<dyn Future<Output = (Box<EventStream>, Option<Result<Bytes, Cut>>)> + Send>>;

/// An event stream as the body of a reply.
pub(crate) struct FrameBody {
    /// The mutex is never locked: it makes the body `Sync`, which the SDK wants of bodies.
    next: Mutex<Option<NextFrame>>,
}

impl FrameBody {
    pub(crate) fn new(stream: EventStream) -> Self {
        Self { next: Mutex::new(Some(advance(Box::new(stream)))) }
    }
}

fn advance(mut stream: Box<EventStream>) -> NextFrame {
    Box::pin(async move {
        let next = stream.next().await;
        (stream, next)
    })
}

impl Body for FrameBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let slot = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = slot else { return Poll::Ready(None) };
        let (stream, bytes) = ready!(next.as_mut().poll(context));
        // At the end the stream is dropped at once, and the subscription with it.
        *slot = matches!(bytes, Some(Ok(_))).then(|| advance(stream));
        Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
    }
}

impl fmt::Debug for FrameBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameBody").finish_non_exhaustive()
    }
}
