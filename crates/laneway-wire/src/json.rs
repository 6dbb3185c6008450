//! Parses and writes the types of the submit path.
//!
//! These functions are not generic, so that they are compiled here, once, with the optimisation of this crate. The code that
//! serde generates is compiled where it is called with its types, and the crates that translate are optimised for size: there,
//! the response to a job took three times as many instructions (`docs/decisions/0015-build-profiles.md`).

use serde_json::Result;

use crate::{BatchRequest, BatchResponse, Job, JobRequest, Object};

/// Bytes of a job in a response: enough for one without large fields.
const JOB_LEN: usize = 640;

/// Parses the request of one job.
pub fn parse_job(text: &str) -> Result<JobRequest<'_>> {
    serde_json::from_str(text).map(|Object(job)| job)
}

/// Parses the request of a batch.
pub fn parse_batch(text: &str) -> Result<BatchRequest<'_>> {
    serde_json::from_str(text).map(|Object(batch)| batch)
}

/// A job as JSON.
pub fn write_job(job: &Job<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(JOB_LEN);
    serde_json::to_writer(&mut bytes, job)?;
    Ok(bytes)
}

/// The response to a batch as JSON.
pub fn write_batch(response: &BatchResponse<'_>) -> Result<Vec<u8>> {
    // All at once: a list that grows would copy the response again and again.
    let mut bytes = Vec::with_capacity(JOB_LEN * (1 + response.items.len()));
    serde_json::to_writer(&mut bytes, response)?;
    Ok(bytes)
}
