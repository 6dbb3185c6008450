//! What sessions promise: caps and who gives way (I20), order and interrupts (I21, I22), stops and cutoffs (I22), bursts
//! that run as one with every payload in order (S1), and what is known of sessions (I1).
//!
//! A naive model: one burst a session, written down as the commits say, and everything else counted anew from the ledger.

use laneway_core::command::SessionCommand;
use std::collections::BTreeMap;

use laneway_core::job::session::{SESSION_MERGE_BYTES_MAX, SESSION_MERGE_MAX};
use laneway_core::{
    Bytes, Change, Command, DropPolicy, Effects, JobEnd, JobId, JobRow, JobSpec, JobState, Name, Reason,
    RejectionCode, Seq, Session, SessionMode, SessionRow, SessionStopped, Span, StopWhat, Submission,
};

use super::{Checker, Given};
use crate::clock::Moment;
use crate::ledger::Entry;
use crate::violation::{Checked, Violation, hold};

/// How long a session without jobs is remembered.
const RETENTION: Span = Span::hours(24);

/// What the checker keeps of sessions beside the ledger.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// The burst that gathers, by tenant and session.
    bursts: BTreeMap<(Name, Name), Burst>,
    /// What every job of a session was submitted with.
    payloads: BTreeMap<Seq, Bytes>,
    /// Which jobs were merged into which, in the order in which they came.
    merged: BTreeMap<Seq, Vec<Seq>>,
    /// The newest job when everything of a session was last stopped: nothing up to it starts any more.
    stopped: BTreeMap<(Name, Name), Seq>,
    /// A job that was stored and must be merged before anything else of its session happens.
    joining: Option<Seq>,
    /// A job that was dropped for one that must come next.
    dropped: Option<(Name, Name)>,
    /// What jobs that schedules make in the commit that is being followed ask of their sessions: nobody submits them.
    brought: Vec<((Name, Name), Session)>,
}

#[derive(Clone, Debug)]
struct Burst {
    leader: Seq,
    until_max: u64,
    absorbed: u32,
    bytes: u64,
    /// It is over and must end in this commit.
    closing: bool,
}

/// Which jobs a stop must say it ended: those that run, and those that wait, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopping {
    running: Vec<JobId>,
    waiting: Vec<JobId>,
}

/// A session's tenant and key.
fn key_of(spec: &JobSpec) -> Option<(Name, Name)> {
    spec.session.as_ref().map(|session| (spec.tenant.clone(), session.key.clone()))
}

impl Checker {
    /// What a session makes of a submit that everything else would take.
    pub(super) fn session_verdict(&self, submission: &Submission, moment: Moment) -> Option<RejectionCode> {
        let session = submission.spec.session.as_ref()?;
        if self.is_stale(&submission.spec, session) {
            return Some(RejectionCode::Stale);
        }
        if self.joins(&submission.spec, submission.payload.len() as u64, moment).is_some() {
            return None;
        }
        let waiting = self.waiting_before(&submission.spec, session);
        let full = session.waiting_max().is_some_and(|max| waiting >= max as usize);
        (full && session.drop == DropPolicy::New).then_some(RejectionCode::SessionFull)
    }

    /// True when the job would not wait: it joins a burst.
    pub(super) fn would_join(&self, submission: &Submission, moment: Moment) -> bool {
        self.joins(&submission.spec, submission.payload.len() as u64, moment).is_some()
    }

    fn is_stale(&self, spec: &JobSpec, session: &Session) -> bool {
        let known = self.ledger.sessions.get(&(spec.tenant.clone(), session.key.clone()));
        let cutoff = known.and_then(|row| row.cutoff);
        session.sent_at.zip(cutoff).is_some_and(|(sent_at, cutoff)| sent_at < cutoff)
    }

    /// Jobs of the session that the job finds waiting.
    fn waiting_before(&self, spec: &JobSpec, session: &Session) -> usize {
        match session.mode {
            SessionMode::Interrupt => 0,
            _ => self.ledger.waiting().filter(|entry| key_of(&entry.row.spec) == key_of(spec)).count(),
        }
    }

    /// The burst that a job of this sort joins.
    fn joins(&self, spec: &JobSpec, len: u64, moment: Moment) -> Option<&Burst> {
        let burst = self.sessions.bursts.get(&key_of(spec)?)?;
        let leader = self.ledger.jobs.get(&burst.leader)?;
        let theirs = &leader.row.spec;
        let alike = spec.kind == theirs.kind
            && spec.agent == theirs.agent
            && self.lane_of(spec) == leader.lane
            && spec.keys.iter().all(|key| theirs.keys.contains(key))
            && theirs.keys.iter().all(|key| spec.keys.contains(key))
            && spec.placement.is_none();
        let takes = alike && burst.bytes + len <= SESSION_MERGE_BYTES_MAX;
        (takes && gathers(spec, moment) && spec.schedule.is_none()).then_some(burst)
    }

