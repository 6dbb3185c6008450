//! Cursors of lists, with this API's answer for one that does not fit.

use laneway_runtime::cursor::Cursors as Sealed;

use crate::error::{ApiError, Code};

/// Makes and reads cursors; they last as long as the process.
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

    /// The position of a cursor of the list that `list` describes.
    pub fn read(&self, list: &str, cursor: &str) -> Result<u64, ApiError> {
        self.0.read(list, cursor).ok_or_else(|| {
            let detail = "the cursor is not one of this list: keep every filter as it was, or start again without a \
                          cursor (cursors end when the server restarts)";
            let mut error = ApiError::new(Code::InvalidCursor, detail);
            error.field = Some("cursor".to_owned());
            error
        })
    }
}
