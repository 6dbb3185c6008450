//! Counts jobs of a lane by state, priority and add-on. It reads the store, not the loop, up to a limit.

use std::collections::BTreeMap;

use laneway_core::{JobState, Name, Seq, Wall};
use laneway_runtime::Caller;
use laneway_runtime::store::{JobFilter, JobView, Reader, StoreError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Synthia;
use super::error::Problem;
use super::vocabulary::{DEPTHS, intent_state, priority_name};

/// Most jobs that are counted. Beyond it, the counts cover the newest jobs.
const COUNTED_MAX: usize = 20_000;
/// How many jobs are read at once.
const PAGE: usize = 1_000;
/// States of jobs that have not ended.
const LIVE: [JobState; 4] = [JobState::Scheduled, JobState::Queued, JobState::Assigned, JobState::Running];

/// The live jobs of a lane.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Jobs by the dialect's name of the state.
    pub by_state: BTreeMap<&'static str, u64>,
    /// Waiting jobs by priority.
    pub waiting: BTreeMap<&'static str, u64>,
    /// Jobs by add-on.
    pub addons: BTreeMap<String, Addon>,
    /// When the oldest waiting job was submitted.
    pub oldest_waiting: Option<Wall>,
    /// Units of reserved jobs that no worker has claimed.
    pub reserved_units: u64,
}

/// The jobs of an add-on.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Addon {
    /// Waiting jobs.
    pub queued: u64,
    /// Reserved jobs.
    pub dispatching: u64,
    /// Running jobs.
    pub running: u64,
}

impl Counts {
    fn count(&mut self, view: &JobView) {
        let (row, state) = (&view.row, view.state());
        *self.by_state.entry(intent_state(state)).or_default() += 1;
        let addon = self.addons.entry(row.spec.agent.to_string()).or_default();
        match state {
            JobState::Assigned => {
                addon.dispatching += 1;
                if view.open.as_ref().is_some_and(|open| open.holder.is_none()) {
                    self.reserved_units += u64::from(row.spec.capacity.cost);
                }
            }
            JobState::Running => addon.running += 1,
            _ => {
                addon.queued += 1;
                *self.waiting.entry(priority_name(row.spec.priority)).or_default() += 1;
                let older = self.oldest_waiting.is_none_or(|oldest| row.created_at < oldest);
                if older {
                    self.oldest_waiting = Some(row.created_at);
                }
            }
        }
    }
}

impl Synthia {
    /// Counts the live jobs of a lane.
    pub async fn counts(&self, caller: &Caller, lane: &'static str) -> Result<Counts, Problem> {
        let filter = JobFilter { states: LIVE.to_vec(), ..of_lane(caller, lane) };
        let tenant = filter.tenant.clone();
        let count = move |reader: &dyn Reader| {
            let mut counts = Counts::default();
            walk(reader, &filter, &mut |view| counts.count(view))?;
            Ok(counts)
        };
        Ok(self.scheduler.list(tenant, count).await?)
    }
}

/// The number of jobs of a lane, including ended ones.
pub async fn total_of(synthia: &Synthia, caller: &Caller, lane: &'static str) -> Result<u64, Problem> {
    let filter = of_lane(caller, lane);
    let tenant = filter.tenant.clone();
    let count = move |reader: &dyn Reader| {
        let mut total = 0;
        walk(reader, &filter, &mut |_| total += 1)?;
        Ok(total)
    };
    Ok(synthia.scheduler.list(tenant, count).await?)
}

/// A filter for the jobs of a lane that the caller sees.
pub fn of_lane(caller: &Caller, lane: &'static str) -> JobFilter {
    JobFilter { tenant: caller.scope().cloned(), lane: Some(Name::fixed(lane)), ..JobFilter::default() }
}

/// Visits the jobs of a filter, newest first, up to the limit.
pub fn walk(
    reader: &dyn Reader,
    filter: &JobFilter,
    visit: &mut dyn FnMut(&JobView),
) -> Result<(), StoreError> {
    let (mut left, mut before) = (COUNTED_MAX, None);
    while left > 0 {
        let page = reader.jobs(filter, before, PAGE.min(left))?;
        page.items.iter().for_each(&mut *visit);
        // A page without a match counts as well.
        left = left.saturating_sub(page.items.len().max(1));
        match page.next {
            Some(next) => before = Some(Seq(next)),
            None => break,
        }
    }
    Ok(())
}

/// Waiting jobs by priority; urgent ones count as high, as clients expect.
pub fn depths(counts: &Counts) -> Value {
    let of = |name: &str| counts.waiting.get(name).copied().unwrap_or(0);
    let depth = |name: &&'static str| {
        let depth = of(name) + if *name == "high" { of("urgent") } else { 0 };
        ((*name).to_owned(), Value::from(depth))
    };
    Value::Object(DEPTHS.iter().map(depth).collect::<Map<String, Value>>())
}
