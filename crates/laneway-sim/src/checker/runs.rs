//! Runs: a member starts only after what it depends on has ended well (R1), every join is released in the commit that ends
//! its last dependency and no member waits for an event that cannot come (R2), the state follows from the members (R3), attempts of a
//! run are numbered 1, 2, 3, … (R4), and a run that is canceled or failed leaves nothing behind (R5).

use laneway_core::command::WorkflowCommand;
use std::collections::BTreeSet;

use laneway_core::run::RunLine;
use laneway_core::{
    Change, Command, Effects, EventKind, FailurePolicy, JobEnd, JobRow, JobState, JobStatus, Member,
    MemberOf, Name, OpenAttempt, Rejection, RejectionCode, Reply, RunId, RunState, RunSubmission, Seq, Wall,
};

use super::admission::submit_number;
use super::{Checker, Given};
use crate::ledger::{Entry, Ledger, RunEntry};
use crate::shape::POISON_KIND;
use crate::violation::{Checked, Violation, hold};

impl Checker {
    /// The changes of a commit to runs, as far as they must be known before they are followed: the members that are asked to
    /// stop because their run ends.
    pub(super) fn members_stop(&mut self, effects: &Effects) {
        let stops = effects.changes.iter().filter_map(|change| match change {
            Change::JobEnded(end) if end.state == JobState::Canceled => Some((end.seq, true)),
            // A node that is called succeeds with its chain, whatever still runs of it.
            Change::JobEnded(end) if end.state == JobState::Succeeded => Some((end.seq, false)),
            _ => None,
        });
        self.canceled_now = stops.collect();
    }

    /// A run of a member is asked to stop in the commit that ends it with its run; whether that may be is judged with its end.
    pub(super) fn stops_with_its_run(&self, entry: &Entry) -> bool {
        let ends = self.canceled_now.get(&entry.row.seq);
        entry.row.spec.member.is_some() && ends.is_some_and(|canceled| *canceled || entry.is_called())
    }

    /// A member waits for others exactly if it names some, and is what was asked for.
    pub(super) fn member_may_be_created(&self, given: Given<'_>, row: &JobRow, number: u64) -> Checked {
        let asked = given.commands.iter().find_map(|command| match command {
            Command::Workflow(WorkflowCommand::Submit(run)) => {
                run.members.iter().find(|member| submit_number(&member.payload) == Some(number))
            }
            _ => None,
        });
        let (Some(of), Some(asked)) = (row.spec.member.as_deref(), asked) else {
            return hold("R1", row.spec.member.is_none() == asked.is_none(), || {
                format!(
                    "job {} is a member of a run and was not asked for so, or the other way round",
                    row.seq.0
                )
            });
        };
        let Member { node, bindings, chain, .. } = asked;
        let depends_on = waited_for(given, asked);
        let same =
            of.node == *node && of.depends_on == depends_on && of.bindings == *bindings && of.chain == *chain;
        let run = self.ledger.run_of(of.run);
        let position = run.and_then(|run| run.row.seq_of(node));
        hold("R1", same && position == Some(row.seq), || {
            format!("member {node} of {} is not what was asked for", of.run)
        })?;
        let waits = row.status.state == JobState::Scheduled && row.status.wake_at.is_none();
        hold("R1", waits != depends_on.is_empty(), || {
            format!("member {node} of {} begins as {:?} and depends on {depends_on:?}", of.run, row.status)
        })
    }

    /// A member that waits for others moves when all of them have ended well, and not before its time.
    pub(super) fn may_be_released(&self, given: Given<'_>, entry: &Entry, status: &JobStatus) -> Checked {
        let of = entry.row.spec.member.as_deref().expect("only members wait for others");
        let missing =
            self.ledger.ends_above(of).into_iter().find(|(_, end)| *end != Some(JobState::Succeeded));
        hold("R1", missing.is_none(), || {
            format!("member {} of {} is released although {missing:?} has not ended well", of.node, of.run)
        })?;
        let later = entry.row.spec.not_before.filter(|at| *at > given.moment.now.wall);
        let same = match status.state {
            JobState::Scheduled => status.wake_at.is_some() && status.wake_at == later,
            _ => later.is_none(),
        };
        hold("I16", same, || format!("member {} of {} waits until {:?}", of.node, of.run, status.wake_at))
    }

