//! Changes that delete old rows.

use laneway_core::{Change, Name, Wall};

use super::super::{Input, Intern, put_name, put_u64, put_wall};
use crate::StoreError;

/// Appends what [`Change::JobsPruned`] and [`Change::RunsPruned`] have.
pub(super) fn write_lane(
    out: &mut Vec<u8>,
    lane: &Name,
    finished_before: Wall,
    keyed_finished_before: Wall,
    max: u32,
) {
    put_name(out, lane);
    put_wall(out, finished_before);
    put_wall(out, keyed_finished_before);
    put_u64(out, max.into());
}

// In these functions, fields are evaluated in the order in which they are written.

pub(super) fn read_jobs(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Change, StoreError> {
    Ok(Change::JobsPruned {
        lane: intern(input.text()?)?,
        finished_before: input.wall()?,
        keyed_finished_before: input.wall()?,
        max: input.u32()?,
    })
}

pub(super) fn read_runs(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Change, StoreError> {
    Ok(Change::RunsPruned {
        lane: intern(input.text()?)?,
        finished_before: input.wall()?,
        keyed_finished_before: input.wall()?,
        max: input.u32()?,
    })
}

pub(super) fn write_firing_log(
    out: &mut Vec<u8>,
    ended_before: Wall,
    keep: u32,
    slots_before: Wall,
    max: u32,
) {
    put_wall(out, ended_before);
    put_u64(out, keep.into());
    put_wall(out, slots_before);
    put_u64(out, max.into());
}

pub(super) fn read_firing_log(input: &mut Input<'_>) -> Result<Change, StoreError> {
    Ok(Change::FiringLogPruned {
        ended_before: input.wall()?,
        keep: input.u32()?,
        slots_before: input.wall()?,
        max: input.u32()?,
    })
}