    /// May this job of a session be stored now?
    pub(super) fn may_arrive(&mut self, given: Given<'_>, row: &JobRow, payload: &Bytes) -> Checked {
        let Some(session) = &row.spec.session else { return Ok(()) };
        let (seq, moment) = (row.seq.0, given.moment);
        self.sessions.payloads.insert(row.seq, payload.clone());
        hold("I22", !self.is_stale(&row.spec, session), || {
            format!("job {seq} was sent before its session was stopped, and is taken")
        })?;
        let key = key_of(&row.spec).expect("it has a session");
        let dropped = usize::from(self.sessions.dropped.take_if(|dropped| *dropped == key).is_some());
        if self.joins(&row.spec, payload.len() as u64, moment).is_some() {
            self.sessions.joining = Some(row.seq);
            return hold("S1", dropped == 0, || {
                format!("job {seq} joins a burst, and another one is dropped for it")
            });
        }
        let waiting = self.waiting_before(&row.spec, session) + dropped;
        let full = session.waiting_max().is_some_and(|max| waiting >= max as usize);
        hold("I20", !full || session.drop == DropPolicy::Old, || {
            format!("job {seq} is taken although {waiting} jobs of its session wait")
        })?;
        hold("I20", full == (dropped == 1), || {
            format!("{dropped} jobs are dropped for job {seq}, where {waiting} of its session wait")
        })?;
        if session.mode == SessionMode::Interrupt {
            let left = self.live_of(&key).next().map(|entry| entry.row.seq.0);
            hold("I22", left.is_none(), || {
                format!("job {seq} interrupts its session and leaves job {left:?}")
            })?;
        }
        let leads = gathers(&row.spec, moment) && session.window().is_some();
        let later = row.spec.not_before.is_some_and(|at| at > moment.now.wall);
        let scheduled = row.status.state == JobState::Scheduled;
        hold("S1", scheduled == (leads || later), || format!("job {seq} begins as {}", row.status.state))?;
        let over = !gathers(&row.spec, moment) || !self.sessions.bursts.contains_key(&key);
        hold("S1", over, || format!("job {seq} goes behind a burst that still gathers"))?;
        if leads {
            let window = session.window().unwrap_or_default();
            let wakes = row.status.wake_at == Some(moment.now.wall + window);
            hold("S1", wakes, || format!("job {seq} gathers until {:?}", row.status.wake_at))?;
            let until_max = moment.at + session.debounce_limit().max(window).0;
            let bytes = payload.len() as u64;
            let burst = Burst { leader: row.seq, until_max, absorbed: 0, bytes, closing: false };
            self.sessions.bursts.insert(key, burst);
        }
        Ok(())
    }

    /// When a job that others may join becomes queued if none comes; `None` for any other job.
    pub(super) fn window_ends(&self, row: &JobRow, moment: Moment) -> Option<u64> {
        let window = row.spec.session.as_ref().and_then(Session::window)?;
        let gathers = row.status.state == JobState::Scheduled && gathers(&row.spec, moment);
        gathers.then_some(moment.at + window.0)
    }

    /// Is there a cause in its session for the job to end so?
    pub(super) fn session_ends(&self, given: Given<'_>, entry: &Entry, end: &JobEnd) -> bool {
        let Some(key) = key_of(&entry.row.spec) else { return false };
        let submits = |wanted: &dyn Fn(&Session) -> bool| self.comes(given, &key, wanted);
        match end.reason {
            Reason::Merged => self.sessions.joining == Some(end.seq),
            Reason::Dropped => {
                submits(&|session| session.cap.is_some() && session.drop == DropPolicy::Old)
                    && self.first_waiting(&key) == Some(end.seq)
            }
            Reason::Interrupted => submits(&|session| session.mode == SessionMode::Interrupt),
            Reason::Stopped => stops(given, &key, &|what| what != StopWhat::Reset),
            Reason::Cleared => stops(given, &key, &|what| what == StopWhat::Reset),
            _ => false,
        }
    }

