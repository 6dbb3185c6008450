//! Views agree with what is durable, and are of the caller's own tenant only (X1, X2).

use laneway_core::engine::{Explanation, Stats};
use laneway_core::{JobId, JobState, Name};

use super::Checker;
use crate::violation::{Checked, Violation, hold};

impl Checker {
    /// Statistics are those of the durable jobs, of this tenant where one is named.
    pub fn stats_agree(&self, tenant: Option<&Name>, stats: &Stats) -> Checked {
        let count = |counts: &dyn Fn(&crate::ledger::Entry) -> bool| {
            let mine = self
                .ledger
                .jobs
                .values()
                .filter(|entry| tenant.is_none_or(|tenant| *tenant == entry.row.spec.tenant));
            mine.filter(|entry| counts(entry)).count() as u64
        };
        let live = |state: JobState| count(&|entry| entry.end.is_none() && entry.state == state);
        let seen = (stats.scheduled, stats.queued, stats.assigned, stats.running, stats.still_running);
        let durable = (
            live(JobState::Scheduled),
            live(JobState::Queued),
            live(JobState::Assigned),
            live(JobState::Running),
            count(&|entry| entry.end.is_some() && entry.open.is_some()),
        );
        hold("X1", seen == durable, || format!("tenant {tenant:?} sees {seen:?}, durable is {durable:?}"))?;
        let theirs = tenant.is_some_and(|tenant| stats.agents.iter().any(|agent| agent.tenant != *tenant));
        hold("X1", !theirs, || format!("tenant {tenant:?} sees agents of another one"))
    }

    /// A live job of this tenant is explained, and one that waits waits for something.
    pub fn explained(&self, tenant: Option<&Name>, job: JobId, explanation: Option<&Explanation>) -> Checked {
        let live = self.ledger.find(job).filter(|entry| {
            entry.end.is_none() && tenant.is_none_or(|tenant| *tenant == entry.row.spec.tenant)
        });
        match (live, explanation) {
            (None, None) => Ok(()),
            (Some(entry), Some(explanation)) => {
                hold("X2", explanation.state == entry.state, || {
                    format!("job {job} is {}, and explained as {}", entry.state, explanation.state)
                })?;
                hold("X2", explanation.holds.is_empty() != entry.is_waiting(), || {
                    format!("job {job} is {}, and is blocked by {:?}", entry.state, explanation.holds)
                })
            }
            _ => {
                Err(Violation::new("X2", format!("job {job} is explained to {tenant:?} as {explanation:?}")))
            }
        }
    }
}
