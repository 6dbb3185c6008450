//! Verbs of push workers.

use super::args::{Args, Parsed, name, number};
use super::{AttemptRef, Scenario, Step, WorkerStep, job};
use crate::command::WorkerCommand;
use crate::worker::{Beat, Register, WorkerReport};
use crate::{Command, Name, Span, TasksKept, WorkerOffer};

/// A process without `boot` has the worker's name as its boot id; without `tasks` it has all that it was given.
pub(super) fn register(args: &mut Args<'_>) -> Parsed<Step> {
    let worker = args.named("worker")?;
    let boot = match args.option("boot") {
        Some("none") => None,
        Some(boot) => Some(name(boot)?),
        None => Some(worker.clone()),
    };
    let task = |word: &str| if word == "none" { Ok(None) } else { AttemptRef::parse(word).map(Some) };
    let tasks = match args.option("tasks") {
        Some(tasks) => {
            Some(tasks.split(',').map(task).collect::<Parsed<Vec<_>>>()?.into_iter().flatten().collect())
        }
        None => None,
    };
    let register = Register {
        connection: args.connection()?,
        offer: offer(worker, args)?,
        heartbeat: args.span("every")?.unwrap_or(Span::secs(5)),
        orders: Default::default(),
        boot,
        tasks: TasksKept::All,
    };
    Ok(WorkerStep::Register { register: Box::new(register), tasks }.into())
}

pub(super) fn offers(args: &mut Args<'_>) -> Parsed<Step> {
    let (worker, connection) = (args.named("worker")?, args.connection()?);
    let report = WorkerReport::Offers(Box::new(offer(worker, args)?));
    Ok(WorkerStep::Message { connection, report }.into())
}

pub(super) fn pulse(args: &mut Args<'_>) -> Parsed<Step> {
    let connection = args.connection()?;
    let share = |percent: &str| Ok((number(percent)? * 10) as u16);
    let beat = Beat {
        healthy: !args.flag("unhealthy"),
        draining: args.flag("draining"),
        memory: args.read("mem", share)?,
        disk: args.read("disk", share)?,
        ..Beat::default()
    };
    Ok(WorkerStep::Message { connection, report: WorkerReport::Beat(beat) }.into())
}

pub(super) fn drain(args: &mut Args<'_>, drain: bool) -> Parsed<Step> {
    let (worker, tenant) = (args.named("worker")?, args.name_or("tenant", "default")?);
    let origin = Scenario::origin();
    Ok(Step::Send(Command::Worker(WorkerCommand::Drain { tenant, worker, drain, origin })))
}

pub(super) fn rebind(args: &mut Args<'_>) -> Parsed<Step> {
    let (worker, tenant) = (args.named("worker")?, args.name_or("tenant", "default")?);
    let lanes = args.word("lanes").unwrap_or_default();
    let lanes = lanes.split(',').filter(|lane| !lane.is_empty()).map(name).collect::<Parsed<_>>()?;
    let origin = Scenario::origin();
    Ok(Step::Send(Command::Worker(WorkerCommand::Rebind { tenant, worker, lanes, origin })))
}

fn offer(worker: Name, args: &mut Args<'_>) -> Parsed<WorkerOffer> {
    let limits = args.pairs("limits")?.into_iter();
    let limits = limits.map(|(kind, max)| Ok((kind, number(max.as_str())?)));
    Ok(WorkerOffer {
        tenant: args.name_or("tenant", "default")?,
        worker,
        version: "1".into(),
        hostname: "host".into(),
        max_parallel: args.number("slots")?.unwrap_or(1),
        kind_limits: limits.collect::<Parsed<_>>()?,
        kinds: args.names("kinds")?,
        packages: args.list("packages", job::package)?,
        features: args.names("features")?,
        runtimes: Vec::new(),
        labels: args.pairs("labels")?,
        lanes: args.names("lanes")?,
    })
}
