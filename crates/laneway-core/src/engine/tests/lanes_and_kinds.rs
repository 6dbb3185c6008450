//! Lanes and kinds that do not exist, errors in events, and lanes that were removed.

use std::sync::Arc;

use crate::command::AdminCommand;

use crate::command::{ExecutorMode, ExecutorOffer, Submitted};
use crate::engine::tests::scenario::{START, Scenario, submission};
use crate::engine::{Engine, Recovery, Restart, StoreCounters};
use crate::{
    Change, Command, Effects, Event, EventKind, Failure, LaneSettings, Name, Notice, Now, Outcome,
    RejectionCode, Reply, Settings, Span, Wall,
};

/// An engine with settings of its own, and a clock.
struct Fixture {
    scenario: Scenario,
    engine: Engine,
    now: Now,
}

impl Fixture {
    fn new(settings: Settings) -> Fixture {
        let engine = Engine::new(settings, 7, START);
        let mut fixture = Fixture { scenario: Scenario::new(), engine, now: START };
        let kinds = ["echo", "sleep"].map(Name::fixed).to_vec();
        let (executor, mode) = (Name::fixed("local"), ExecutorMode::Attached);
        fixture.send(Command::Admin(AdminCommand::Offer(ExecutorOffer { executor, mode, kinds, slots: 10 })));
        fixture
    }

    fn send(&mut self, command: Command) -> (Reply, Effects) {
        let mut effects = Effects::default();
        let reply = self.engine.apply(self.now, command, &mut effects);
        self.engine.check_invariants().expect("the engine agrees with itself");
        (reply, effects)
    }

    /// Submits a job with the options of a scenario.
    fn submit(&mut self, options: &str) -> (Reply, Effects) {
        let submission = submission(options);
        self.send(Command::Submit(Arc::new(submission)))
    }

    fn configure(&mut self, settings: Settings) {
        let (settings, detail) = (Box::new(settings), "test".into());
        self.send(Command::Admin(AdminCommand::Configure {
            settings,
            overrides: None,
            detail,
            origin: Scenario::origin(),
        }));
    }

    /// The lanes whose ended jobs the next sweep forgets, with how old these must be.
    fn sweep(&mut self) -> Vec<(String, u64)> {
        self.now = Now { mono: self.now.mono + Span::secs(11), wall: self.now.wall + Span::secs(11) };
        let (_, effects) = self.send(Command::Tick);
        let purged = |change: &Change| match change {
            Change::JobsPruned { lane, finished_before, .. } => {
                Some((lane.to_string(), self.now.wall.since(*finished_before).0))
            }
            _ => None,
        };
        effects.changes.iter().filter_map(purged).collect()
    }
}

#[test]
fn defect_05_a_clock_that_is_ahead_forgets_nothing_that_is_young() {
    let mut fixture = Fixture::new(Settings::default());
    let week = Span::hours(7 * 24);
    let mut forget = |passed: Span, ahead: Span| {
        fixture.now = Now { mono: START.mono + passed, wall: START.wall + passed + ahead };
        let before = fixture.now.wall.before(week);
        let (_, effects) = fixture.send(Command::Admin(AdminCommand::Forget {
            lane: Name::fixed("main"),
            finished_before: before,
        }));
        let purged = |change: &Change| match change {
            Change::JobsPruned { finished_before, keyed_finished_before, .. } => {
                assert!(keyed_finished_before <= finished_before);
                Some(*finished_before)
            }
            _ => None,
        };
        effects.changes.iter().rev().find_map(purged).expect("jobs are forgotten")
    };
    let old = |passed: Span| (START.wall + passed).before(week);
    assert_eq!(forget(Span::secs(1), Span(0)), old(Span::secs(1)));
    let ahead = Span::hours(8 * 24);
    assert_eq!(forget(Span::secs(11), ahead), old(Span::secs(11)), "as if the clock had not jumped");
    assert_eq!(forget(Span::secs(21), Span(0)), old(Span::secs(21)));
    // A clock that stays ahead is believed.
    forget(Span::secs(30), ahead);
    assert_eq!(forget(Span::hours(2), ahead), old(Span::hours(2)) + ahead);
}