    /// A job of a session ends: what that means for its burst and for the one that comes next.
    pub(super) fn session_job_ended(&mut self, given: Given<'_>, end: &JobEnd) -> Checked {
        let Some(row) = self.ledger.jobs.get(&end.seq).map(|entry| entry.row.clone()) else { return Ok(()) };
        let Some(key) = key_of(&row.spec) else { return Ok(()) };
        hold("S1", (end.reason == Reason::Merged) == end.merged_into.is_some(), || {
            format!("job {} ends as {} and is merged into {:?}", end.seq.0, end.reason, end.merged_into)
        })?;
        match end.reason {
            Reason::Merged => return self.merges(given, &key, &row, end),
            Reason::Dropped => self.sessions.dropped = Some(key.clone()),
            _ => {}
        }
        self.burst_is_over(&key, end.seq);
        Ok(())
    }

    fn merges(&mut self, given: Given<'_>, key: &(Name, Name), row: &JobRow, end: &JobEnd) -> Checked {
        self.sessions.joining = None;
        let at = given.moment.at;
        let into = end.merged_into.map(|into| into.seq);
        let window = row.spec.session.as_ref().and_then(Session::window);
        let Some(burst) = self.sessions.bursts.get_mut(key).filter(|burst| Some(burst.leader) == into) else {
            return Err(Violation::new(
                "S1",
                format!("job {} is merged into {into:?}, which gathers no one", row.seq.0),
            ));
        };
        burst.absorbed += 1;
        burst.bytes += u64::from(row.payload_len);
        burst.closing =
            window.is_none() || burst.absorbed >= SESSION_MERGE_MAX || burst.bytes >= SESSION_MERGE_BYTES_MAX;
        let (leader, until) = (burst.leader, (at + window.unwrap_or_default().0).min(burst.until_max));
        self.sessions.merged.entry(leader).or_default().push(row.seq);
        if let Some(watch) = self.watches.get_mut(&leader) {
            watch.due = Some(until);
        }
        Ok(())
    }

    /// The job no longer waits for others.
    pub(super) fn burst_is_over(&mut self, key: &(Name, Name), leader: Seq) {
        if self.sessions.bursts.get(key).is_some_and(|burst| burst.leader == leader) {
            self.sessions.bursts.remove(key);
        }
    }

    /// A job of a session became queued: it waits for others no longer.
    pub(super) fn session_job_queued(&mut self, seq: Seq) {
        let key = self.ledger.jobs.get(&seq).and_then(|entry| key_of(&entry.row.spec));
        if let Some(key) = key {
            self.burst_is_over(&key, seq);
        }
    }

    /// May a job that others may join become queued now?
    pub(super) fn may_flush(&self, given: Given<'_>, entry: &Entry) -> Checked {
        let due = self.watches.get(&entry.row.seq).and_then(|watch| watch.due).unwrap_or(0);
        let key = key_of(&entry.row.spec);
        let comes = key.is_some_and(|key| self.comes(given, &key, &|_| true));
        hold("S1", due <= given.moment.at || comes, || {
            format!(
                "job {} is queued {} ms before its window has passed",
                entry.row.seq.0,
                due - given.moment.at
            )
        })
    }

    /// Notes what jobs that schedules make in this commit ask of their sessions.
    pub(super) fn slots_bring(&mut self, effects: &Effects) {
        let made = effects.changes.iter().filter_map(|change| match change {
            Change::JobCreated { row, .. } if row.spec.schedule.is_some() => {
                key_of(&row.spec).zip(row.spec.session.clone())
            }
            _ => None,
        });
        self.sessions.brought = made.collect();
    }

    /// Does a job of this session come in this turn, by a submit or by a slot, that asks for this?
    fn comes(&self, given: Given<'_>, key: &(Name, Name), wanted: &dyn Fn(&Session) -> bool) -> bool {
        let submitted = submissions(given).any(|item| {
            key_of(&item.spec).as_ref() == Some(key) && item.spec.session.as_ref().is_some_and(wanted)
        });
        submitted || self.sessions.brought.iter().any(|(of, session)| of == key && wanted(session))
    }

    /// Does something of this turn end the jobs of this session, or begin it anew?
    pub(super) fn session_stops_run(&self, given: Given<'_>, spec: &JobSpec) -> bool {
        let Some(key) = key_of(spec) else { return false };
        let interrupts = |session: &Session| session.mode == SessionMode::Interrupt;
        self.comes(given, &key, &interrupts) || stops(given, &key, &|_| true) || resets(given)
    }

