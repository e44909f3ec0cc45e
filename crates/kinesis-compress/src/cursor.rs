//! Reading little-endian headers without panics.

/// What is left of a payload and how much of it was read.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    whole: &'a [u8],
    position: usize,
}

/// The input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End;

impl<'a> Cursor<'a> {
    pub(crate) const fn new(whole: &'a [u8]) -> Self {
        Self { whole, position: 0 }
    }

    pub(crate) const fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.whole[self.position..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// The next `count` bytes; on `End` the cursor stays where it is.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], End> {
        let taken = self.rest().get(..count).ok_or(End)?;
        self.position += count;
        Ok(taken)
    }

    /// A little-endian number of up to eight bytes.
    pub(crate) fn number(&mut self, bytes: usize) -> Result<u64, End> {
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(wide))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, End> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, End> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    /// The bytes up to a zero byte, which is read too and not returned.
    #[cfg(feature = "gzip")]
    pub(crate) fn until_zero(&mut self) -> Result<&'a [u8], End> {
        let length = self.rest().iter().position(|&byte| byte == 0).ok_or(End)?;
        let taken = self.take(length)?;
        self.position += 1;
        Ok(taken)
    }
}
