//! Which HTTP client a shard's subscriptions use.

use std::sync::{Arc, Mutex, PoisonError};

/// Places on HTTP clients, handed out so that no more than so many shards share one.
#[derive(Debug)]
pub(crate) struct Groups {
    per_client: u32,
    /// How many shards use each client.
    used: Mutex<Vec<u32>>,
}

/// A place on an HTTP client; dropping it makes room for another shard.
#[derive(Debug)]
pub(crate) struct Place {
    groups: Arc<Groups>,
    group: usize,
}

impl Groups {
    pub(crate) fn new(per_client: u32) -> Arc<Self> {
        Arc::new(Self { per_client, used: Mutex::default() })
    }

    /// Takes the first free place, on one client more if there is none.
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let group = used.iter().position(|count| *count < self.per_client).unwrap_or_else(|| {
            used.push(0);
            used.len() - 1
        });
        used[group] += 1;
        Place { groups: Arc::clone(self), group }
    }
}

impl Place {
    pub(crate) fn group(&self) -> u16 {
        // More than 65,535 connections are not to be had; the last one is shared then.
        u16::try_from(self.group).unwrap_or(u16::MAX)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut used = self.groups.used.lock().unwrap_or_else(PoisonError::into_inner);
        used[self.group] = used[self.group].saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-07: no more shards share a client than the setting says, and places are used again.
    #[test]
    fn no_more_shards_than_allowed_share_a_client() {
        let groups = Groups::new(2);
        let mut places: Vec<_> = (0..5).map(|_| groups.enter()).collect();
        assert_eq!(places.iter().map(Place::group).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
        places.remove(1);
        assert_eq!(groups.enter().group(), 0);
        drop(places);
        assert_eq!(*groups.used.lock().unwrap(), [0, 0, 0]);
    }
}
