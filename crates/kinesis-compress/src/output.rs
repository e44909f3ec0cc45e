//! Growing an output buffer under a limit.

use crate::DecompressError;

/// An output buffer while it is being filled: never longer than the limit by more than one byte, empty after a
/// failure.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    pub(crate) buffer: &'a mut Vec<u8>,
    limit: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(buffer: &'a mut Vec<u8>, limit: usize) -> Self {
        buffer.clear();
        Self { buffer, limit }
    }

    #[cfg(feature = "zstd")]
    pub(crate) const fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// How many more bytes the limit allows.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.buffer.len())
    }

    /// Whether the output has passed the limit.
    pub(crate) fn is_over(&self) -> bool {
        self.buffer.len() > self.limit
    }

    /// The error for an output beyond the limit.
    pub(crate) const fn limit_exceeded(&self, format: &'static str) -> DecompressError {
        DecompressError::DecompressedSizeLimitExceeded { format, limit: self.limit }
    }

    /// Makes room for `wanted` more bytes, but for no more than one byte beyond the limit: that byte tells a
    /// payload that ends at the limit from one that goes on.
    pub(crate) fn reserve(&mut self, wanted: usize) {
        self.buffer.reserve_exact(wanted.min(self.room().saturating_add(1)));
    }

    /// Makes room for at least one more byte, doubling what is there.
    #[cfg(feature = "gzip")]
    pub(crate) fn grow(&mut self) {
        const SMALLEST_STEP: usize = 1024;
        self.reserve(self.buffer.len().max(SMALLEST_STEP));
    }

    /// Appends bytes; memory doubles, within the limit and one byte.
    #[cfg(feature = "lz4")]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let allowed = &bytes[..bytes.len().min(self.room().saturating_add(1))];
        if self.buffer.capacity() - self.buffer.len() < allowed.len() {
            self.reserve(allowed.len().max(self.buffer.len()));
        }
        self.buffer.extend_from_slice(allowed);
    }

    /// Empties the buffer when `result` is an error.
    pub(crate) fn finish(self, result: Result<(), DecompressError>) -> Result<(), DecompressError> {
        if result.is_err() {
            self.buffer.clear();
        }
        result
    }
}
