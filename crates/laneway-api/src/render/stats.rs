//! Renders lanes, statistics, and explanations of why a job does not run.

use laneway_core::engine::{AgentStats, Counts, Explanation, Hold, LaneStats, Stats};
use laneway_core::{LaneOrder, Name, ShutdownPolicy};
use laneway_runtime::config::format_span;
use laneway_runtime::store::JobView;
use laneway_wire as wire;

use super::time;

/// A lane with its limits and statistics.
pub fn lane(stats: &LaneStats) -> wire::Lane {
    let settings = &stats.settings;
    wire::Lane {
        name: stats.lane.to_string(),
        paused: settings.paused,
        queued_max: settings.queued_max,
        queued_per_agent_max: settings.queued_per_agent_max,
        running_max: settings.running_max,
        running_per_agent_max: settings.running_per_agent_max,
        order: match settings.order {
            LaneOrder::Fair => "fair".to_owned(),
            LaneOrder::Priority => "priority".to_owned(),
        },
        aging_step: settings.aging_step.map(format_span),
        retention: format_span(settings.retention),
        on_shutdown: match settings.on_shutdown {
            ShutdownPolicy::Keep => "keep".to_owned(),
            ShutdownPolicy::Cancel => "cancel".to_owned(),
        },
        dispatch: settings.pull.dispatch.as_str().to_owned(),
        waiting: stats.waiting,
        running: stats.open,
        oldest: stats.oldest.map(|(id, at)| wire::OldestJob { id: id.to_string(), created_at: time(at) }),
        counts: counts(&stats.counts),
    }
}

/// The statistics of the server.
pub fn stats(stats: &Stats) -> wire::Stats {
    wire::Stats {
        scheduled: stats.scheduled,
        queued: stats.queued,
        assigned: stats.assigned,
        running: stats.running,
        still_running: stats.still_running,
        running_max: stats.running_max,
        draining: stats.draining,
        storage_low: stats.storage_low,
        lanes: stats.lanes.iter().map(lane).collect(),
        agents: stats.agents.iter().map(agent).collect(),
    }
}

fn agent(stats: &AgentStats) -> wire::AgentStats {
    wire::AgentStats {
        tenant: stats.tenant.to_string(),
        agent: stats.agent.to_string(),
        lane: stats.lane.to_string(),
        waiting: stats.waiting,
        running: stats.open,
        counts: counts(&stats.counts),
    }
}

fn counts(counts: &Counts) -> wire::Counts {
    let Counts {
        submitted,
        rejected,
        succeeded,
        failed,
        canceled,
        expired,
        dispatched,
        queue_wait,
        runs,
        run_time,
    } = *counts;
    wire::Counts {
        submitted,
        rejected,
        succeeded,
        failed,
        canceled,
        expired,
        dispatched,
        queue_wait_ms: queue_wait.0,
        runs,
        run_time_ms: run_time.0,
    }
}

/// Why a live job does not run.
pub fn explanation(id: String, explanation: &Explanation) -> wire::Explanation {
    let blocked_by: Vec<wire::Blocker> = explanation.holds.iter().map(hold).collect();
    let summary = match blocked_by.as_slice() {
        [] if explanation.state.is_open() => {
            format!("The job is {}; nothing blocks it.", explanation.state)
        }
        [] => "Nothing blocks the job: it starts next.".to_owned(),
        [only] => only.message.clone(),
        [first, rest @ ..] => format!("{} {} more gate(s) block it.", first.message, rest.len()),
    };
    wire::Explanation {
        id,
        state: explanation.state.as_str().to_owned(),
        summary,
        blocked_by,
        ahead: explanation.ahead,
    }
}

/// The same for a job that has ended.
pub fn explanation_of_ended(id: String, view: &JobView) -> wire::Explanation {
    let state = view.state();
    let reason = view.end.as_ref().map_or("", |end| end.reason.as_str());
    let summary = format!(
        "The job has ended: {state} ({reason}). It does not run again; retry it to create a new one."
    );
    wire::Explanation { id, state: state.as_str().to_owned(), summary, blocked_by: Vec::new(), ahead: 0 }
}

