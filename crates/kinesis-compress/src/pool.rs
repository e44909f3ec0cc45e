//! A bounded store of codecs behind `&self`.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many idle codecs a [`Decompressor`](crate::Decompressor) or [`Compressor`](crate::Compressor) keeps.
///
/// More threads than this at the same moment get codecs that are made for the call and dropped after it.
pub const MAX_IDLE_CODECS: usize = 16;

#[derive(Debug)]
pub(crate) struct Pool<T> {
    idle: Mutex<Vec<T>>,
}

impl<T> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self { idle: Mutex::new(Vec::new()) }
    }

    /// Lends an item to `work`. An item that was in use when `work` panicked is not used again.
    pub(crate) fn with<R>(&self, make: impl FnOnce() -> T, work: impl FnOnce(&mut T) -> R) -> R {
        let kept = self.idle().pop();
        let mut item = kept.unwrap_or_else(make);
        let result = work(&mut item);
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE_CODECS {
            idle.push(item);
        }
        result
    }

    fn idle(&self) -> MutexGuard<'_, Vec<T>> {
        // The vector is whole between any two operations, so a poisoned lock is as good as any.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_used_again_and_no_more_than_the_maximum_is_kept() {
        let pool = Pool::new();
        let mut made = 0;
        for _ in 0..3 {
            pool.with(
                || {
                    made += 1;
                    made
                },
                |item| assert_eq!(*item, 1),
            );
        }
        fn nest(pool: &Pool<u32>, depth: usize) {
            if depth > 0 {
                pool.with(|| 0, |_| nest(pool, depth - 1));
            }
        }
        let pool = Pool::new();
        nest(&pool, MAX_IDLE_CODECS + 5);
        assert_eq!(pool.idle().len(), MAX_IDLE_CODECS);
    }
}
