//! The work of one reader: does what the machine says and reads the subscription.

use std::sync::Arc;

use kinesis_core::ShardRef;
use kinesis_core::aws::{ClientSource, DateHeader, Purpose};
use tokio::time::Instant;

use crate::EfoConfig;
use crate::buffer::Buffer;
use crate::calls::{self, Subscribing, Subscription};
use crate::groups::Groups;
use crate::history::History;
use crate::machine::{Action, EfoMachine, Event};
use crate::meters::Meters;
use crate::registration::{ConsumerArn, RegistrationError, Registry};
use crate::turns::Bell;

/// What the readers of a source share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clients: ClientSource,
    pub(crate) config: EfoConfig,
    pub(crate) registry: Registry,
    pub(crate) groups: Arc<Groups>,
    pub(crate) history: History,
}

/// Reads one shard into a buffer.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    shard: ShardRef,
    machine: EfoMachine,
    meters: Meters,
    buffer: Feed,
    consumer: Option<ConsumerArn>,
    activity: Activity,
}

/// The buffer in the hands of the work that fills it: closed when the work ends, however it does.
struct Feed(Arc<Buffer>);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What is under way.
enum Activity {
    Nothing,
    Looking { anew: bool },
    Subscribing(Subscribing, DateHeader),
    Open(Box<Subscription>),
}

/// What came of an activity.
enum Outcome {
    Event(Event),
    Consumer(Result<ConsumerArn, RegistrationError>),
    Subscribed(Event, Option<Box<Subscription>>),
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        shard: ShardRef,
        machine: EfoMachine,
        meters: Meters,
        buffer: Arc<Buffer>,
    ) -> Self {
        let buffer = Feed(buffer);
        Self { shared, shard, machine, meters, buffer, consumer: None, activity: Activity::Nothing }
    }

    /// Runs until the end or an error was handed out. Dropping it closes the subscription. `bell` is the one that wakes
    /// it.
    pub(crate) async fn run(mut self, bell: Arc<Bell>) {
        let groups = Arc::clone(&self.shared.groups);
        let place = groups.enter();
        let mut noted = self.machine.last_calls();
        let mut event = Event::Wake;
        loop {
            let had_records = matches!(&event, Event::Pushed(push) if !push.records.is_empty());
            let now = Instant::now().into_std();
            for action in self.machine.step(now, event) {
                self.perform(action, place.group());
            }
            let calls = self.machine.last_calls();
            if calls != noted {
                self.shared.history.note(now, &self.shard, calls);
                noted = calls;
            }
            if self.machine.is_over() {
                return;
            }
            if had_records {
                // A burst must not fill the buffer before the caller has had a turn to empty it.
                bell.end_turn().await;
            }
            event = self.next_event().await;
        }
    }

    fn perform(&mut self, action: Action, group: u16) {
        match action {
            Action::Look { anew } => self.activity = Activity::Looking { anew },
            Action::Subscribe { start, reconnect } => {
                if reconnect {
                    self.meters.reconnected();
                }
                let consumer = self.consumer.as_ref().expect("the consumer is found before the first call");
                let client = self.shared.clients.client(Purpose::Subscribe { group });
                let date = DateHeader::default();
                let call = calls::subscribe(&client, consumer, &self.shard, &start, date.clone());
                self.activity = Activity::Subscribing(call, date);
            }
            Action::Unsubscribe => self.activity = Activity::Nothing,
            Action::CountStreamError => self.meters.stream_failed(),
            Action::Emit(event) => self.buffer.0.push(Ok(event)),
            Action::Fail(error) => self.buffer.0.push(Err(error)),
        }
    }

    async fn next_event(&mut self) -> Event {
        let due = self.machine.wake_at();
        let outcome = {
            let activity = proceed(&mut self.activity, &self.shared, &self.shard, self.consumer.as_ref());
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            // What the caller took first, or a fast stream would hide that there is room; the limit last, or it would
            // hide what came in time.
            tokio::select! {
                biased;
                freed = self.buffer.0.freed() => Outcome::Event(Event::Taken(freed)),
                outcome = activity => outcome,
                () = wait => Outcome::Event(Event::Wake),
            }
        };
        match outcome {
            Outcome::Event(event) => {
                if matches!(event, Event::Closed(_)) {
                    self.activity = Activity::Nothing;
                }
                event
            }
            Outcome::Consumer(answer) => {
                self.activity = Activity::Nothing;
                Event::Consumer(answer.map(|arn| self.consumer = Some(arn)))
            }
            Outcome::Subscribed(event, subscription) => {
                self.activity = subscription.map_or(Activity::Nothing, Activity::Open);
                event
            }
        }
    }
}

/// Goes on with what is under way. Cancel-safe, except that looking for the consumer begins anew.
async fn proceed(
    activity: &mut Activity,
    shared: &Shared,
    shard: &ShardRef,
    consumer: Option<&ConsumerArn>,
) -> Outcome {
    match activity {
        Activity::Nothing => std::future::pending().await,
        Activity::Looking { anew } => {
            let stale = consumer.filter(|_| *anew);
            Outcome::Consumer(shared.registry.consumer(shard.stream(), stale).await)
        }
        Activity::Subscribing(call, date) => {
            let (answer, subscription) = match call.await {
                Ok(subscription) => (Ok(()), Some(Box::new(subscription))),
                Err(failure) => (Err(failure), None),
            };
            Outcome::Subscribed(Event::Subscribed { answer, service_time: date.get() }, subscription)
        }
        Activity::Open(subscription) => Outcome::Event(subscription.next().await),
    }
}
