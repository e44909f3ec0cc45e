//! Skippable frames, which zstd and lz4 share: a magic number, a length, and bytes that mean nothing to a decoder.

use crate::cursor::{Cursor, End};

const MAGIC: u32 = 0x184D_2A50;
/// The low four bits are the writer's to choose.
const MAGIC_MASK: u32 = 0xFFFF_FFF0;

/// Steps over one skippable frame if there is one; `Ok(false)` when something else comes next.
///
/// The declared length is only compared with what is there.
pub(crate) fn skip_one(cursor: &mut Cursor<'_>) -> Result<bool, End> {
    let mut ahead = cursor.clone();
    if !ahead.u32().is_ok_and(|magic| magic & MAGIC_MASK == MAGIC) {
        return Ok(false);
    }
    let length = ahead.u32()?;
    ahead.take(usize::try_from(length).map_err(|_| End)?)?;
    *cursor = ahead;
    Ok(true)
}

/// Steps over all skippable frames that come next.
pub(crate) fn skip_all(cursor: &mut Cursor<'_>) -> Result<(), End> {
    while skip_one(cursor)? {}
    Ok(())
}

/// Whether `magic` comes first, or after complete skippable frames.
pub(crate) fn leads_to(payload: &[u8], magic: [u8; 4]) -> bool {
    if payload.starts_with(&magic) {
        return true;
    }
    let mut cursor = Cursor::new(payload);
    skip_all(&mut cursor).is_ok() && cursor.rest().starts_with(&magic)
}
