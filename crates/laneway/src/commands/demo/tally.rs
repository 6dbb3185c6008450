//! Counts the events of the demo.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use laneway_wire::Event;

/// How many jobs are tracked at once for their waits; more are not measured.
const WATCHED_MAX: usize = 10_000;
/// How many waits are kept for each lane.
const WAITS_MAX: usize = 10_000;

/// The counts so far.
#[derive(Default)]
pub struct Tally {
    /// By lane.
    pub lanes: BTreeMap<String, LaneTally>,
    /// When jobs that have not started yet were submitted, in milliseconds.
    submitted_ms: HashMap<String, i64>,
}

/// The counts of a lane.
#[derive(Default)]
pub struct LaneTally {
    pub submitted: u64,
    pub started: u64,
    pub retried: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub canceled: u64,
    /// From submit to first start, in milliseconds.
    waits_ms: Vec<u64>,
}

impl Tally {
    /// Counts one event.
    pub fn add(&mut self, event: &Event) {
        if let Some(job) = &event.job {
            let at_ms = event.at.parse::<Timestamp>().map(Timestamp::as_millisecond).ok();
            let lane = self.lanes.entry(job.lane.clone()).or_default();
            match event.kind.as_str() {
                "job.submitted" => {
                    lane.submitted += 1;
                    if let Some(at_ms) = at_ms
                        && self.submitted_ms.len() < WATCHED_MAX
                    {
                        self.submitted_ms.insert(job.id.clone(), at_ms);
                    }
                }
                "job.started" => {
                    lane.started += 1;
                    let waited = at_ms.zip(self.submitted_ms.remove(&job.id)).map(|(to, from)| to - from);
                    if let Some(waited) = waited
                        && lane.waits_ms.len() < WAITS_MAX
                    {
                        lane.waits_ms.push(waited.max(0).unsigned_abs());
                    }
                }
                "job.retrying" => lane.retried += 1,
                "job.succeeded" => lane.succeeded += 1,
                "job.failed" => lane.failed += 1,
                "job.canceled" => {
                    lane.canceled += 1;
                    self.submitted_ms.remove(&job.id);
                }
                _ => {}
            }
        }
    }

    /// Ends of jobs in every lane.
    pub fn ended(&self) -> u64 {
        self.lanes.values().map(|lane| lane.succeeded + lane.failed + lane.canceled).sum()
    }
}

impl LaneTally {
    /// The median and the 95th percentile of the waits.
    pub fn wait_quantiles_ms(&self) -> Option<(u64, u64)> {
        let mut waits = self.waits_ms.clone();
        waits.sort_unstable();
        let last = waits.len().checked_sub(1)?;
        Some((waits[last / 2], waits[last * 95 / 100]))
    }
}

#[cfg(test)]
mod tests {
    use laneway_wire::EventJob;

    use super::*;

    fn event(kind: &str, at: &str) -> Event {
        let job = EventJob {
            id: "j".into(),
            kind: "k".into(),
            lane: "l".into(),
            agent: "a".into(),
            attempt: 1,
            reason: None,
        };
        Event {
            run: None,
            number: 1,
            at: at.into(),
            kind: kind.into(),
            tenant: None,
            job: Some(job),
            schedule: None,
            error: None,
            actor: None,
            request_id: None,
            detail: None,
        }
    }

    #[test]
    fn waits_are_measured_from_submit_to_first_start() {
        let mut tally = Tally::default();
        tally.add(&event("job.submitted", "2030-01-01T00:00:00Z"));
        tally.add(&event("job.started", "2030-01-01T00:00:00.250Z"));
        tally.add(&event("job.retrying", "2030-01-01T00:00:01Z"));
        tally.add(&event("job.started", "2030-01-01T00:00:09Z"));
        tally.add(&event("job.succeeded", "2030-01-01T00:00:10Z"));
        let lane = &tally.lanes["l"];
        assert_eq!((lane.submitted, lane.started, lane.retried, lane.succeeded), (1, 2, 1, 1));
        assert_eq!(lane.wait_quantiles_ms(), Some((250, 250)));
        assert_eq!(tally.ended(), 1);
    }
}
