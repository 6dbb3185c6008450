//! Which columns make a schedule.

use laneway_core::{Bytes, CatchUp, Schedule, ScheduleSpec, ScheduleState, Span, Timing, Wall};

use super::{Columns, number, small};
use crate::StoreError;
use crate::codec::read_template;
use crate::rows::{Interner, stored_firing_status, stored_name, stored_overlap, stored_schedule_id};

/// The columns that [`read_schedule`] reads, in its order.
pub(crate) const SCHEDULE: &str = "schedule.id, tenant, name, owner, enabled, timing, fire_at, interval_ms, anchor_at, \
     cron_expression, timezone, template, delete_after_run, catch_up, overlap, jitter_ms, created_at, updated_at, \
     next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings, payload, note";

pub(crate) fn read_schedule(row: &impl Columns, names: &mut Interner) -> Result<Schedule, StoreError> {
    let wall = |column: usize| -> Result<Option<Wall>, StoreError> {
        Ok(row.get_ref(column)?.as_i64_or_null()?.map(Wall))
    };
    let tenant = names.name(row.get_ref(1)?.as_str()?)?;
    let missing = || StoreError::Damaged("a schedule has half a timing".into());
    let timing = match row.get_ref(5)?.as_str()? {
        "at" => Timing::At(wall(6)?.ok_or_else(missing)?),
        "every" => {
            let every = row.get_ref(7)?.as_i64_or_null()?.ok_or_else(missing)?;
            Timing::Every { every: Span(every.cast_unsigned()), anchor: wall(8)? }
        }
        _ => Timing::Cron {
            expr: row.get_ref(9)?.as_str_or_null()?.ok_or_else(missing)?.into(),
            zone: row.get_ref(10)?.as_str_or_null()?.map(stored_name).transpose()?,
        },
    };
    let spec = ScheduleSpec {
        name: stored_name(row.get_ref(2)?.as_str()?)?,
        owner: row.get_ref(3)?.as_str_or_null()?.map(stored_name).transpose()?,
        enabled: number(row, 4)? != 0,
        timing,
        job: read_template(tenant.clone(), row.get_ref(11)?.as_blob()?, &mut |text| names.name(text))?,
        tenant,
        delete_after_run: Some(number(row, 12)? != 0),
        catch_up: catch_up_of(row.get_ref(13)?.as_i64()?)?,
        overlap: stored_overlap(small(row, 14)?)?,
        jitter: Span(number(row, 15)?),
        payload: Bytes::from(row.get_ref(25)?.as_blob()?),
        note: Bytes::from(row.get_ref(26)?.as_blob()?),
    };
    let status = row.get_ref(22)?.as_i64_or_null()?;
    let status = status.map(|code| stored_firing_status(u8::try_from(code).unwrap_or(u8::MAX)));
    Ok(Schedule {
        id: stored_schedule_id(row.get_ref(0)?.as_blob()?)?,
        spec,
        created_at: Wall(row.get_ref(16)?.as_i64()?),
        updated_at: Wall(row.get_ref(17)?.as_i64()?),
        state: ScheduleState {
            next_at: wall(18)?,
            last_slot: wall(19)?,
            waiting_slot: wall(20)?,
            last_ended_at: wall(21)?,
            last_status: status.transpose()?,
            last_error: row.get_ref(23)?.as_str_or_null()?.map(Into::into),
            firings: number(row, 24)?,
        },
    })
}

pub(crate) fn catch_up_code(catch_up: CatchUp) -> i64 {
    match catch_up {
        CatchUp::Skip => -1,
        CatchUp::Latest => 0,
        CatchUp::All { max } => max.into(),
    }
}

pub(crate) fn catch_up_of(code: i64) -> Result<CatchUp, StoreError> {
    match code {
        -1 => Ok(CatchUp::Skip),
        0 => Ok(CatchUp::Latest),
        max => match u32::try_from(max) {
            Ok(max) => Ok(CatchUp::All { max }),
            Err(_) => Err(StoreError::Damaged(format!("there is no catch-up {max}"))),
        },
    }
}
