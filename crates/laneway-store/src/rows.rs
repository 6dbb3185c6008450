//! What stores with rows share: names that share their text, and codes that must be known.

use std::collections::HashSet;

use laneway_core::{
    AttemptEnd, AttemptId, DeliveryState, ExecutorMode, FiringStatus, JobId, JobState, Name, NextCode,
    Overlap, Reason, Role, RunId, RunState, ScheduleId,
};

use crate::StoreError;

/// Names kept at most; beyond that the set is begun anew. Names come from clients, so their number has no bound.
const NAMES_MAX: usize = 200_000;

/// Makes equal names share one text: a million jobs have few tenants, kinds, lanes and agents.
#[derive(Default)]
pub(crate) struct Interner(HashSet<Name>);

impl Interner {
    /// The name of a stored text.
    pub fn name(&mut self, text: &str) -> Result<Name, StoreError> {
        if let Some(name) = self.0.get(text) {
            return Ok(name.clone());
        }
        let name = stored_name(text)?;
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.insert(name.clone());
        Ok(name)
    }
}

/// The name of a stored text, on its own.
pub(crate) fn stored_name(text: &str) -> Result<Name, StoreError> {
    Name::new(text).map_err(|error| StoreError::Damaged(format!("a stored name {error}")))
}

/// The state of a stored code.
pub(crate) fn stored_state(code: u8) -> Result<JobState, StoreError> {
    JobState::from_code(code).ok_or_else(|| unknown("state of a job", code))
}

/// The reason of a stored code.
pub(crate) fn stored_reason(code: u8) -> Result<Reason, StoreError> {
    Reason::from_code(code).ok_or_else(|| unknown("reason", code))
}

/// The attempt's end of a stored code.
pub(crate) fn stored_attempt_end(code: u8) -> Result<AttemptEnd, StoreError> {
    AttemptEnd::from_code(code).ok_or_else(|| unknown("end of an attempt", code))
}

/// The place's mode of a stored code.
pub(crate) fn stored_mode(code: u8) -> Result<ExecutorMode, StoreError> {
    ExecutorMode::from_code(code).ok_or_else(|| unknown("mode of a place", code))
}

/// The delivery's state of a stored code.
pub(crate) fn stored_delivery_state(code: u8) -> Result<DeliveryState, StoreError> {
    DeliveryState::from_code(code).ok_or_else(|| unknown("state of a delivery", code))
}

/// The role of a stored code.
pub(crate) fn stored_role(code: u8) -> Result<Role, StoreError> {
    Role::from_code(code).ok_or_else(|| unknown("role", code))
}

/// The overlap policy of a stored code.
pub(crate) fn stored_overlap(code: u8) -> Result<Overlap, StoreError> {
    Overlap::from_code(code).ok_or_else(|| unknown("overlap policy", code))
}

/// The status of a run of a stored code.
pub(crate) fn stored_firing_status(code: u8) -> Result<FiringStatus, StoreError> {
    FiringStatus::from_code(code).ok_or_else(|| unknown("status of a run", code))
}

/// The run's state of a stored code.
pub(crate) fn stored_run_state(code: u8) -> Result<RunState, StoreError> {
    RunState::from_code(code).ok_or_else(|| unknown("state of a run", code))
}

/// The code of a call's answer.
pub(crate) fn stored_next_code(code: u8) -> Result<NextCode, StoreError> {
    NextCode::from_code(code).ok_or_else(|| unknown("answer of a call", code))
}

/// The run id of stored bytes.
pub(crate) fn stored_run_id(bytes: &[u8]) -> Result<RunId, StoreError> {
    stored_u128(bytes).map(RunId)
}

/// The schedule id of stored bytes.
pub(crate) fn stored_schedule_id(bytes: &[u8]) -> Result<ScheduleId, StoreError> {
    stored_u128(bytes).map(ScheduleId)
}

/// The job id of stored bytes.
pub(crate) fn stored_job_id(bytes: &[u8]) -> Result<JobId, StoreError> {
    stored_u128(bytes).map(JobId)
}

/// The attempt id of stored bytes.
pub(crate) fn stored_attempt_id(bytes: &[u8]) -> Result<AttemptId, StoreError> {
    stored_u128(bytes).map(AttemptId)
}

/// The 32 bytes of a stored digest or hash.
pub(crate) fn stored_digest(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::Damaged("a stored digest does not have 32 bytes".into()))
}

fn stored_u128(bytes: &[u8]) -> Result<u128, StoreError> {
    let bytes =
        bytes.try_into().map_err(|_| StoreError::Damaged("a stored id does not have 16 bytes".into()))?;
    Ok(u128::from_be_bytes(bytes))
}

fn unknown(what: &str, code: u8) -> StoreError {
    StoreError::Damaged(format!("there is no {what} with code {code}"))
}
