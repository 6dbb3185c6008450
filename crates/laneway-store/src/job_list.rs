//! Lists of jobs: which jobs a list shows, and how many there are.

use std::collections::BTreeMap;

use laneway_core::{JobRow, JobState, Name, Reason, Wall};

use crate::{JobView, Search};

/// Most groups that one call counts. A store may have as many agents as jobs.
pub const GROUPS_MAX: usize = 1_000;

/// Which jobs a list shows; `None` and empty mean: any. A job must meet all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only this tenant's.
    pub tenant: Option<Name>,
    /// Only in one of these states.
    pub states: Vec<JobState>,
    /// Only ended for one of these reasons.
    pub reasons: Vec<Reason>,
    /// Only in this lane.
    pub lane: Option<Name>,
    /// Only of this agent.
    pub agent: Option<Name>,
    /// Only of this kind.
    pub kind: Option<Name>,
    /// Only of this session.
    pub session: Option<Name>,
    /// Only with this tag.
    pub tag: Option<Name>,
    /// Only ended with an error of this code.
    pub error_code: Option<Name>,
    /// Only with these words.
    pub search: Option<Search>,
    /// Only submitted before this time.
    pub created_before: Option<Wall>,
    /// Only submitted after this time.
    pub created_after: Option<Wall>,
    /// Only ended before this time.
    pub finished_before: Option<Wall>,
    /// Only ended after this time.
    pub finished_after: Option<Wall>,
}

impl JobFilter {
    /// Does the list show this job?
    pub fn matches(&self, job: &JobView) -> bool {
        self.matches_row(&job.row)
            && (self.states.is_empty() || self.states.contains(&job.state()))
            && self.matches_end(job)
            && self.search.as_ref().is_none_or(|search| search.matches(job))
    }

    /// The part of [`JobFilter::matches`] that the stored row alone answers.
    pub(crate) fn matches_row(&self, row: &JobRow) -> bool {
        let JobFilter {
            tenant,
            lane,
            agent,
            kind,
            session,
            tag,
            created_before,
            created_after,
            states: _,
            reasons: _,
            error_code: _,
            search: _,
            finished_before: _,
            finished_after: _,
        } = self;
        let spec = &row.spec;
        let is = |wanted: &Option<Name>, name: &Name| wanted.as_ref().is_none_or(|wanted| wanted == name);
        is(tenant, &spec.tenant)
            && is(lane, &spec.lane)
            && is(agent, &spec.agent)
            && is(kind, &spec.kind)
            && session.as_ref().is_none_or(|key| spec.session.as_ref().is_some_and(|s| s.key == *key))
            && tag.as_ref().is_none_or(|tag| spec.tags.contains(tag))
            && created_before.is_none_or(|time| row.created_at < time)
            && created_after.is_none_or(|time| row.created_at > time)
    }

    /// True when only jobs that have ended can match.
    pub fn is_about_ends(&self) -> bool {
        !self.reasons.is_empty()
            || self.error_code.is_some()
            || self.finished_before.is_some()
            || self.finished_after.is_some()
    }

    fn matches_end(&self, job: &JobView) -> bool {
        if !self.is_about_ends() {
            return true;
        }
        let Some(end) = &job.end else { return false };
        let code = end.error.as_ref().map(|error| &error.code);
        (self.reasons.is_empty() || self.reasons.contains(&end.reason))
            && (self.error_code.is_none() || self.error_code.as_ref() == code)
            && self.finished_before.is_none_or(|time| end.finished_at < time)
            && self.finished_after.is_none_or(|time| end.finished_at > time)
    }
}

/// What counted jobs are grouped by, beside their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountBy {
    /// Nothing: one sum.
    #[default]
    Nothing,
    /// The lane.
    Lane,
    /// The kind.
    Kind,
    /// The agent.
    Agent,
    /// The code of the error. Jobs without an error are in no group.
    ErrorCode,
}

impl CountBy {
    /// The name of a job's group, if it has one.
    pub fn group_of(self, job: &JobView) -> Option<Name> {
        let spec = &job.row.spec;
        match self {
            CountBy::Nothing => None,
            CountBy::Lane => Some(spec.lane.clone()),
            CountBy::Kind => Some(spec.kind.clone()),
            CountBy::Agent => Some(spec.agent.clone()),
            CountBy::ErrorCode => Some(job.end.as_ref()?.error.as_ref()?.code.clone()),
        }
    }
}

/// How many jobs a filter matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// All of them, by state.
    pub all: StateCounts,
    /// The jobs of each group, by the name of the group. Groups without a job are left out. Where there are more than
    /// [`GROUPS_MAX`], the largest ones are here.
    pub groups: BTreeMap<Name, StateCounts>,
    /// How many groups are left out.
    pub more_groups: u64,
}

impl JobCounts {
    /// Leaves out the smallest groups, where there are too many.
    pub fn bounded(mut self) -> JobCounts {
        if self.groups.len() > GROUPS_MAX {
            let mut groups: Vec<(Name, StateCounts)> = self.groups.into_iter().collect();
            groups.sort_by(|(left, a), (right, b)| b.sum().cmp(&a.sum()).then_with(|| left.cmp(right)));
            self.more_groups += (groups.len() - GROUPS_MAX) as u64;
            groups.truncate(GROUPS_MAX);
            self.groups = groups.into_iter().collect();
        }
        self
    }
}

/// Numbers of jobs by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts([u64; JobState::ALL.len()]);

impl StateCounts {
    /// How many are in this state.
    pub fn get(&self, state: JobState) -> u64 {
        self.0[usize::from(state.code())]
    }

    /// Counts more jobs in a state.
    pub fn add(&mut self, state: JobState, count: u64) {
        self.0[usize::from(state.code())] += count;
    }

    /// How many there are in all.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The states that have jobs, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (JobState, u64)> + '_ {
        JobState::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}
