//! What went wrong, in one column.

use laneway_core::{Bytes, Failure};

use super::{Input, put_bytes};
use crate::StoreError;

const VERSION: u8 = 1;
const RETRYABLE: u8 = 1;
const DETAIL: u8 = 2;

/// Appends the form of `failure` to `out`.
pub(crate) fn write_failure(out: &mut Vec<u8>, failure: &Failure) {
    // The engine has already used `retry_after` for the time of the next attempt.
    let Failure { code, message, retryable, detail, retry_after: _ } = failure;
    out.push(VERSION);
    out.push(if *retryable { RETRYABLE } else { 0 } | if detail.is_some() { DETAIL } else { 0 });
    put_bytes(out, code.as_str().as_bytes());
    put_bytes(out, message.as_bytes());
    if let Some(detail) = detail {
        put_bytes(out, detail);
    }
}

/// Reads a form back.
pub(crate) fn read_failure(bytes: &[u8]) -> Result<Failure, StoreError> {
    let mut input = Input::new("the failure of an attempt", bytes);
    input.version(VERSION)?;
    let flags = input.u8()?;
    if flags & !(RETRYABLE | DETAIL) != 0 {
        return Err(input.damaged("it has parts that this program does not know"));
    }
    let failure = Failure {
        code: input.name()?,
        message: input.text()?.into(),
        retryable: flags & RETRYABLE != 0,
        detail: (flags & DETAIL != 0).then(|| input.bytes().map(Bytes::from)).transpose()?,
        retry_after: None,
    };
    input.end()?;
    Ok(failure)
}
