//! Applies the changes of runs to the memory store, and takes them back.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_core::{CallRow, Change, EndedMember, RunRow, Seq, Wall};

use super::state::State;
use crate::StoreError;

/// What runs and calls were before a commit touched them; `None`: it was not there.
#[derive(Default)]
pub(super) struct Before {
    pub rows: BTreeMap<Seq, Option<Arc<RunRow>>>,
    pub calls: BTreeMap<Seq, Option<Arc<CallRow>>>,
}

/// Applies one change of a run itself.
pub(super) fn apply(state: &mut State, change: &Change, before: &mut Before) -> Result<(), StoreError> {
    match change {
        Change::RunCreated(row) => {
            let rejected = |what: &str| Err(StoreError::Rejected(format!("{}: {what} is taken", row.id)));
            if state.run_rows.contains_key(&row.first) {
                return rejected("its number");
            }
            if state.run_rows.values().any(|other| other.id == row.id) {
                return rejected("its id");
            }
            let key = |row: &RunRow| row.spec.idempotency.as_ref().map(|key| key.key.clone());
            let same_key = |other: &&Arc<RunRow>| {
                key(row).is_some() && key(other) == key(row) && other.spec.tenant == row.spec.tenant
            };
            if state.run_rows.values().any(|other| same_key(&other)) {
                return rejected("its idempotency key");
            }
            before.rows.entry(row.first).or_insert(None);
            state.run_rows.insert(row.first, Arc::new(RunRow::clone(row)));
        }
        Change::RunMoved { first, state: moved, finished_at } => {
            let Some(row) = state.run_rows.get_mut(first) else {
                return Err(StoreError::Disagree(format!("the run from job {} on is not stored", first.0)));
            };
            before.rows.entry(*first).or_insert_with(|| Some(Arc::clone(row)));
            let row = Arc::make_mut(row);
            (row.state, row.finished_at) = (*moved, *finished_at);
        }
        Change::CallPut(row) => {
            let was = state.calls.insert(row.target, Arc::new(CallRow::clone(row)));
            before.calls.entry(row.target).or_insert(was);
        }
        _ => {}
    }
    Ok(())
}

/// Takes everything back.
pub(super) fn undo(state: &mut State, before: Before) {
    for (target, was) in before.calls {
        match was {
            Some(row) => drop(state.calls.insert(target, row)),
            None => drop(state.calls.remove(&target)),
        }
    }
    for (first, was) in before.rows {
        match was {
            Some(row) => drop(state.run_rows.insert(first, row)),
            None => drop(state.run_rows.remove(&first)),
        }
    }
}

/// Ended runs that may be forgotten, those that ended first first, until `max` jobs are reached.
pub(super) fn due(
    state: &State,
    lane: &laneway_core::Name,
    finished_before: Wall,
    keyed_finished_before: Wall,
    max: u32,
) -> Vec<Arc<RunRow>> {
    let is_due = |row: &&Arc<RunRow>| {
        let keyed = row.spec.idempotency.is_some();
        let ended_before = |time: Wall| row.finished_at.is_some_and(|at| at < time);
        row.spec.lane == *lane
            && ended_before(finished_before)
            && (!keyed || ended_before(keyed_finished_before))
            && row
                .seqs()
                .all(|seq| state.jobs.get(&Seq(seq)).is_none_or(|job| job.open.is_none() && !job.is_owed()))
    };
    let mut rows: Vec<Arc<RunRow>> = state.run_rows.values().filter(is_due).cloned().collect();
    rows.sort_by_key(|row| (row.finished_at, row.first));
    let mut left = i64::from(max);
    rows.retain(|row| {
        let taken = left > 0;
        left -= row.nodes.len() as i64;
        taken
    });
    rows
}

/// The calls of a run's nodes.
pub(super) fn calls<'a>(state: &'a State, row: &RunRow) -> impl Iterator<Item = &'a Arc<CallRow>> {
    state.calls.range(Seq(row.seqs().start)..Seq(row.seqs().end)).map(|(_, call)| call)
}

/// Those members of a run that have ended.
pub(super) fn ended_members(state: &State, row: &RunRow) -> Vec<EndedMember> {
    let members = row.seqs().filter_map(|seq| state.jobs.get(&Seq(seq)));
    members.filter_map(|job| Some(EndedMember::of(job.row.id, &job.end.as_ref()?.0))).collect()
}