    /// Attempts of a run are numbered without gaps; others have their own number.
    pub(super) fn is_numbered(&self, open: &OpenAttempt) -> Checked {
        let entry = self.ledger.jobs.get(&open.seq);
        let of = entry.and_then(|entry| entry.row.spec.member.as_deref());
        let Some(run) = of.and_then(|of| self.ledger.run_of(of.run)) else {
            return hold("R4", open.dispatch_seq == u64::from(open.fence.attempt), || {
                format!("an attempt of job {} has the number {}", open.seq.0, open.dispatch_seq)
            });
        };
        hold("R4", open.dispatch_seq == run.attempts + 1, || {
            format!("attempt {} of {} follows attempt {}", open.dispatch_seq, run.row.id, run.attempts)
        })
    }

    /// Is there a cause in its run for a member to be canceled?
    pub(super) fn run_cancels(&self, given: Given<'_>, entry: &Entry, end: &JobEnd) -> bool {
        use laneway_core::Reason;
        let Some(of) = entry.row.spec.member.as_deref() else { return false };
        let Some(run) = self.ledger.run_of(of.run) else { return false };
        let bad = |end: Option<JobState>| end.is_some_and(|state| state != JobState::Succeeded);
        match end.reason {
            Reason::UpstreamFailed => {
                let above = self.ledger.ends_above(of).into_iter().any(|(_, end)| bad(end));
                above && (end.attempts == 0 || entry.is_called())
            }
            Reason::RunFailed => {
                let failed = self.ledger.ends_of(run).into_iter().any(|end| end == Some(JobState::Failed));
                run.row.spec.failure == FailurePolicy::Stop && failed
            }
            Reason::Requested => cancels_run(given, run),
            _ => false,
        }
    }

    /// What holds of runs whenever a commit is complete.
    pub(super) fn runs_rest(&self, given: Given<'_>, effects: &Effects) -> Checked {
        let answer = run_events(effects);
        let moved = self.run_changes(effects);
        hold("R3", answer == moved, || format!("events report {answer:?} of runs, changes {moved:?}"))?;
        let touched: BTreeSet<RunId> = self.touched_runs(effects);
        for run in self.ledger.runs.values().filter(|run| touched.contains(&run.row.id)) {
            self.is_rolled_up(given, run)?;
            self.no_member_is_stuck(run)?;
        }
        Ok(())
    }

    /// The state of a run follows from its members, recounted as the documentation defines it.
    fn is_rolled_up(&self, given: Given<'_>, run: &RunEntry) -> Checked {
        let ends = self.ledger.ends_of(run);
        let id = run.row.id;
        let all_ended = ends.iter().all(Option::is_some);
        let began = run.attempts > 0 || ends.iter().any(Option::is_some);
        let wanted = if !all_ended {
            if began { RunState::Running } else { RunState::Queued }
        } else if ends.contains(&Some(JobState::Failed)) {
            RunState::Failed
        } else if ends.iter().all(|end| *end == Some(JobState::Canceled)) {
            RunState::Canceled
        } else {
            RunState::Succeeded
        };
        // The answer shows whether the cancel came before the last member's own end.
        let by_hand = wanted == RunState::Succeeded && cancels_run(given, run);
        let is_wanted = run.row.state == wanted || (by_hand && run.row.state == RunState::Canceled);
        // Once it has ended, who canceled it is not asked again.
        let settled = run.row.state.is_terminal() && run.row.finished_at != Some(given.moment.now.wall);
        hold("R3", settled || is_wanted, || {
            format!("{id} is {} and its members give {wanted}: {ends:?}", run.row.state)
        })?;
        hold("R3", run.row.state.is_terminal() == run.row.finished_at.is_some(), || {
            format!("{id} is {} and ended at {:?}", run.row.state, run.row.finished_at)
        })
    }

    /// Who waits for others waits for something that can still come; a failed run of policy stop goes on nowhere.
    fn no_member_is_stuck(&self, run: &RunEntry) -> Checked {
        let id = run.row.id;
        let failed = self.ledger.ends_of(run).contains(&Some(JobState::Failed));
        for entry in run.row.seqs().filter_map(|seq| self.ledger.jobs.get(&Seq(seq))) {
            if entry.end.is_some() {
                continue;
            }
            let of = entry.row.spec.member.as_deref().expect("it is a member");
            hold("R5", !failed || run.row.spec.failure == FailurePolicy::Continue, || {
                format!("{id} has failed, and {} goes on", of.node)
            })?;
            if !entry.waits_upstream() {
                continue;
            }
            let above = self.ledger.ends_above(of);
            let missing = above.iter().any(|(_, end)| end.is_none());
            let lost = above.iter().any(|(_, end)| end.is_some_and(|end| end != JobState::Succeeded));
            hold("R2", missing && !lost, || format!("member {} of {id} waits although {above:?}", of.node))?;
        }
        Ok(())
    }

