//! Lists and counts of jobs. The server compares what has a column; words and tags are compared here.

use laneway_core::{JobState, Seq};

use super::candidates::Candidates;
use super::cells::{Param, int, opt_wall};
use super::query::{view, view_sql, views_at, wanted};
use super::session::{ReadError, Session};
use crate::columns::{Columns, number, small};
use crate::rows::{Interner, stored_name, stored_state};
use crate::{CountBy, JobCounts, JobFilter, JobView, Page, StateCounts};

/// The state of a job, from its end, its open attempt, or its own row.
const STATE: &str = "coalesce(done.state, open_attempt.state, job.state)";
/// The tables that [`STATE`] and [`conditions`] read.
const TABLES: &str = "laneway.job LEFT JOIN laneway.open_attempt ON open_attempt.seq = job.seq \
     LEFT JOIN laneway.done ON done.seq = job.seq";
/// How many jobs one call looks at: a page takes less than 50 ms, and may be short.
const SCANNED_MAX: usize = CHUNK_MAX;
/// How many jobs one call reads to find words or a tag.
const SEARCHED_MAX: usize = 2_048;
/// The most rows that one statement looks at.
const CHUNK_MAX: usize = 8_192;

/// What of a filter the server compares: the condition and its parameters, which are numbered from `from` on.
fn conditions(filter: &JobFilter, from: usize) -> (String, Vec<Param<'_>>) {
    let JobFilter {
        tenant,
        states,
        reasons,
        lane,
        agent,
        kind,
        session,
        tag: _,
        error_code,
        search: _,
        created_before,
        created_after,
        finished_before,
        finished_after,
    } = filter;
    let (mut sql, mut params) = (String::from("true"), Vec::new());
    let codes = |codes: Vec<u8>| Param::Ints(codes.into_iter().map(|code| Some(code.into())).collect());
    let found = [
        ("job.tenant = $n", wanted(tenant.as_ref()), tenant.is_some()),
        ("job.lane = $n", wanted(lane.as_ref()), lane.is_some()),
        ("job.agent = $n", wanted(agent.as_ref()), agent.is_some()),
        ("job.kind = $n", wanted(kind.as_ref()), kind.is_some()),
        ("job.session = $n", wanted(session.as_ref()), session.is_some()),
        ("done.error_code = $n", wanted(error_code.as_ref()), error_code.is_some()),
        ("job.created_at < $n", opt_wall(*created_before), created_before.is_some()),
        ("job.created_at > $n", opt_wall(*created_after), created_after.is_some()),
        ("done.finished_at < $n", opt_wall(*finished_before), finished_before.is_some()),
        ("done.finished_at > $n", opt_wall(*finished_after), finished_after.is_some()),
        (
            "done.reason = ANY($n)",
            codes(reasons.iter().map(|reason| reason.code()).collect()),
            !reasons.is_empty(),
        ),
    ];
    for (condition, param, given) in found {
        if given {
            sql_push(&mut sql, condition, from + params.len());
            params.push(param);
        }
    }
    if !states.is_empty() {
        sql_push(&mut sql, &format!("{STATE} = ANY($n)"), from + params.len());
        params.push(codes(states.iter().map(|state| state.code()).collect()));
    }
    (sql, params)
}

fn sql_push(sql: &mut String, condition: &str, number: usize) {
    sql.push_str(" AND ");
    sql.push_str(&condition.replace("$n", &format!("${number}")));
}

