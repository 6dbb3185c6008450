//! Renders leases, denials and the capacity of the machine.

use laneway_core::engine::{CapacityView, LeaseView};
use laneway_core::{DenyReason, Name, Wall};
use laneway_wire as wire;

use super::time;

/// A lease.
pub fn lease(view: &LeaseView, now: Wall) -> wire::Lease {
    wire::Lease {
        id: view.lease.to_string(),
        job: view.job.to_string(),
        attempt: view.attempt,
        kind: view.kind.to_string(),
        agent: view.agent.to_string(),
        lane: view.lane.to_string(),
        tenant: view.tenant.to_string(),
        worker: view.holder.as_ref().map(|holder| holder.worker.to_string()),
        pid: view.holder.as_ref().and_then(|holder| holder.pid),
        state: view.state.as_str().to_owned(),
        cost: view.cost,
        opened_at: time(view.opened_at),
        expires_at: time(now + view.remaining),
    }
}

/// Why there is no lease, in a sentence.
pub fn denial(reason: &DenyReason) -> String {
    match reason {
        DenyReason::Draining => "The server is stopping.".to_owned(),
        DenyReason::StorageLow => "Storage is low: nothing starts until there is disk space.".to_owned(),
        DenyReason::Paused => "The lane is paused.".to_owned(),
        DenyReason::MaxLeases { limit } => format!("The limit of {limit} open leases is reached."),
        DenyReason::AgentCap { limit } => format!("The agent has reached its limit of {limit} open leases."),
        DenyReason::Full => "A limit of the tenant, the kind or a key is reached.".to_owned(),
        DenyReason::Panic => {
            "The machine is in the state panic; jobs with a quiet rule do not start.".to_owned()
        }
        DenyReason::NotQuiet { state } => {
            format!("The machine is {}, which is not quiet enough.", state.as_str())
        }
        DenyReason::NoCapacity { busy, usable, used } => {
            format!("No unit is free: {used} of {usable} are in use, and the busy rating is {busy}.")
        }
        DenyReason::NeedsMore { needed, free } => {
            format!("The job needs {needed} units, and {free} are free.")
        }
        DenyReason::Reserved => "Units are kept for a job that was bypassed too often.".to_owned(),
        DenyReason::TooBig { cost } => format!("The next job costs {cost} units, more than max_cost."),
        DenyReason::Unique => "The next job requires a worker without another lease.".to_owned(),
        DenyReason::NotYet => "The start time of the job has not come.".to_owned(),
        DenyReason::Taken => "Another worker has the job.".to_owned(),
        DenyReason::NothingEligible => "No waiting job matches the request.".to_owned(),
    }
}

/// The capacity of the machine. The units are those of one tenant, if there is one.
pub fn capacity(view: &CapacityView, tenant: Option<&Name>) -> wire::Capacity {
    let seen = |owner: &Name| tenant.is_none_or(|tenant| tenant == owner);
    let agents = view.by_agent.iter().filter(|((owner, _), _)| seen(owner));
    wire::Capacity {
        busy: view.busy,
        quiet: view.quiet.as_str().to_owned(),
        fresh: view.fresh,
        total: view.total,
        usable: view.usable,
        used: view.used,
        reserved: view.reserved,
        free: view.free,
        leases: view.leases,
        // The tenant of this job is not known here, so only server-wide callers see it.
        next_in_line: view.next_in_line.filter(|_| tenant.is_none()).map(|job| job.to_string()),
        agents: agents
            .map(|((tenant, agent), units)| wire::AgentUnits {
                tenant: tenant.to_string(),
                agent: agent.to_string(),
                units: *units,
            })
            .collect(),
    }
}
