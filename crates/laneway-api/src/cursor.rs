//! Cursors of lists, with this API's error for an invalid one.

use laneway_runtime::cursor::Cursors as Sealed;

use crate::error::{ApiError, Code};

/// Writes and reads cursors. They are valid until the process ends.
pub struct Cursors(Sealed);

impl Cursors {
    /// Fails when the system has no random numbers.
    pub fn fresh() -> Result<Cursors, getrandom::Error> {
        Sealed::fresh().map(Cursors)
    }

    /// The cursor for `position` in the list that `list` describes.
    pub fn write(&self, list: &str, position: u64) -> String {
        self.0.write(list, position)
    }

    /// The position of a cursor in the list that `list` describes.
    pub fn read(&self, list: &str, cursor: &str) -> Result<u64, ApiError> {
        self.0.read(list, cursor).ok_or_else(|| {
            let detail = "the cursor does not belong to this list: keep every filter unchanged, or start again without a \
                          cursor (cursors end when the server restarts)";
            let mut error = ApiError::new(Code::InvalidCursor, detail);
            error.field = Some("cursor".to_owned());
            error
        })
    }
}
