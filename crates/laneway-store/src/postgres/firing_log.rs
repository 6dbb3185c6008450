//! The firing log: written beside the ends of jobs in the same transaction, read in pages, pruned by age and number.

use laneway_core::schedule::RECENT_FIRINGS_MAX;
use laneway_core::{FiringLogEntry, Name};

use super::cells::{id, int, name, number, opt_text, own_blob};
use super::script::Script;
use super::session::{ReadError, Session};
use crate::batch::FiringLogPrune;
use crate::columns::firing_log::{ENTRY, read_entry};
use crate::columns::number as number_at;
use crate::{FiringLogFilter, FiringLogPage, Loaded};

/// Stores an entry.
pub(super) fn insert<'a>(entry: &'a FiringLogEntry, script: &mut Script<'a>) {
    let FiringLogEntry {
        number: entry_number,
        schedule,
        tenant,
        name: schedule_name,
        agent,
        job,
        slot,
        status,
        summary,
        error,
        attempts,
        duration_ms,
        input_tokens,
        output_tokens,
        ran_at,
        ended_at,
    } = entry;
    let sql = format!(
        "INSERT INTO laneway.firing_log ({ENTRY}) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
    );
    script.any(
        "firing_log",
        sql,
        vec![
            number(*entry_number),
            id(schedule.0),
            name(tenant),
            name(schedule_name),
            name(agent),
            own_blob(job.map(|job| job.0.to_be_bytes().to_vec())),
            int(slot.0),
            int(status.code()),
            opt_text(summary.as_deref()),
            opt_text(error.as_deref()),
            int(*attempts),
            number(*duration_ms),
            number(*input_tokens),
            number(*output_tokens),
            int(ran_at.0),
            int(ended_at.0),
        ],
    );
    script.any(
        "firing_count",
        "INSERT INTO laneway.firing_count (schedule, tenant, entries) VALUES ($1, $2, 1) \
         ON CONFLICT (schedule) DO UPDATE SET entries = firing_count.entries + 1",
        vec![id(schedule.0), name(tenant)],
    );
}

/// What follows a deletion of entries, named `gone`: their schedules have fewer.
const COUNT_DOWN: &str = "counted AS (SELECT schedule, count(*) AS entries FROM gone GROUP BY schedule) \
     UPDATE laneway.firing_count SET entries = firing_count.entries - counted.entries FROM counted \
     WHERE firing_count.schedule = counted.schedule";

/// Deletes old entries of the log, and slots that can never fire again.
pub(super) fn prune(prune: &FiringLogPrune, script: &mut Script<'_>) {
    // Up to the first one that is young enough: a walk through all of them would take too long.
    let sql = format!(
        "WITH oldest AS (SELECT number, bool_or(ended_at >= $1) OVER (ORDER BY number) AS young \
         FROM (SELECT number, ended_at FROM laneway.firing_log ORDER BY number LIMIT $2) AS first), \
         gone AS (DELETE FROM laneway.firing_log USING oldest WHERE firing_log.number = oldest.number AND NOT oldest.young \
         RETURNING firing_log.schedule), {COUNT_DOWN}"
    );
    script.any("firing_log", sql, vec![int(prune.ended_before.0), int(prune.max)]);
    let sql = format!(
        "WITH crowded AS (SELECT schedule, entries - $1 AS over, \
         (sum(entries - $1) OVER (ORDER BY schedule))::int8 AS up_to FROM laneway.firing_count WHERE entries > $1), \
         doomed AS (SELECT entry.number FROM crowded CROSS JOIN LATERAL (SELECT number FROM laneway.firing_log \
         WHERE firing_log.schedule = crowded.schedule ORDER BY number \
         LIMIT greatest(0, least(over, $2 - (up_to - over)))) AS entry), \
         gone AS (DELETE FROM laneway.firing_log USING doomed WHERE firing_log.number = doomed.number \
         RETURNING firing_log.schedule), {COUNT_DOWN}"
    );
    script.any("firing_log", sql, vec![int(prune.keep), int(prune.max)]);
    script.any("firing_count", "DELETE FROM laneway.firing_count WHERE entries = 0", vec![]);
    script.any(
        "schedule_slot",
        "DELETE FROM laneway.schedule_slot WHERE (schedule, slot) IN \
         (SELECT schedule, slot FROM laneway.schedule_slot WHERE slot < $1 ORDER BY slot, schedule LIMIT $2)",
        vec![int(prune.slots_before.0), int(prune.max)],
    );
}

/// Visits the newest entries of the firing log, oldest first.
pub(super) fn load(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = format!("SELECT {ENTRY} FROM laneway.firing_log ORDER BY number DESC LIMIT $1");
    let mut rows = session.rows(&sql, vec![number(RECENT_FIRINGS_MAX as u64)])?;
    rows.reverse();
    for row in &rows {
        visit(Loaded::FiringLogEntry(Box::new(read_entry(row)?)));
    }
    Ok(())
}

/// Entries before number `before`, newest first.
pub(super) fn list(
    session: &Session,
    filter: &FiringLogFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<FiringLogPage, ReadError> {
    let FiringLogFilter { tenant, schedule } = filter;
    let key = || own_blob(schedule.map(|id| id.0.to_be_bytes().to_vec()));
    let owner = || opt_text(tenant.as_ref().map(Name::as_str));
    // One statement for each filter, so that each finds its index.
    let wanted = match (schedule, tenant) {
        (Some(_), _) => "schedule = $1 AND ($2 IS NULL OR tenant = $2)",
        (None, Some(_)) => "$1 IS NULL AND tenant = $2",
        (None, None) => "$1 IS NULL AND $2 IS NULL",
    };
    let sql = format!("SELECT coalesce(sum(entries), 0)::int8 FROM laneway.firing_count WHERE {wanted}");
    let total = session.row(&sql, vec![key(), owner()])?.map_or(Ok(0), |row| number_at(&row, 0))?;
    let sql = format!(
        "SELECT {ENTRY} FROM laneway.firing_log WHERE {wanted} AND number < $3 ORDER BY number DESC LIMIT $4"
    );
    let before = before.map_or(i64::MAX, |number| i64::try_from(number).unwrap_or(i64::MAX));
    let limit = limit.max(1);
    let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut page = FiringLogPage { items: Vec::new(), next: None, total };
    for row in session.rows(&sql, vec![key(), owner(), int(before), int(most)])? {
        if page.items.len() >= limit {
            page.next = page.items.last().map(|entry: &FiringLogEntry| entry.number);
            break;
        }
        page.items.push(read_entry(&row)?);
    }
    Ok(page)
}