fn submitted(reply: Reply) -> Submitted {
    match reply {
        Reply::Submitted(submitted) => submitted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defect_19_an_unknown_lane_is_rejected_natively_and_means_main_to_dialects() {
    let mut fixture = Fixture::new(Settings::default());
    let (Reply::Rejected(rejection), effects) = fixture.submit("kind=echo lane=mian strict=1") else {
        panic!("a strict lane is rejected");
    };
    assert_eq!(rejection.code, RejectionCode::UnknownLane);
    assert_eq!(&*rejection.message, "lane: there is no lane \"mian\"; did you mean \"main\"?");
    assert!(effects.changes.is_empty() && effects.events.is_empty());
    let (reply, _) = fixture.submit("kind=echo lane=mian");
    assert_eq!(submitted(reply).lane.as_str(), "main");
}

#[test]
fn defect_19_a_submit_says_whether_its_kind_is_served() {
    let mut fixture = Fixture::new(Settings::default());
    assert!(submitted(fixture.submit("kind=echo lane=main strict=1").0).served);
    assert!(!submitted(fixture.submit("kind=ehco lane=main strict=1").0).served);
    let names = |engine: &Engine, tenant: &'static str| -> Vec<String> {
        engine.kinds_served(&Name::fixed(tenant)).iter().map(Name::to_string).collect()
    };
    assert_eq!(names(&fixture.engine, "default"), ["echo", "sleep"]);
    // The engine of the scenarios has handlers for k, k2 and k3.
    let scenario = &mut fixture.scenario;
    scenario.play("worker w1 c1 kinds=shoot tenant=acme");
    assert_eq!(names(&scenario.engine, "acme"), ["k", "k2", "k3", "shoot"]);
    assert_eq!(
        names(&scenario.engine, "default"),
        ["k", "k2", "k3"],
        "no tenant learns of another one's workers"
    );
    for (tenant, served) in [("acme", true), ("default", false)] {
        let submission = submission(&format!("kind=shoot tenant={tenant}"));
        let command = Command::Submit(Arc::new(submission));
        let reply = scenario.engine.apply(scenario.now, command, &mut Effects::default());
        assert_eq!(submitted(reply).served, served, "{tenant}");
    }
}

#[test]
fn defect_19_events_of_failures_carry_the_error() {
    let mut fixture = Fixture::new(Settings::default());
    let long = "ü".repeat(600);
    for (failure, kind) in [
        (Failure::retryable("busy", "come back later"), EventKind::JobRetrying),
        (Failure::permanent("broken", long.clone()), EventKind::JobFailed),
    ] {
        let (_, effects) = fixture.submit("kind=echo lane=main strict=1");
        let offer = effects.notices.iter().find_map(|notice| match notice {
            Notice::Offer(offer) => Some(offer.fence),
            _ => None,
        });
        let fence = offer.expect("it starts at once");
        let (_, effects) = fixture.send(Command::Finish(fence, Outcome::Failed(failure.clone())));
        let of_kind = |event: &&Event| event.kind == kind;
        let event = effects.events.iter().find(of_kind).expect("there is an event");
        let error = event.job.as_ref().and_then(|job| job.error.as_ref()).expect("with its error");
        assert_eq!(error.code, failure.code);
        match kind {
            EventKind::JobRetrying => assert_eq!(error.message, failure.message),
            _ => assert!(error.message.len() <= 512 && error.message.ends_with("ü…"), "{}", error.message),
        }
    }
}

#[test]
fn defect_19_events_of_jobs_that_end_while_they_wait_carry_the_error() {
    for (limits, code, message) in [
        ("queue=5s", "queue_timeout", "it waited longer than its queue timeout"),
        ("deadline=5s", "expired", "its deadline passed"),
        ("queue=5s deadline=5s", "expired", "its deadline passed"),
        ("after=3s deadline=5s", "expired", "its deadline passed"),
    ] {
        let mut fixture = Fixture::new(Settings::default());
        submitted(fixture.submit(&format!("kind=unserved lane=main strict=1 {limits}")).0);
        fixture.now = Now { mono: fixture.now.mono + Span::secs(5), wall: fixture.now.wall + Span::secs(5) };
        let (_, effects) = fixture.send(Command::Tick);
        let event = effects.events.iter().find(|event| event.kind == EventKind::JobFailed).expect(limits);
        let error = event.job.as_ref().and_then(|job| job.error.as_ref()).expect("with its error");
        assert_eq!((error.code.as_str(), &*error.message), (code, message), "{limits}");
        let end = effects.changes.iter().find_map(|change| match change {
            Change::JobEnded(end) => Some(end),
            _ => None,
        });
        let kept = end.and_then(|end| end.error.as_ref()).expect("the job has it, too");
        assert_eq!((kept.code.as_str(), &*kept.message, kept.retryable), (code, message, false), "{limits}");
    }
}

#[test]
fn defect_19_ended_jobs_of_removed_lanes_are_still_purged() {
    let old = LaneSettings { retention: Span::hours(5), ..LaneSettings::default() };
    let mut with_old = Settings::default();
    with_old.lanes.insert(Name::fixed("old"), old);
    let mut fixture = Fixture::new(with_old.clone());
    let week = Span::hours(7 * 24).0;
    let both = [("main".to_owned(), week), ("old".to_owned(), Span::hours(5).0)];
    assert_eq!(fixture.sweep(), both);
    fixture.configure(Settings::default());
    assert_eq!(fixture.sweep(), both, "its own retention holds after it was removed");
    let mut with_new = Settings::default();
    with_new.lanes.insert(Name::fixed("new"), LaneSettings::default());
    fixture.configure(with_new);
    let swept: Vec<String> = fixture.sweep().into_iter().map(|(lane, _)| lane).collect();
    assert_eq!(swept, ["main", "new", "old"], "another lane has taken its slot");
    fixture.configure(with_old);
    assert_eq!(fixture.sweep().len(), 3, "new is removed, and old is swept once");
}

#[test]
fn defect_19_lanes_that_were_removed_before_the_start_are_purged_too() {
    let mut recovery = Recovery::new(Settings::default(), Vec::new(), StoreCounters::default(), 7, START);
    for number in 0..100 {
        recovery.lane(Name::new(&format!("gone-{number:02}")).unwrap());
    }
    recovery.lane(Name::fixed("main"));
    let engine = recovery.finish(START, Restart::Process, &mut Effects::default());
    let mut fixture = Fixture { scenario: Scenario::new(), engine, now: START };
    let week = Span::hours(7 * 24).0;
    let (first, second, third) = (fixture.sweep(), fixture.sweep(), fixture.sweep());
    assert_eq!((first.len(), second.len(), third.len()), (65, 37, 65), "a bounded number at a time");
    assert!(first.iter().chain(&second).all(|(_, age)| *age == week));
    assert_eq!(first[1..], third[1..], "and then from the beginning");
    assert_eq!(fixture.now.wall, Wall(START.wall.0 + 33_000));
}

#[test]
fn defect_19_lanes_without_jobs_are_marked_unused() {
    let mut settings = Settings::default();
    settings.lanes.insert(Name::fixed("dialect"), LaneSettings::default());
    settings.shown_once_used.insert(Name::fixed("dialect"));
    let mut fixture = Fixture::new(settings);
    let unused = |fixture: &Fixture, tenant: Option<&'static str>| -> Vec<String> {
        let tenant = tenant.map(Name::fixed);
        let stats = fixture.engine.stats(tenant.as_ref());
        stats.lanes.iter().filter(|lane| lane.unused).map(|lane| lane.lane.to_string()).collect()
    };
    assert_eq!(unused(&fixture, None), ["dialect"]);
    fixture.submit("kind=echo lane=dialect strict=1");
    assert!(unused(&fixture, None).is_empty());
    assert_eq!(unused(&fixture, Some("acme")), ["dialect"], "another tenant's jobs are not its own");
}