/// Jobs, newest first.
pub(super) fn jobs(
    session: &Session,
    filter: &JobFilter,
    before: Option<Seq>,
    limit: usize,
) -> Result<Page<JobView>, ReadError> {
    let limit = limit.max(1);
    let mut before = before.map_or(i64::MAX, |seq| i64::try_from(seq.0).unwrap_or(i64::MAX));
    let mut page = Page { items: Vec::new(), next: None };
    let (mut scanned, mut last) = (0, None);
    let mut chunk = limit.saturating_add(1).min(CHUNK_MAX);
    let candidates = Candidates::of(filter);
    // Words and tags are in the forms of jobs, which are read one by one.
    let in_forms = filter.search.is_some() || filter.tag.is_some();
    let scanned_max = if in_forms { SEARCHED_MAX } else { SCANNED_MAX };
    loop {
        // The rows to look at are chosen first, so that a filter that matches nothing reads a bounded number of them.
        let (from, mut params) = candidates.before(session, before, chunk)?;
        let (shown, more) = conditions(filter, params.len() + 1);
        params.extend(more);
        let sql = format!(
            "SELECT job.seq, {shown} FROM (SELECT job.* FROM {from}) AS job \
             LEFT JOIN laneway.open_attempt ON open_attempt.seq = job.seq LEFT JOIN laneway.done ON done.seq = job.seq \
             ORDER BY job.seq DESC"
        );
        let rows = session.rows(&sql, params)?;
        let (mut looked_at, mut shown) = (Vec::new(), Vec::new());
        for row in &rows {
            let seq = Seq(number(row, 0)?);
            looked_at.push(seq);
            if row.get_ref(1)?.as_i64_or_null()? == Some(1) {
                shown.push(seq);
            }
        }
        let mut found = views_at(session, &shown)?.into_iter().peekable();
        for seq in looked_at {
            if page.items.len() >= limit || scanned >= scanned_max {
                page.next = last;
                return Ok(page);
            }
            scanned += 1;
            last = Some(seq.0);
            page.items.extend(found.next_if(|job| job.row.seq == seq).filter(|job| filter.matches(job)));
        }
        if rows.len() < chunk {
            return Ok(page);
        }
        before = last.unwrap_or_default().cast_signed();
        chunk = (chunk * 4).min(CHUNK_MAX);
    }
}

/// How many jobs a filter matches.
pub(super) fn count_jobs(
    session: &Session,
    filter: &JobFilter,
    by: CountBy,
) -> Result<Option<JobCounts>, ReadError> {
    if filter.tag.is_some() || filter.search.is_some() {
        return count_one_by_one(session, filter, by).map(Some);
    }
    let group = match by {
        CountBy::Nothing => "NULL::text",
        CountBy::Lane => "job.lane",
        CountBy::Kind => "job.kind",
        CountBy::Agent => "job.agent",
        CountBy::ErrorCode => "done.error_code",
    };
    let (shown, params) = conditions(filter, 1);
    let sql = format!("SELECT {STATE}, {group}, count(*) FROM {TABLES} WHERE {shown} GROUP BY 1, 2");
    let mut counts = JobCounts::default();
    for row in &session.rows(&sql, params)? {
        let state: JobState = stored_state(small(row, 0)?)?;
        let count = number(row, 2)?;
        counts.all.add(state, count);
        if let Some(group) = row.get_ref(1)?.as_str_or_null()? {
            let group: &mut StateCounts = counts.groups.entry(stored_name(group)?).or_default();
            group.add(state, count);
        }
    }
    Ok(Some(counts.bounded()))
}

/// Counts jobs whose words or tags must be compared here.
fn count_one_by_one(session: &Session, filter: &JobFilter, by: CountBy) -> Result<JobCounts, ReadError> {
    let mut names = Interner::default();
    let mut counts = JobCounts::default();
    let mut before = i64::MAX;
    loop {
        let (shown, params) = conditions(filter, 3);
        let sql = format!("{} LIMIT $2", view_sql(&format!("job.seq < $1 AND {shown}")));
        let all = [int(before), int(CHUNK_MAX as i64)].into_iter().chain(params).collect();
        let rows = session.rows(&sql, all)?;
        for row in &rows {
            let job = view(row, &mut names)?;
            before = job.row.seq.0.cast_signed();
            if filter.matches(&job) {
                counts.all.add(job.state(), 1);
                if let Some(group) = by.group_of(&job) {
                    counts.groups.entry(group).or_default().add(job.state(), 1);
                }
            }
        }
        if rows.len() < CHUNK_MAX {
            return Ok(counts.bounded());
        }
    }
}