    /// What is known of a session changes.
    pub(super) fn may_know(&mut self, given: Given<'_>, row: &SessionRow) -> Checked {
        let key = (row.tenant.clone(), row.key.clone());
        let was = self.ledger.sessions.get(&key);
        let (cutoff, generation) = was.map_or((None, 0), |was| (was.cutoff, was.generation));
        let grows = row.generation == generation || row.generation == generation + 1;
        hold("I22", grows, || {
            format!("session {} goes from generation {generation} to {}", row.key, row.generation)
        })?;
        let stopped = stops(given, &key, &|what| what != StopWhat::One);
        // Sessions that begin anew in the same turn have a new generation, too, and go on.
        let by_stop = row.cutoff != cutoff || (row.generation != generation && !resets(given));
        if by_stop && stopped {
            let newest = self.ledger.ids.values().max().copied().unwrap_or(Seq(0));
            self.sessions.stopped.insert(key.clone(), newest);
        }
        if row.cutoff != cutoff {
            let now = row.cutoff == Some(given.moment.now.wall);
            hold("I22", now && stopped, || format!("the cutoff of session {} is {:?}", row.key, row.cutoff))?;
        }
        let stopped_now = row.cutoff == Some(given.moment.now.wall) && stopped;
        // The cutoff is written by the stop itself, after everything that it ended.
        let usage = given
            .commands
            .iter()
            .any(|command| matches!(command, Command::Session(SessionCommand::Usage { .. })));
        let left = self.live_of(&key).next().map(|entry| entry.row.seq.0);
        hold("I22", !stopped_now || usage || given.commands.len() > 1 || left.is_none(), || {
            format!("session {} is stopped and job {left:?} goes on", row.key)
        })
    }

    /// Nothing from before a stop of everything starts after it, whatever crashed in between.
    pub(super) fn came_after_stop(&self, entry: &Entry) -> Checked {
        let Some(key) = key_of(&entry.row.spec) else { return Ok(()) };
        let stopped = self.sessions.stopped.get(&key).copied().unwrap_or(Seq(0));
        hold("I22", stopped < entry.row.seq, || {
            format!("job {} starts although its session was stopped after it came", entry.row.seq.0)
        })
    }

    /// May a session be forgotten now?
    pub(super) fn may_forget_session(&self, given: Given<'_>, tenant: &Name, key: &Name) -> Checked {
        let key = (tenant.clone(), key.clone());
        let Some(row) = self.ledger.sessions.get(&key) else { return Ok(()) };
        let nothing = row.cutoff.is_none() && (row.generation, row.tokens, row.window) == (0, 0, 0);
        let here = |entry: &&Entry| entry.end.is_none() || entry.open.is_some();
        let mut jobs = self.ledger.jobs.values().filter(here);
        let idle = !jobs.any(|entry| key_of(&entry.row.spec).as_ref() == Some(&key));
        let old = row.updated_at < given.moment.now.wall.before(RETENTION);
        hold("I1", nothing || (idle && old), || format!("session {} is forgotten too early", key.1))
    }

    /// After a commit no job hangs between being stored and being merged, and nobody was dropped for nobody.
    pub(super) fn sessions_rest(&self) -> Checked {
        let Sessions { bursts, joining, dropped, .. } = &self.sessions;
        hold("S1", joining.is_none(), || format!("job {joining:?} must join a burst, and does not"))?;
        hold("I20", dropped.is_none(), || format!("a job of {dropped:?} is dropped for nobody"))?;
        let open = bursts.values().find(|burst| burst.closing);
        hold("S1", open.is_none(), || format!("a burst that is over goes on: {open:?}"))
    }

    /// An engine was built anew: nobody joins the bursts from before.
    pub(super) fn bursts_end(&mut self) {
        self.sessions.bursts.clear();
    }

    /// What a run of this job must be given: its own payload, and those merged into it, in the order in which they came.
    /// `None` for a job that nobody can be merged into.
    pub fn payloads_of(&self, seq: Seq) -> Option<Vec<Bytes>> {
        let entry = self.ledger.jobs.get(&seq)?;
        entry.row.spec.session.as_ref()?.debounce?;
        let merged = self.sessions.merged.get(&seq).map_or(&[][..], |merged| merged);
        let all = std::iter::once(&seq).chain(merged);
        Some(all.filter_map(|seq| self.sessions.payloads.get(seq)).cloned().collect())
    }

    /// Which jobs a stop must end.
    pub(super) fn stopping(&self, tenant: &Name, key: &Name) -> Stopping {
        let key = (tenant.clone(), key.clone());
        let running = self.live_of(&key).filter(|entry| entry.open.is_some());
        let mut waiting: Vec<&Entry> = self.live_of(&key).filter(|entry| entry.open.is_none()).collect();
        waiting.sort_by_key(|entry| (entry.rank_time, entry.row.seq));
        let ids = |entries: &mut dyn Iterator<Item = &Entry>| entries.map(|entry| entry.row.id).collect();
        Stopping { running: ids(&mut { running }), waiting: ids(&mut waiting.into_iter()) }
    }

