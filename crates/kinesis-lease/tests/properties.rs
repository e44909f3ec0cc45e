//! Any sequence of operations by any workers, each with a view of the row that may be old.

use kinesis_core::{ApplicationName, Checkpoint, Position, ShardId, StreamRef, WorkerId};
use kinesis_lease::{
    CoolDown, Lease, LeaseKey, LeaseStore, LeaseWrite, MemoryStore, Outcome, TenureToken, ops,
};
use proptest::prelude::*;

const WORKERS: usize = 3;

#[derive(Debug, Clone)]
enum Op {
    /// Reads the row.
    Look,
    Take,
    Renew,
    Checkpoint(u128),
    Release(bool),
    Ask,
    Withdraw,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let op = prop_oneof![
        4 => Just(Op::Look),
        3 => Just(Op::Take),
        3 => Just(Op::Renew),
        3 => (1_u128..1_000).prop_map(Op::Checkpoint),
        1 => any::<bool>().prop_map(Op::Release),
        1 => Just(Op::Ask),
        1 => Just(Op::Withdraw),
    ];
    (0..WORKERS, op)
}

/// What one worker believes.
#[derive(Debug, Clone)]
struct View {
    name: WorkerId,
    row: Lease,
    token: Option<TenureToken>,
}

fn fresh() -> Lease {
    let application = ApplicationName::new("app").expect("a name");
    let stream = StreamRef::new("stream").expect("a name");
    let key = LeaseKey::new(application, stream, ShardId::new("shard").expect("a name"));
    Lease::new(key, Checkpoint::TrimHorizon)
}

fn write_of(view: &View, op: &Op, fresh_token: TenureToken) -> Option<LeaseWrite> {
    let row = &view.row;
    Some(match op {
        Op::Look => return None,
        Op::Take => ops::take(row, &view.name, fresh_token),
        Op::Renew => ops::renew(row, view.token?),
        Op::Checkpoint(sequence) => {
            // A holder never goes back behind the row that it holds.
            let checkpoint = Checkpoint::At(Position::from(kinesis_core::SequenceNumber::from(*sequence)));
            ops::checkpoint(row, view.token?, checkpoint.max(row.checkpoint.clone()))
        }
        Op::Release(rest) => {
            let rest = rest.then(|| CoolDown::new(std::time::Duration::from_secs(1), 1));
            ops::release(row, view.token?, None, rest)
        }
        Op::Ask => {
            if row.owner.is_none() || row.checkpoint_owner.is_some() {
                return None;
            }
            ops::request(row, &view.name)
        }
        Op::Withdraw => {
            row.checkpoint_owner.as_ref()?;
            ops::withdraw(row)
        }
    })
}

proptest! {
    /// S-039, S-041, F-10: whatever is done between two checkpoints, only the present tenure writes the position, it
    /// never goes back, the counter and the epoch never go back, and the epoch grows with every taking.
    #[test]
    fn only_the_present_tenure_moves_the_position_and_nothing_goes_back(
        steps in prop::collection::vec(op(), 1..200)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let store = MemoryStore::new();
            drop(store.apply(&[ops::create(fresh())]).await);
            let mut views: Vec<View> = (0..WORKERS)
                .map(|number| View {
                    name: WorkerId::new(format!("w{number}")).expect("a name"),
                    row: fresh(),
                    token: None,
                })
                .collect();
            let mut present = None;
            for (number, (worker, op)) in steps.into_iter().enumerate() {
                let before = store.snapshot().remove(0);
                let view = &mut views[worker];
                let fresh_token = TenureToken::from_random(number as u128);
                let Some(write) = write_of(view, &op, fresh_token) else {
                    view.row = before;
                    continue;
                };
                let outcome = store.apply(&[write]).await.remove(0).expect("memory does not fail");
                let Outcome::Applied(after) = outcome else { continue };
                prop_assert!(before.checkpoint <= after.checkpoint);
                prop_assert!(before.counter <= after.counter && before.epoch <= after.epoch);
                match op {
                    Op::Take => {
                        prop_assert_eq!(after.epoch, before.epoch + 1);
                        present = Some(fresh_token);
                        view.token = present;
                    }
                    Op::Renew | Op::Checkpoint(_) | Op::Release(_) => prop_assert_eq!(view.token, present),
                    _ => {}
                }
                if !matches!(op, Op::Checkpoint(_)) {
                    prop_assert_eq!(&before.checkpoint, &after.checkpoint);
                }
                if matches!(op, Op::Release(_)) {
                    view.token = None;
                    present = None;
                }
                view.row = after;
            }
            Ok(())
        })?;
    }
}
