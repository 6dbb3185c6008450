//! Verbs that change the configuration. Options that are not named keep their values.

use super::args::{Args, Parsed, span};
use super::{Step, job};
use crate::settings::{AgentSettings, KindSettings, LaneOrder, LaneSettings, ShutdownPolicy, TenantSettings};
use crate::{Dispatch, LostPolicy, Settings};

pub(super) fn lane(args: &mut Args<'_>) -> Parsed<Step> {
    let name = args.named("lane")?;
    let mut settings = changed(args);
    set_lane(settings.lanes.entry(name).or_default(), args)?;
    Ok(Step::Configure(settings))
}

pub(super) fn no_lane(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    settings.lanes.remove(&args.named("lane")?);
    Ok(Step::Configure(settings))
}

pub(super) fn kind(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    let kind = args.named("kind")?;
    let limits = KindSettings { running_max: args.number("running")?, ..KindSettings::default() };
    settings.kinds.insert(kind, limits);
    Ok(Step::Configure(settings))
}

pub(super) fn tenant(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    let (tenant, defaults) = (args.named("tenant")?, settings.tenant_default);
    let limits = TenantSettings {
        running_max: args.number("running")?.unwrap_or(defaults.running_max),
        queued_max: args.number("queued")?.unwrap_or(defaults.queued_max),
    };
    settings.tenants.insert(tenant, limits);
    Ok(Step::Configure(settings))
}

pub(super) fn agent(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    let agent = args.named("agent")?;
    let share =
        AgentSettings { weight: args.number("weight")?.unwrap_or(1), hours: args.read("hours", job::hours)? };
    settings.agents.insert(agent, share);
    Ok(Step::Configure(settings))
}

pub(super) fn key(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    settings.keys.insert(args.named("key")?, args.number("limit")?.ok_or("the limit is missing")?);
    Ok(Step::Configure(settings))
}

pub(super) fn machine(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    let capacity = &mut settings.capacity;
    let mut bypasses = u32::from(capacity.bypasses_max);
    set(args, "total", &mut capacity.total)?;
    set(args, "reserve", &mut capacity.reserve)?;
    set(args, "bypasses", &mut bypasses)?;
    capacity.bypasses_max = bypasses as u8;
    capacity.measured &= args.option("measured") != Some("no");
    Ok(Step::Configure(settings))
}

pub(super) fn server(args: &mut Args<'_>) -> Parsed<Step> {
    let mut settings = changed(args);
    set(args, "running", &mut settings.running_max)?;
    set(args, "queued", &mut settings.queued_max)?;
    settings.strict_kinds |= args.option("strict").is_some();
    let runs = &mut settings.runs;
    set(args, "nodes", &mut runs.nodes_max)?;
    set(args, "depth", &mut runs.depth_max)?;
    set(args, "dependencies", &mut runs.dependencies_max)?;
    set(args, "open_nodes", &mut runs.open_nodes_max)?;
    let webhooks = &mut settings.webhooks;
    set(args, "webhooks_open", &mut webhooks.open_max)?;
    set(args, "webhooks_host", &mut webhooks.open_per_host_max)?;
    set(args, "webhooks_pending", &mut webhooks.pending_max)?;
    set(args, "webhooks_tenant", &mut webhooks.pending_per_tenant_max)?;
    Ok(Step::Configure(settings))
}

fn changed(args: &Args<'_>) -> Box<Settings> {
    Box::new(args.context.settings.clone())
}

fn set(args: &mut Args<'_>, key: &str, limit: &mut u32) -> Parsed<()> {
    *limit = args.number(key)?.unwrap_or(*limit);
    Ok(())
}

fn set_lane(lane: &mut LaneSettings, args: &mut Args<'_>) -> Parsed<()> {
    set(args, "running", &mut lane.running_max)?;
    set(args, "per_agent", &mut lane.running_per_agent_max)?;
    set(args, "queued", &mut lane.queued_max)?;
    set(args, "queued_per_agent", &mut lane.queued_per_agent_max)?;
    if let Some(paused) = choice(args, "paused", &[("yes", true), ("no", false)])? {
        lane.paused = paused;
    }
    if let Some(order) =
        choice(args, "order", &[("fair", LaneOrder::Fair), ("priority", LaneOrder::Priority)])?
    {
        lane.order = order;
    }
    let step = |word: &str| if word == "none" { Ok(None) } else { span(word).map(Some) };
    if let Some(step) = args.read("aging", step)? {
        lane.aging_step = step;
    }
    let dispatch = [("push", Dispatch::Push), ("reserve", Dispatch::Reserve), ("claim", Dispatch::Claim)];
    if let Some(dispatch) = choice(args, "dispatch", &dispatch)? {
        lane.pull.dispatch = dispatch;
    }
    if let Some(lease) = args.span("lease")? {
        lane.pull.lease = Some(lease);
    }
    if let Some(lost) = choice(args, "lost", &[("fail", LostPolicy::Fail), ("requeue", LostPolicy::Requeue)])?
    {
        lane.pull.on_lease_lost = lost;
    }
    let stop = [("cancel", ShutdownPolicy::Cancel), ("keep", ShutdownPolicy::Keep)];
    if let Some(stop) = choice(args, "stop", &stop)? {
        lane.on_shutdown = stop;
    }
    Ok(())
}

/// The value that the word of an option names.
fn choice<T: Copy>(args: &mut Args<'_>, key: &str, words: &[(&str, T)]) -> Parsed<Option<T>> {
    args.read(key, |word| {
        let found = words.iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| *value).ok_or_else(|| format!("{word:?} is not a value"))
    })
}
