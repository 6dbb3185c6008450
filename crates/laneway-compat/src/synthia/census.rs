//! Counting jobs of a lane: by state, priority and add-on. Off the loop, over the store, and only so many.

use std::collections::BTreeMap;

use laneway_core::{JobState, Name, Seq, Span, Wall};
use laneway_runtime::Caller;
use laneway_runtime::store::{JobFilter, JobView, Reader, StoreError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Synthia;
use super::error::Problem;
use super::words::{DEPTHS, intent_state, priority_word};

/// Most jobs that are counted; beyond it figures are of the newest ones.
const COUNTED_MAX: usize = 20_000;
/// How many jobs are read at once.
const PAGE: usize = 1_000;
/// States of jobs that have not ended.
const LIVE: [JobState; 4] = [JobState::Scheduled, JobState::Queued, JobState::Assigned, JobState::Running];

/// What lives in a lane.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// How many of each state, in the words of intents.
    pub by_state: BTreeMap<&'static str, u64>,
    /// How many wait of each priority.
    pub waiting: BTreeMap<&'static str, u64>,
    /// How many of each add-on.
    pub addons: BTreeMap<String, Addon>,
    /// When the oldest that waits was submitted.
    pub oldest_waiting: Option<Wall>,
    /// Units of jobs that are set aside and not yet taken.
    pub reserved_units: u64,
}

/// What an add-on has.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Addon {
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that are set aside for it.
    pub dispatching: u64,
    /// Jobs that run.
    pub running: u64,
}

impl Census {
    fn count(&mut self, view: &JobView) {
        let (row, state) = (&view.row, view.state());
        *self.by_state.entry(intent_state(state)).or_default() += 1;
        let addon = self.addons.entry(row.spec.agent.to_string()).or_default();
        match state {
            JobState::Assigned => {
                addon.dispatching += 1;
                if view.open.as_ref().is_some_and(|open| open.holder.is_none()) {
                    self.reserved_units += u64::from(row.spec.needs.cost);
                }
            }
            JobState::Running => addon.running += 1,
            _ => {
                addon.queued += 1;
                *self.waiting.entry(priority_word(row.spec.priority)).or_default() += 1;
                let older = self.oldest_waiting.is_none_or(|oldest| row.created_at < oldest);
                if older {
                    self.oldest_waiting = Some(row.created_at);
                }
            }
        }
    }
}

impl Synthia {
    /// Counts what lives in a lane.
    pub async fn census(&self, caller: &Caller, lane: &'static str) -> Result<Census, Problem> {
        let filter = JobFilter { states: LIVE.to_vec(), ..of_lane(caller, lane) };
        let count = move |reader: &dyn Reader| {
            let mut census = Census::default();
            walk(reader, &filter, &mut |view| census.count(view))?;
            Ok(census)
        };
        Ok(self.scheduler.query(count).await?)
    }

    /// How long a lease of this lane lives without a word.
    pub async fn lease_ttl(&self, lane: &str) -> Result<Span, Problem> {
        let lane = lane.to_owned();
        let ttl = self.scheduler.read(move |engine, _| {
            let settings = engine.settings();
            let own = settings.lanes.get(lane.as_str()).and_then(|lane| lane.pull.lease);
            own.unwrap_or(settings.lease)
        });
        Ok(ttl.await?)
    }
}

/// How many jobs a lane has, ended ones included.
pub async fn total_of(synthia: &Synthia, caller: &Caller, lane: &'static str) -> Result<u64, Problem> {
    let filter = of_lane(caller, lane);
    let count = move |reader: &dyn Reader| {
        let mut total = 0;
        walk(reader, &filter, &mut |_| total += 1)?;
        Ok(total)
    };
    Ok(synthia.scheduler.query(count).await?)
}

/// Every job of a lane that the caller sees.
pub fn of_lane(caller: &Caller, lane: &'static str) -> JobFilter {
    JobFilter { tenant: caller.scope().cloned(), lane: Some(Name::fixed(lane)), ..JobFilter::default() }
}

/// Looks at the jobs of a filter, newest first, and only so many.
pub fn walk(
    reader: &dyn Reader,
    filter: &JobFilter,
    visit: &mut dyn FnMut(&JobView),
) -> Result<(), StoreError> {
    let (mut left, mut before) = (COUNTED_MAX, None);
    while left > 0 {
        let page = reader.jobs(filter, before, PAGE.min(left))?;
        page.items.iter().for_each(&mut *visit);
        // A page without a match has cost a look, too.
        left = left.saturating_sub(page.items.len().max(1));
        match page.next {
            Some(next) => before = Some(Seq(next)),
            None => break,
        }
    }
    Ok(())
}

/// How many jobs wait of each priority; urgent ones count as high, which their clients know.
pub fn depths(census: &Census) -> Value {
    let of = |word: &str| census.waiting.get(word).copied().unwrap_or(0);
    let depth = |word: &&'static str| {
        let depth = of(word) + if *word == "high" { of("urgent") } else { 0 };
        ((*word).to_owned(), Value::from(depth))
    };
    Value::Object(DEPTHS.iter().map(depth).collect::<Map<String, Value>>())
}