    fn touched_runs(&self, effects: &Effects) -> BTreeSet<RunId> {
        let seqs = effects.changes.iter().filter_map(|change| match change {
            Change::JobCreated { row, .. } => Some(row.seq),
            Change::JobMoved { seq, .. } => Some(*seq),
            Change::AttemptOpened(open) => Some(open.seq),
            Change::JobEnded(end) => Some(end.seq),
            Change::RunCreated(row) => Some(row.first),
            Change::RunMoved { first, .. } => Some(*first),
            _ => None,
        });
        seqs.filter_map(|seq| Some(self.ledger.member(seq)?.row.spec.member.as_ref()?.run)).collect()
    }

    /// The states that the changes of a commit give to runs, in order.
    fn run_changes(&self, effects: &Effects) -> Vec<(RunId, RunState)> {
        let moved = effects.changes.iter().filter_map(|change| match change {
            Change::RunCreated(row) => Some((row.id, row.state)),
            Change::RunMoved { first, state, .. } => Some((self.ledger.runs.get(first)?.row.id, *state)),
            _ => None,
        });
        moved.collect()
    }

    /// A run was answered.
    pub(super) fn run_answered(&self, run: &RunSubmission, reply: &Reply) -> Checked {
        let made = |member: &Member| {
            submit_number(&member.payload).is_some_and(|number| self.submits.contains_key(&number))
        };
        match reply {
            Reply::RunSubmitted(answer) => {
                let Some(stored) = self.ledger.run_of(answer.run) else {
                    return Err(Violation::new(
                        "I6",
                        format!("{} is acknowledged but not durable", answer.run),
                    ));
                };
                hold("X1", stored.row.spec.tenant == run.spec.tenant, || {
                    format!("a run is answered with {} of another tenant", answer.run)
                })?;
                if answer.existing {
                    let same = stored.row.spec.idempotency == run.spec.idempotency;
                    return hold("I4", same && run.spec.idempotency.is_some(), || {
                        format!("{} is called existing and has another key", answer.run)
                    });
                }
                let whole = run.members.iter().all(made) && stored.row.nodes.len() == run.members.len();
                hold("I5", whole, || format!("{} is admitted and not all of it is durable", answer.run))
            }
            Reply::Rejected(rejection) => {
                hold("I5", !run.members.iter().any(made), || {
                    "a run is rejected and some of it is durable".to_owned()
                })?;
                self.is_not_poisoned(run, rejection)
            }
            other => Err(Violation::new("I5", format!("a run is answered with {other:?}"))),
        }
    }

    /// A run is invalid only if it has a cycle, or something that the store cannot hold.
    fn is_not_poisoned(&self, run: &RunSubmission, rejection: &Rejection) -> Checked {
        let poisoned = run.members.iter().any(|member| member.spec.kind.as_str() == POISON_KIND);
        let invalid = rejection.code == RejectionCode::Invalid;
        hold("D7", !invalid || poisoned || has_cycle(run) || has_odd_chain(run), || {
            format!("a good run is rejected: {rejection:?}")
        })
    }

    /// A cancel of a run was answered: all of it has ended, or there is none to end.
    pub(super) fn run_cancel_answered(&self, run: RunId, reply: &Reply) -> Checked {
        let stored = self.ledger.run_of(run);
        match (reply, stored) {
            (Reply::RunCanceled { state, .. }, Some(stored)) => {
                let left = stored
                    .row
                    .seqs()
                    .find(|seq| self.ledger.jobs.get(&Seq(*seq)).is_some_and(|entry| entry.end.is_none()));
                let ended = matches!(state, RunState::Canceled | RunState::Failed);
                hold("R5", left.is_none() && stored.row.state == *state && ended, || {
                    format!("{run} is reported as {state}, and job {left:?} of it goes on")
                })
            }
            (Reply::NotFound, _) => Ok(()),
            _ => Err(Violation::new("I6", format!("a cancel of {run} is answered with {reply:?}"))),
        }
    }
}

/// Is the run canceled as one in this batch?
fn cancels_run(given: Given<'_>, run: &RunEntry) -> bool {
    given.commands.iter().any(|command| match command {
        Command::Workflow(WorkflowCommand::Cancel { tenant, run: id, .. }) => {
            *id == run.row.id && tenant.as_ref().is_none_or(|tenant| *tenant == run.row.spec.tenant)
        }
        _ => false,
    })
}

