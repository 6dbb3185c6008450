//! Outbound messages, and schedules whose session names their own id. These tests call the engine directly, as the
//! runtime does.

use super::scenario::{START, Scenario, submission};
use crate::command::{AdminCommand, PUBLISHED_BYTES_MAX, ScheduleCommand};
use crate::engine::Engine;
use crate::schedule::SCHEDULE_SELF;
use crate::{
    Command, Effects, EventKind, Name, RejectionCode, Reply, SchedulePatch, ScheduleSpec, Settings, Span,
    Timing,
};

#[test]
fn a_message_is_one_event_of_its_tenant_without_an_actor() {
    let mut engine = Engine::new(Settings::default(), 7, START);
    let mut effects = Effects::default();
    let publish = |len: usize| {
        Command::Admin(AdminCommand::Publish { tenant: Name::fixed("acme"), detail: "x".repeat(len).into() })
    };
    assert_eq!(engine.apply(START, publish(3), &mut effects), Reply::Done);
    let event = effects.events.last().expect("there is an event");
    assert_eq!((event.kind, event.detail.as_deref()), (EventKind::Outbound, Some("xxx")));
    assert_eq!((event.tenant.clone(), event.actor.clone()), (Some(Name::fixed("acme")), None));
    assert!(matches!(engine.apply(START, publish(PUBLISHED_BYTES_MAX), &mut effects), Reply::Done));
    let reply = engine.apply(START, publish(PUBLISHED_BYTES_MAX + 1), &mut effects);
    assert!(matches!(reply, Reply::Rejected(rejection) if rejection.code == RejectionCode::Invalid));
    assert_eq!(effects.events.len(), 2);
}

fn schedule(session: &str) -> ScheduleSpec {
    let job = submission(&format!("tenant=acme session={session}")).spec;
    ScheduleSpec::new(Name::fixed("s"), Timing::Every { every: Span::hours(1), anchor: None }, job)
}

#[test]
fn a_schedule_puts_its_own_id_into_the_key_of_its_session() {
    let mut engine = Engine::new(Settings::default(), 7, START);
    let mut put = |session: &str| {
        let command =
            Command::Schedule(ScheduleCommand::Put(Box::new(schedule(session)), Scenario::origin()));
        engine.apply(START, command, &mut Effects::default())
    };
    let long = format!("{}{SCHEDULE_SELF}", "x".repeat(100));
    assert!(
        matches!(put(&long), Reply::Rejected(rejection) if rejection.message.starts_with("job.session.key"))
    );
    let Reply::Schedule(made) = put(&format!("agent:a:cron:{SCHEDULE_SELF}")) else { panic!("it is made") };
    let key_of =
        |made: &crate::Schedule| made.spec.job.session.as_ref().map(|session| session.key.to_string());
    assert_eq!(key_of(&made), Some(format!("agent:a:cron:{}", made.id)));
    let job = Some(Box::new(schedule(&format!("agent:b:cron:{SCHEDULE_SELF}")).job));
    let patch = Box::new(SchedulePatch { job, ..SchedulePatch::default() });
    let update = Command::Schedule(ScheduleCommand::Update {
        tenant: None,
        id: made.id,
        patch,
        origin: Scenario::origin(),
    });
    let Reply::Schedule(made) = engine.apply(START, update, &mut Effects::default()) else {
        panic!("changed")
    };
    assert_eq!(key_of(&made), Some(format!("agent:b:cron:{}", made.id)));
}

#[test]
fn a_patch_that_was_made_from_another_schedule_changes_nothing() {
    let mut engine = Engine::new(Settings::default(), 7, START);
    let mut effects = Effects::default();
    let origin = Scenario::origin;
    let put = Command::Schedule(ScheduleCommand::Put(Box::new(schedule("chat")), origin()));
    let Reply::Schedule(made) = engine.apply(START, put, &mut effects) else { panic!("it is made") };
    let update = |made_from: &ScheduleSpec, name: &'static str| {
        let made_from = Some(Box::new(made_from.clone()));
        let patch =
            Box::new(SchedulePatch { made_from, name: Some(Name::fixed(name)), ..SchedulePatch::default() });
        Command::Schedule(ScheduleCommand::Update { tenant: None, id: made.id, patch, origin: origin() })
    };
    let first = engine.apply(START, update(&made.spec, "first"), &mut effects);
    assert!(matches!(first, Reply::Schedule(now) if now.spec.name == Name::fixed("first")));
    let events = effects.events.len();
    assert_eq!(engine.apply(START, update(&made.spec, "second"), &mut effects), Reply::Stale);
    assert_eq!(effects.events.len(), events);
    let now = engine.schedule(None, made.id).expect("it is there").spec.clone();
    assert_eq!(now.name, Name::fixed("first"));
    assert!(matches!(engine.apply(START, update(&now, "second"), &mut effects), Reply::Schedule(_)));
}
