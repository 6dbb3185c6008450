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
    let failure = read_failure_part(&mut input)?;
    input.end()?;
    Ok(failure)
}

/// Reads a form back that other parts may follow.
pub(super) fn read_failure_part(input: &mut Input<'_>) -> Result<Failure, StoreError> {
    input.version(VERSION)?;
    let flags = input.flags(RETRYABLE | DETAIL)?;
    Ok(Failure {
        code: input.name()?,
        message: input.text()?.into(),
        retryable: flags & RETRYABLE != 0,
        detail: (flags & DETAIL != 0).then(|| input.bytes().map(Bytes::from)).transpose()?,
        retry_after: None,
    })
}