/// What a node waits for: what it names; the outermost middleware of a chain waits for what any node of the chain names,
/// in the order of the nodes, and they for it.
fn waited_for(given: Given<'_>, asked: &Member) -> Vec<Name> {
    let Some(chain) = &asked.chain else { return asked.depends_on.clone() };
    let first = &chain.middlewares[0];
    if chain.is_called() {
        return vec![first.clone()];
    }
    let run = given.commands.iter().find_map(|command| match command {
        Command::Workflow(WorkflowCommand::Submit(run)) => {
            run.members.iter().any(|member| std::ptr::eq(member, asked)).then_some(run)
        }
        _ => None,
    });
    let Some(run) = run else { return Vec::new() };
    let of_chain = |member: &&Member| member.chain.as_ref().is_some_and(|other| other.host == chain.host);
    let named: BTreeSet<&Name> =
        run.members.iter().filter(of_chain).flat_map(|member| &member.depends_on).collect();
    run.members.iter().map(|member| &member.node).filter(|node| named.contains(node)).cloned().collect()
}

/// Does some chain of the run contradict itself? Every node that it names must have the same chain, at its position.
fn has_odd_chain(run: &RunSubmission) -> bool {
    let executor = |name: &Name| run.members.iter().find(|member| member.node == *name)?.chain.as_ref();
    run.members.iter().any(|member| {
        let Some(chain) = &member.chain else { return false };
        let agrees = |name: &Name, index: Option<u32>| {
            executor(name).is_some_and(|other| {
                (&other.host, &other.middlewares, other.index) == (&chain.host, &chain.middlewares, index)
            })
        };
        let here = match chain.index {
            None => chain.host == member.node,
            Some(index) => chain.middlewares.get(index as usize) == Some(&member.node),
        };
        let all = (0u32..).zip(&chain.middlewares).all(|(index, name)| agrees(name, Some(index)));
        !here || !all || !agrees(&chain.host, None)
    })
}

/// The states of runs that the events of a commit report, in order.
fn run_events(effects: &Effects) -> Vec<(RunId, RunState)> {
    let answer = effects.events.iter().filter_map(|event| {
        let state = match event.kind {
            EventKind::RunSubmitted => RunState::Queued,
            EventKind::RunStarted => RunState::Running,
            EventKind::RunSucceeded => RunState::Succeeded,
            EventKind::RunFailed => RunState::Failed,
            EventKind::RunCanceled => RunState::Canceled,
            _ => return None,
        };
        Some((RunLine::parse(event.detail.as_deref()?)?.id, state))
    });
    answer.collect()
}

/// Does some node wait for itself? Nodes of the world wait for earlier ones, but for those that are meant to be wrong.
fn has_cycle(run: &RunSubmission) -> bool {
    (0..).zip(&run.members).any(|(position, member)| {
        let later = |name: &Name| {
            run.members.iter().position(|other| other.node == *name).is_none_or(|at| at >= position)
        };
        member.depends_on.iter().any(later)
    })
}

impl Ledger {
    /// A run by its id.
    pub fn run_of(&self, id: RunId) -> Option<&RunEntry> {
        self.runs.values().find(|run| run.row.id == id)
    }

    /// A job, live or ended, by its number.
    pub fn member(&self, seq: Seq) -> Option<&Entry> {
        self.jobs.get(&seq).or_else(|| self.ended.get(&seq))
    }

    /// How the members of a run ended, those that have.
    pub fn ends_of(&self, run: &RunEntry) -> Vec<Option<JobState>> {
        run.row
            .seqs()
            .map(|seq| self.member(Seq(seq)).and_then(|entry| Some(entry.end.as_ref()?.state)))
            .collect()
    }

    /// What a member depends on, and how that ended where it has.
    pub fn ends_above(&self, of: &MemberOf) -> Vec<(Seq, Option<JobState>)> {
        let Some(run) = self.run_of(of.run) else { return Vec::new() };
        let seqs = of.depends_on.iter().filter_map(|node| run.row.seq_of(node));
        seqs.map(|seq| (seq, self.member(seq).and_then(|entry| Some(entry.end.as_ref()?.state)))).collect()
    }

    /// Since when members may start that waited for others: the end of the last of them.
    pub fn released_at(&self, entry: &Entry) -> Option<Wall> {
        if entry.is_called() {
            return self.called_at(entry);
        }
        let of = entry.row.spec.member.as_deref()?;
        let ends = self.ends_above(of).into_iter();
        ends.filter_map(|(seq, _)| Some(self.member(seq)?.end.as_ref()?.finished_at)).max()
    }
}
