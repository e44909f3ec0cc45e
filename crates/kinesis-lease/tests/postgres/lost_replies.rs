//! Writes that are done, and whose replies are lost on their way.

use std::sync::{Arc, Mutex, MutexGuard};

use kinesis_lease::{HeartbeatMode, Lease, LeaseConfig, LeaseEvent, LeaseStore as _, Pooler};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{FakeDirectory, acquired, at, builder, key, millis, secs};
use crate::table::Table;

/// What a connection has to send, one after the other, to get no answer from then on.
type Signs = Vec<Vec<u8>>;

/// Passes connections on to the server, and what it says back, until it is told to lose an answer.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    signs: Option<Signs>,
    lost: usize,
}

impl Wire {
    /// Before the server of `table`; which connects through it from now on.
    async fn before(table: &mut Table) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = (table.options.get_host().to_owned(), table.options.get_port());
        let port = listener.local_addr().unwrap().port();
        table.options = table.options.clone().host("127.0.0.1").port(port);
        let wire = Self::default();
        tokio::spawn({
            let wire = wire.clone();
            async move {
                while let Ok((from, _)) = listener.accept().await {
                    let to = TcpStream::connect((server.0.as_str(), server.1)).await.unwrap();
                    tokio::spawn(wire.clone().pass(from, to));
                }
            }
        });
        wire
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Loses the server's answer to the next connection that sends these.
    fn lose_answer_to(&self, signs: &[&str]) {
        self.state().signs = Some(signs.iter().map(|sign| sign.as_bytes().to_vec()).collect());
    }

    /// Whether the server has answered, and nobody was told.
    fn has_lost(&self, answers: usize) -> bool {
        self.state().lost == answers
    }

    async fn pass(self, mut from: TcpStream, mut to: TcpStream) {
        let (mut seen, mut is_mute) = (0, false);
        let (mut asked, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                read = from.read(&mut asked) => {
                    let Some(read @ 1..) = read.ok() else { return };
                    {
                        let mut state = self.state();
                        let sign = state.signs.as_ref().and_then(|signs| signs.get(seen));
                        if sign.is_some_and(|sign| asked[..read].windows(sign.len()).any(|part| part == sign)) {
                            seen += 1;
                            if state.signs.as_ref().is_some_and(|signs| signs.len() == seen) {
                                state.signs = None;
                                is_mute = true;
                            }
                        }
                    }
                    if to.write_all(&asked[..read]).await.is_err() { return }
                }
                read = to.read(&mut said) => {
                    let Some(read @ 1..) = read.ok() else { return };
                    if is_mute {
                        self.state().lost += 1;
                        // Nothing more is said: the caller finds out by its own patience.
                        let _ = from.read_to_end(&mut Vec::new()).await;
                        return;
                    }
                    if from.write_all(&said[..read]).await.is_err() { return }
                }
            }
        }
    }
}

/// A worker takes, renews and stores a checkpoint, each with a reply that is lost. It knows its own writes again.
async fn own_writes_are_recognised(pooler: Pooler) {
    const NAME: &str = "worker-of-lost-replies";
    let mut table = Table::new();
    let direct = table.ready().await;
    let wire = Wire::before(&mut table).await;
    let store = table.builder().pooler(pooler).options(table.options.clone()).unwrap();
    // The write of a transaction is done with its end.
    let signs = |sign: String| match pooler {
        Pooler::Transaction => vec![sign, "COMMIT".to_owned()],
        _ => vec![sign],
    };
    let lose_answer_to = |sign: &str| {
        let signs = signs(sign.to_owned());
        wire.lose_answer_to(&signs.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let row = async |number: u32| -> Lease { direct.get(&[key(number)]).await.unwrap().remove(0).unwrap() };
    let config = LeaseConfig::default()
        .expiry(secs(20))
        .heartbeat_interval(millis(500))
        .look_interval(millis(300))
        .store_timeout(millis(1_500));
    let start = builder(store, &FakeDirectory::open(1), NAME).config(config);
    lose_answer_to(NAME);
    let (coordinator, mut events) = start.heartbeat(HeartbeatMode::OwnThread).start().await.unwrap();
    crate::common::until("the reply to the taking is lost", || wire.has_lost(1)).await;
    assert_eq!(row(0).await.holder().map(|name| name.as_str()), Some(NAME), "it is done nevertheless");
    let tenure = acquired(&mut events).await;

    lose_answer_to(&row(0).await.token.unwrap().to_string());
    crate::common::until("the reply to a renewal is lost", || wire.has_lost(2)).await;
    let counter = row(0).await.counter;
    crate::common::until_async("later ones are done", async || row(0).await.counter >= counter + 2).await;

    // A number that nothing else has.
    let position = 7_123_456_789_123_456;
    lose_answer_to(&position.to_string());
    let storing = tokio::spawn({
        let tenure = tenure.clone();
        async move { tenure.checkpoint(at(position)).await }
    });
    crate::common::until("the reply to the checkpoint is lost", || wire.has_lost(3)).await;
    assert_eq!(row(0).await.checkpoint, at(position), "it is done nevertheless");
    storing.await.unwrap().unwrap();
    tenure.checkpoint(at(position + 1)).await.unwrap();

    assert!(!tenure.ownership().is_lost());
    assert!(coordinator.shutdown(secs(20)).await.is_complete());
    while let Some(event) = events.next().await {
        assert!(matches!(event, LeaseEvent::Warning(_)), "{event:?}");
    }
    let row = row(0).await;
    assert_eq!((row.checkpoint, row.epoch, row.owner_switches, row.owner), (at(position + 1), 1, 0, None));
    assert!(wire.has_lost(3));
}

/// F-22: a take, a renewal and a checkpoint that worked but whose replies were lost are recognised as our own writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn writes_whose_replies_were_lost_are_our_own() {
    own_writes_are_recognised(Pooler::Direct).await;
}

/// F-22: the same where each operation is a transaction, and the reply to its end is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn transactions_whose_replies_were_lost_are_our_own() {
    own_writes_are_recognised(Pooler::Transaction).await;
}
