//! Turns the engine's figures into what clients see: lanes, statistics, and why a job does not run.

use laneway_core::engine::{AgentStats, Explanation, Hold, LaneStats, Stats};
use laneway_core::{LaneOrder, ShutdownPolicy};
use laneway_runtime::config::format_span;
use laneway_runtime::store::JobView;
use laneway_wire as wire;

use super::time;

/// A lane with its limits and figures.
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
        waiting: stats.waiting,
        running: stats.open,
        oldest: stats.oldest.map(|(id, at)| wire::OldestJob { id: id.to_string(), created_at: time(at) }),
    }
}

/// Figures of now.
pub fn stats(stats: &Stats) -> wire::Stats {
    wire::Stats {
        scheduled: stats.scheduled,
        queued: stats.queued,
        assigned: stats.assigned,
        running: stats.running,
        lingering: stats.lingering,
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
    }
}

/// Why a live job does not run.
pub fn explanation(id: String, explanation: &Explanation) -> wire::Explanation {
    let holds: Vec<wire::Hold> = explanation.holds.iter().map(hold).collect();
    let summary = match holds.as_slice() {
        [] if explanation.state.is_open() => {
            format!("The job is {}; nothing holds it back.", explanation.state)
        }
        [] => "Nothing holds the job back: it is the next to start.".to_owned(),
        [only] => only.message.clone(),
        [first, rest @ ..] => format!("{} {} more thing(s) hold it back, too.", first.message, rest.len()),
    };
    wire::Explanation {
        id,
        state: explanation.state.word().to_owned(),
        summary,
        holds,
        ahead: explanation.ahead,
    }
}

/// The same for a job that has ended.
pub fn explanation_of_ended(id: String, view: &JobView) -> wire::Explanation {
    let state = view.state();
    let reason = view.end.as_ref().map_or("", |end| end.reason.word());
    let summary =
        format!("The job has ended: {state} ({reason}). It does not run again; retry it to make a new one.");
    wire::Explanation { id, state: state.word().to_owned(), summary, holds: Vec::new(), ahead: 0 }
}

fn hold(hold: &Hold) -> wire::Hold {
    let plain =
        |code: &str, message: String| wire::Hold { code: code.to_owned(), message, ..wire::Hold::default() };
    let full = |code: &str, name: Option<String>, used: u32, limit: u32, message: String| wire::Hold {
        name,
        used: Some(used),
        limit: Some(limit),
        ..plain(code, message)
    };
    match hold {
        Hold::Draining => plain("draining", "The server is stopping and starts nothing.".to_owned()),
        Hold::NotBefore { at } => {
            let at = time(*at);
            wire::Hold {
                at: Some(at.clone()),
                ..plain("not_before", format!("It may not start before {at}."))
            }
        }
        Hold::Backoff { remaining } => wire::Hold {
            remaining_ms: Some(remaining.0),
            ..plain("backoff", format!("It failed and is tried again in {}.", format_span(*remaining)))
        },
        Hold::SessionOrder { session, ahead } => wire::Hold {
            name: Some(session.to_string()),
            ahead: Some(*ahead),
            ..plain("session_order", format!("{ahead} earlier job(s) of session {session} go first."))
        },
        Hold::SessionFull { session, used, limit } => full(
            "session_full",
            Some(session.to_string()),
            *used,
            *limit,
            format!("Session {session} runs {used} of {limit} jobs; one must end first."),
        ),
        Hold::LanePaused { lane } => wire::Hold {
            name: Some(lane.to_string()),
            ..plain("lane_paused", format!("Lane {lane} is paused; resume it to start jobs."))
        },
        Hold::LaneFull { lane, used, limit } => full(
            "lane_full",
            Some(lane.to_string()),
            *used,
            *limit,
            format!("Lane {lane} runs {used} of {limit} jobs; one must end first, or raise its running_max."),
        ),
        Hold::AgentFull { agent, used, limit } => full(
            "agent_full",
            Some(agent.to_string()),
            *used,
            *limit,
            format!("Agent {agent} runs {used} of {limit} jobs in this lane; one must end first."),
        ),
        Hold::ServerFull { used, limit } => full(
            "server_full",
            None,
            *used,
            *limit,
            format!("The server runs {used} of {limit} jobs; one must end first."),
        ),
        Hold::TenantFull { used, limit } => full(
            "tenant_full",
            None,
            *used,
            *limit,
            format!("The tenant runs {used} of {limit} jobs; one must end first."),
        ),
        Hold::KindFull { kind, used, limit } => full(
            "kind_full",
            Some(kind.to_string()),
            *used,
            *limit,
            format!("Kind {kind} runs {used} of {limit} jobs; one must end first."),
        ),
        Hold::NoPlace { kind } => wire::Hold {
            name: Some(kind.to_string()),
            ..plain(
                "no_place",
                format!("Nobody offers to run kind {kind}; start a worker or a handler for it."),
            )
        },
        Hold::PlaceFull { place, used, limit } => full(
            "place_full",
            Some(place.to_string()),
            *used,
            *limit,
            format!("Place {place} runs {used} of {limit} jobs; one must end first."),
        ),
        Hold::KeyFull { name, value, used, limit } => wire::Hold {
            value: Some(value.to_string()),
            ..full(
                "key_full",
                Some(name.to_string()),
                *used,
                *limit,
                format!("{name} {value} is held by {used} of {limit} jobs; one must end first."),
            )
        },
        Hold::Turn => plain("turn", "Others go first in the lane; its turn comes.".to_owned()),
    }
}
