//! Verbs of schedules.

use super::super::{START, Scenario};
use super::args::{Args, Parsed, number, span};
use super::{Named, ScheduleAction, Step, job};
use crate::command::ScheduleCommand;
use crate::{CatchUp, Command, Overlap, SchedulePatch, ScheduleSpec, Span, Timing};

pub(super) fn put(args: &mut Args<'_>) -> Parsed<Step> {
    let name = args.named("schedule")?;
    let job = job::read(args)?.spec;
    let overlap = |word: &str| Overlap::parse(word).ok_or_else(|| format!("{word:?} is not a policy"));
    let timing = timing(args)?.ok_or("at, every or cron is missing")?;
    let spec = Box::new(ScheduleSpec {
        payload: vec![0; args.number("bytes")?.unwrap_or(0) as usize].into(),
        enabled: switch(args) != Some(false),
        delete_after_run: delete_after_run(args),
        catch_up: args.read("catch", catch_up)?.unwrap_or(CatchUp::Skip),
        overlap: args.read("overlap", overlap)?.unwrap_or(Overlap::Skip),
        jitter: args.span("jitter")?.unwrap_or(Span(0)),
        ..ScheduleSpec::new(name, timing, job)
    });
    Ok(Step::Send(Command::Schedule(ScheduleCommand::Put(spec, Scenario::origin()))))
}

pub(super) fn update(args: &mut Args<'_>) -> Parsed<Step> {
    change(args, |args| {
        Ok(ScheduleAction::Update(Box::new(SchedulePatch {
            name: args.name("name")?,
            timing: timing(args)?,
            enabled: switch(args),
            delete_after_run: delete_after_run(args),
            catch_up: args.read("catch", catch_up)?,
            ..SchedulePatch::default()
        })))
    })
}

pub(super) fn toggle(args: &mut Args<'_>) -> Parsed<Step> {
    change(args, |args| Ok(ScheduleAction::Toggle(args.choice("switch", "on", "off")?)))
}

/// `as=TENANT` is the caller's tenant.
pub(super) fn change(
    args: &mut Args<'_>,
    action: impl Fn(&mut Args<'_>) -> Parsed<ScheduleAction>,
) -> Parsed<Step> {
    let (name, tenant) = (args.text("schedule")?, args.name("as")?);
    Ok(Named::Schedule { name, tenant, action: action(args)? }.into())
}

/// `at=10s` is ten seconds from now, `at=-10s` ten seconds ago; `cron=0_9_*_*_*` has its spaces written as `_`.
fn timing(args: &mut Args<'_>) -> Parsed<Option<Timing>> {
    let wall = args.context.now.wall;
    let at = args.read("at", |word| match word.strip_prefix('-') {
        Some(ago) => Ok(Timing::At(wall.before(span(ago)?))),
        None => Ok(Timing::At(wall + span(word)?)),
    })?;
    let anchor = args.span("anchor")?.map(|after| START.wall + after);
    let every = args.span("every")?.map(|every| Timing::Every { every, anchor });
    let zone = args.name("zone")?;
    let cron = args.option("cron").map(|expr| Timing::Cron { expr: expr.replace('_', " ").into(), zone });
    Ok(at.or(every).or(cron))
}

fn switch(args: &mut Args<'_>) -> Option<bool> {
    args.flag("on").then_some(true).or(args.flag("off").then_some(false))
}

/// `once` deletes the schedule after it fired, `keep` does not.
fn delete_after_run(args: &mut Args<'_>) -> Option<bool> {
    args.flag("keep").then_some(false).or(args.flag("once").then_some(true))
}

/// `skip`, `latest` or `all:3`.
fn catch_up(word: &str) -> Parsed<CatchUp> {
    match word.split_once(':').unwrap_or((word, "")) {
        ("skip", "") => Ok(CatchUp::Skip),
        ("latest", "") => Ok(CatchUp::Latest),
        ("all", max) => Ok(CatchUp::All { max: number(max)? }),
        _ => Err(format!("{word:?} is not a policy")),
    }
}