    /// A stop says truly which jobs it ended.
    pub(super) fn told_stopped(
        &self,
        what: StopWhat,
        told: &SessionStopped,
        expected: Option<&Stopping>,
    ) -> Checked {
        for job in told.running.iter().chain(&told.waiting) {
            let ended = self.ledger.find(*job).is_some_and(|entry| entry.end.is_some());
            hold("I6", ended, || format!("job {job} is said to be stopped, and is not"))?;
        }
        let Some(Stopping { running, waiting }) = expected else { return Ok(()) };
        let mut ran = told.running.clone();
        ran.sort_unstable();
        let mut wanted = running.clone();
        wanted.sort_unstable();
        let same = match what {
            StopWhat::One if !running.is_empty() => {
                ran.len() == 1 && wanted.contains(&ran[0]) && told.waiting.is_empty()
            }
            StopWhat::One => ran.is_empty() && told.waiting.iter().eq(waiting.first()),
            StopWhat::All | StopWhat::Reset => ran == wanted && told.waiting == *waiting,
        };
        hold("I22", same, || format!("a stop says {told:?} where {expected:?} must end"))
    }

    fn first_waiting(&self, key: &(Name, Name)) -> Option<Seq> {
        let waiting = self.live_of(key).filter(|entry| entry.open.is_none());
        waiting.map(|entry| (entry.rank_time, entry.row.seq)).min().map(|(_, seq)| seq)
    }

    fn live_of(&self, key: &(Name, Name)) -> impl Iterator<Item = &Entry> {
        let live = self.ledger.jobs.values().filter(|entry| entry.end.is_none());
        live.filter(move |entry| key_of(&entry.row.spec).as_ref() == Some(key))
    }

    /// A session is shown as the durable jobs say.
    pub fn session_agrees(
        &self,
        tenant: &Name,
        key: &Name,
        told: Option<&laneway_core::engine::SessionView>,
    ) -> Checked {
        let key = (tenant.clone(), key.clone());
        let stopping = self.ledger.open().filter(|entry| entry.end.is_some());
        let stopping = stopping.filter(|entry| key_of(&entry.row.spec).as_ref() == Some(&key)).count();
        let running = self.live_of(&key).filter(|entry| entry.open.is_some()).count();
        let waiting = self.live_of(&key).filter(|entry| entry.open.is_none()).count();
        let row = self.ledger.sessions.get(&key);
        let Some(told) = told else {
            return hold("X1", stopping + running + waiting == 0 && row.is_none(), || {
                format!("session {} is not known, and has jobs", key.1)
            });
        };
        let buffered = self.sessions.bursts.get(&key).map_or(0, |burst| burst.absorbed + 1);
        let shown = (
            told.running,
            told.stopping,
            told.waiting,
            told.buffered,
            told.throttled,
            told.cutoff,
            told.generation,
        );
        let durable = (
            running as u32,
            stopping as u32,
            waiting as u32,
            buffered,
            row.is_some_and(SessionRow::is_throttled),
            row.and_then(|row| row.cutoff),
            row.map_or(0, |row| row.generation),
        );
        hold("X1", shown == durable, || {
            format!("session {} is shown as {shown:?}, durable is {durable:?}", key.1)
        })
    }
}

/// May a job of this sort wait for others, or join them?
fn gathers(spec: &JobSpec, moment: Moment) -> bool {
    let later = spec.not_before.is_some_and(|at| at > moment.now.wall);
    !later && spec.session.as_ref().is_some_and(|session| session.mode != SessionMode::Interrupt)
}

/// Everything that this turn asks to admit.
fn submissions<'a>(given: Given<'a>) -> impl Iterator<Item = &'a Submission> {
    given.commands.iter().flat_map(|command| match command {
        Command::Submit(submission) => std::slice::from_ref(&**submission),
        Command::SubmitBatch { items, .. } => items,
        _ => &[],
    })
}

/// Does somebody stop this session in this turn?
fn stops(given: Given<'_>, key: &(Name, Name), wanted: &dyn Fn(StopWhat) -> bool) -> bool {
    given.commands.iter().any(|command| match command {
        Command::Session(SessionCommand::Stop { tenant, key: session, what, .. }) => {
            (tenant, session) == (&key.0, &key.1) && wanted(*what)
        }
        _ => false,
    })
}

/// Does somebody begin all sessions anew in this turn?
pub(super) fn resets(given: Given<'_>) -> bool {
    given.commands.iter().any(|command| matches!(command, Command::Session(SessionCommand::ResetAll { .. })))
}
