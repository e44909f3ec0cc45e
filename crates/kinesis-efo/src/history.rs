//! When the shards of a source were last subscribed to: the service counts per consumer and shard, so a reader has to
//! know about the one before it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kinesis_core::ShardRef;

use crate::limits::SUBSCRIBE_IN_USE;

/// The last calls for one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LastCalls {
    /// When the last SubscribeToShard went out, or was answered.
    pub(crate) called: Option<Instant>,
    /// When the last one succeeded.
    pub(crate) accepted: Option<Instant>,
}

/// The last calls of every shard. Entries that have no effect any more are removed.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<HashMap<ShardRef, LastCalls>>);

impl History {
    pub(crate) fn of(&self, shard: &ShardRef) -> LastCalls {
        self.shards().get(shard).copied().unwrap_or_default()
    }

    pub(crate) fn note(&self, now: Instant, shard: &ShardRef, calls: LastCalls) {
        let mut shards = self.shards();
        // The longest effect is that of a success; a call comes with or after it.
        let lives = |calls: &LastCalls| {
            calls.called.is_some_and(|at| now.saturating_duration_since(at) < SUBSCRIBE_IN_USE)
        };
        shards.retain(|_, calls| lives(calls));
        shards.insert(shard.clone(), calls);
    }

    fn shards(&self) -> std::sync::MutexGuard<'_, HashMap<ShardRef, LastCalls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_any_more_is_forgotten() {
        let shard =
            |n: u32| ShardRef::new("orders".parse().unwrap(), format!("shardId-{n:012}").parse().unwrap());
        let history = History::default();
        let begun = Instant::now();
        let calls = LastCalls { called: Some(begun), accepted: Some(begun) };
        history.note(begun, &shard(1), calls);
        let later = begun + SUBSCRIBE_IN_USE;
        assert_eq!(history.of(&shard(1)).accepted, Some(begun));
        history.note(later, &shard(2), LastCalls { called: Some(later), accepted: None });
        assert_eq!(history.of(&shard(1)).called, None);
        assert_eq!(history.of(&shard(2)).called, Some(later));
    }
}