/// Why a job waits, in short: the first part of the explanation.
pub fn waiting_for(hold_reason: &Hold) -> String {
    let message = hold(hold_reason).message;
    message.split("; ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

fn hold(hold: &Hold) -> wire::Blocker {
    if let Some(answer) = full(hold).or_else(|| of_machine(hold)).or_else(|| super::workers::hold(hold)) {
        return answer;
    }
    match hold {
        Hold::Draining => plain("draining", None, "The server is stopping and starts no jobs.".to_owned()),
        Hold::StorageLow => plain(
            "storage_low",
            None,
            "The data directory is nearly full: running jobs go on, and no job starts. Free disk space."
                .to_owned(),
        ),
        Hold::NotBefore { at } => {
            let at = time(*at);
            let message = format!("The job may not start before {at}.");
            wire::Blocker { at: Some(at), ..plain("not_before", None, message) }
        }
        Hold::Backoff { remaining } => {
            let message = format!("The job failed and is retried in {}.", format_span(*remaining));
            wire::Blocker { remaining_ms: Some(remaining.0), ..plain("backoff", None, message) }
        }
        Hold::Uncalled { by } => {
            plain("uncalled", Some(by), format!("The job starts when node {by} of its run calls it."))
        }
        Hold::Upstream { nodes, count } => {
            let listed: Vec<&str> = nodes.iter().map(Name::as_str).collect();
            let more = if *count as usize > nodes.len() { ", …" } else { "" };
            let message = format!("The job waits for nodes {}{more} of its run.", listed.join(", "));
            wire::Blocker { ahead: Some((*count).into()), ..plain("upstream", None, message) }
        }
        Hold::Debounce { remaining } => {
            let message = format!("Other jobs of its session may join it for {}.", format_span(*remaining));
            wire::Blocker { remaining_ms: Some(remaining.0), ..plain("debounce", None, message) }
        }
        Hold::SessionThrottled { session, tokens, window } => {
            let message = format!(
                "The context of session {session} is full ({tokens} of {window} tokens); its jobs run one by one."
            );
            plain("session_throttled", Some(session), message)
        }
        Hold::SessionStopping { session, runs } => {
            let message = format!("{runs} attempt(s) of canceled jobs of session {session} still run.");
            plain("session_stopping", Some(session), message)
        }
        Hold::SessionOrder { session, ahead, next } => {
            let message = format!("{ahead} earlier job(s) of session {session} start first, {next} next.");
            wire::Blocker { ahead: Some(*ahead), ..plain("session_order", Some(session), message) }
        }
        Hold::LanePaused { lane } => {
            plain("lane_paused", Some(lane), format!("Lane {lane} is paused; resume it to start jobs."))
        }
        Hold::NoExecutor { kind } => {
            let message = format!("No worker or handler runs the kind {kind}; start one.");
            plain("no_executor", Some(kind), message)
        }
        _ => plain("turn", None, "Other jobs of the lane start first.".to_owned()),
    }
}

/// The capacity of the machine, or a pull worker that is missing.
fn of_machine(hold: &Hold) -> Option<wire::Blocker> {
    let answer = match hold {
        Hold::NotQuiet { state, rule } => {
            let (state, rule) = (state.as_str(), rule.as_str());
            plain(
                "not_quiet",
                None,
                format!("The machine is {state}; the job starts when it is {rule} or quieter."),
            )
        }
        Hold::NoUnits { cost, free, usable } => {
            let message = format!(
                "The job needs {cost} units, and {free} of {usable} are free; other jobs must end first."
            );
            wire::Blocker {
                used: Some(usable.saturating_sub(*free)),
                limit: Some(*usable),
                ..plain("no_units", None, message)
            }
        }
        Hold::Reserved { job } => {
            plain("reserved", None, format!("Units are kept for job {job}, which was bypassed too often."))
        }
        Hold::Unclaimed { lane } => {
            plain("unclaimed", Some(lane), format!("No worker of lane {lane} has claimed it."))
        }
        _ => return None,
    };
    Some(answer)
}

fn plain(code: &str, name: Option<&Name>, message: String) -> wire::Blocker {
    wire::Blocker {
        code: code.to_owned(),
        message,
        name: name.map(Name::to_string),
        ..wire::Blocker::default()
    }
}

/// A limit that is reached.
fn full(hold: &Hold) -> Option<wire::Blocker> {
    let (code, name, who, used, limit) = match hold {
        Hold::SessionFull { session, used, limit } => {
            ("session_full", Some(session), format!("Session {session}"), used, limit)
        }
        Hold::LaneFull { lane, used, limit } => {
            ("lane_full", Some(lane), format!("Lane {lane}"), used, limit)
        }
        Hold::AgentFull { agent, used, limit } => {
            ("agent_full", Some(agent), format!("Agent {agent} in this lane"), used, limit)
        }
        Hold::ServerFull { used, limit } => ("server_full", None, "The server".to_owned(), used, limit),
        Hold::TenantFull { used, limit } => ("tenant_full", None, "The tenant".to_owned(), used, limit),
        Hold::KindFull { kind, used, limit } => {
            ("kind_full", Some(kind), format!("Kind {kind}"), used, limit)
        }
        Hold::ExecutorFull { executor, used, limit } => {
            ("executor_full", Some(executor), format!("Executor {executor}"), used, limit)
        }
        Hold::KeyFull { name, value, used, limit, kept } => {
            let message = match kept {
                0 => format!("{name} {value} is in use by {used} of {limit} jobs; one must end first."),
                _ => format!(
                    "{name} {value} is in use by {used} of {limit} jobs, {kept} kept after the end of their jobs; one must \
                     end or be released first."
                ),
            };
            let value = Some(value.to_string());
            return Some(wire::Blocker {
                value,
                ..limit_reached("key_full", Some(name), message, *used, *limit)
            });
        }
        Hold::Draining
        | Hold::StorageLow
        | Hold::NotBefore { .. }
        | Hold::Backoff { .. }
        | Hold::Debounce { .. }
        | Hold::Upstream { .. }
        | Hold::Uncalled { .. }
        | Hold::SessionThrottled { .. }
        | Hold::SessionStopping { .. }
        | Hold::SessionOrder { .. }
        | Hold::LanePaused { .. }
        | Hold::NoExecutor { .. }
        | Hold::NotQuiet { .. }
        | Hold::NoUnits { .. }
        | Hold::Reserved { .. }
        | Hold::Unclaimed { .. }
        | Hold::NoWorker { .. }
        | Hold::WorkerBusy { .. }
        | Hold::Turn => return None,
    };
    let message = format!("{who} runs {used} of {limit} jobs; one must end first.");
    Some(limit_reached(code, name, message, *used, *limit))
}

fn limit_reached(code: &str, name: Option<&Name>, message: String, used: u32, limit: u32) -> wire::Blocker {
    wire::Blocker {
        code: code.to_owned(),
        message,
        name: name.map(Name::to_string),
        used: Some(used),
        limit: Some(limit),
        ..wire::Blocker::default()
    }
}
