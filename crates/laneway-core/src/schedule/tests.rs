//! Timings by table: what is rejected, when slots are, what clocks that change do to them.

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

use super::{FIRING_TEXT_MAX, Plan, ScheduleLine, Timing, TimingError, cut_text, preview};
use crate::{Backoff, Name, RetryPolicy, ScheduleId, Span, Wall};

/// A local time with its offset, such as `2026-11-01T01:30:00-05:00`.
fn wall(text: &str) -> Wall {
    Wall(text.parse::<Timestamp>().unwrap_or_else(|_| panic!("{text} is no time")).as_millisecond())
}

fn cron(expr: &str, zone: &str) -> Timing {
    Timing::Cron { expr: expr.into(), zone: Some(Name::new(zone).unwrap()) }
}

fn next(expr: &str, zone: &str, after: Wall) -> Option<Wall> {
    Plan::new(&cron(expr, zone), after).unwrap().next_after(after)
}

#[test]
fn x18_next_runs_are_those_of_the_calendar() {
    let table = [
        ("0 9 * * 1-5", "Asia/Ho_Chi_Minh", "2026-03-28T19:00:00+07:00", "2026-03-30T09:00:00+07:00"),
        ("0 9 * * 1-5", "America/Toronto", "2026-03-06T15:00:00-05:00", "2026-03-09T09:00:00-04:00"),
        ("*/15 * * * *", "UTC", "2026-01-31T23:50:00Z", "2026-02-01T00:00:00Z"),
        ("0 22 * * *", "Asia/Saigon", "2026-03-28T22:00:00+07:00", "2026-03-29T22:00:00+07:00"),
        ("0 0 1 * 1", "UTC", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"),
        ("0 0 13 * 5", "UTC", "2026-03-29T00:30:00Z", "2026-04-03T00:00:00Z"),
        ("*/7 * * * *", "UTC", "2026-03-29T12:57:00Z", "2026-03-29T13:00:00Z"),
        ("0 0 31 * *", "UTC", "2026-04-01T00:00:00Z", "2026-05-31T00:00:00Z"),
        ("0 0 29 2 *", "UTC", "2026-03-29T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("30 2 * * *", "America/New_York", "2026-03-08T00:30:00-05:00", "2026-03-08T03:00:00-04:00"),
        ("30 2 * * *", "America/New_York", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"),
        ("30 * * * *", "America/New_York", "2026-11-01T01:30:02-04:00", "2026-11-01T01:30:00-05:00"),
        ("30 1 * * *", "America/New_York", "2026-11-01T01:30:02-04:00", "2026-11-02T01:30:00-05:00"),
        ("*/5 * * * *", "America/New_York", "2026-11-01T01:03:02-05:00", "2026-11-01T01:05:00-05:00"),
        ("0 */8 * * *", "America/New_York", "2026-11-01T00:30:00-04:00", "2026-11-01T08:00:00-05:00"),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T01:30:02+02:00", "2026-10-25T02:30:00+02:00"),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"),
        ("0 9 * * *", "America/Toronto", "2026-03-28T12:00:00Z", "2026-03-28T13:00:00Z"),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"),
    ];
    for (expr, zone, after, expected) in table {
        let found = next(expr, zone, wall(after));
        assert_eq!(found, Some(wall(expected)), "{expr} in {zone} after {after}");
    }
}

#[test]
fn x18_dates_that_never_come_have_no_next_run() {
    for expr in ["0 0 31 4 *", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 feb ?"] {
        assert_eq!(next(expr, "UTC", wall("2026-01-05T00:00:00Z")), None, "{expr}");
        assert_eq!(preview(&cron(expr, "UTC"), Wall(0), 3), Err(TimingError::Never), "{expr}");
    }
}

#[test]
fn grammar_beyond_numbers() {
    let table = [
        ("0 0 L * *", "2026-02-10T00:00:00Z", "2026-02-28T00:00:00Z"),
        ("0 0 L-2 * *", "2026-02-10T00:00:00Z", "2026-02-26T00:00:00Z"),
        ("0 0 15W * *", "2026-08-01T00:00:00Z", "2026-08-14T00:00:00Z"),
        ("0 0 1W * *", "2026-08-01T00:00:00Z", "2026-08-03T00:00:00Z"),
        ("0 0 31W * *", "2026-05-01T00:00:00Z", "2026-05-29T00:00:00Z"),
        ("0 0 LW * *", "2026-05-01T00:00:00Z", "2026-05-29T00:00:00Z"),
        ("0 0 * * 5L", "2026-05-01T00:00:00Z", "2026-05-29T00:00:00Z"),
        ("0 0 * * mon#2", "2026-05-01T00:00:00Z", "2026-05-11T00:00:00Z"),
        ("0 0 * * 1#5", "2026-05-01T00:00:00Z", "2026-06-29T00:00:00Z"),
        ("0 0 * * 7", "2026-05-01T00:00:00Z", "2026-05-03T00:00:00Z"),
        ("0 0 * * SUN", "2026-05-01T00:00:00Z", "2026-05-03T00:00:00Z"),
        ("0 0 * * 5-7", "2026-05-03T00:00:00Z", "2026-05-08T00:00:00Z"),
        ("0 0 1 JAN-MAR/2 ?", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("5/20 * * * *", "2026-05-01T00:46:00Z", "2026-05-01T01:05:00Z"),
        ("0 0 */2 * 1", "2026-05-01T00:00:00Z", "2026-05-11T00:00:00Z"),
        ("10,50-52 * * * * *", "2026-05-01T00:00:10Z", "2026-05-01T00:00:50Z"),
        ("0 30 6 * * *", "2026-05-01T06:30:00Z", "2026-05-02T06:30:00Z"),
        ("@hourly", "2026-05-01T06:30:00Z", "2026-05-01T07:00:00Z"),
        ("@Weekly", "2026-05-01T06:30:00Z", "2026-05-03T00:00:00Z"),
        ("@yearly", "2026-05-01T06:30:00Z", "2027-01-01T00:00:00Z"),
    ];
    for (expr, after, expected) in table {
        assert_eq!(next(expr, "UTC", wall(after)), Some(wall(expected)), "{expr} after {after}");
    }
}

#[test]
fn gc_c1_expressions_that_are_none_say_why() {
    let bad = [
        "",
        "bad cron",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "0,99 * * * *",
        "5-1 * * * *",
        "*/0 * * * *",
        "*/60 * * * *",
        "a * * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "* * * * 1#6",
        "* * * * 1#0",
        "* * 32W * *",
        "* * L-31 * *",
        "* * * foo *",
        "@never",
        "+5 * * * *",
    ];
    for expr in bad {
        let rejected = Plan::new(&cron(expr, "UTC"), Wall(0)).err();
        assert!(matches!(rejected, Some(TimingError::Expression(_))), "{expr:?} gives {rejected:?}");
    }
    let long = format!("{} * * * *", "1,".repeat(200));
    assert!(Plan::new(&cron(&long, "UTC"), Wall(0)).is_err());
    assert!(matches!(Plan::new(&cron("* * * * *", "Invalid/Zone"), Wall(0)), Err(TimingError::Zone(_))));
    assert!(Plan::new(&cron("* * * * *", "Asia/Saigon"), Wall(0)).is_ok());
}

#[test]
fn gc_c2_next_of_each_sort() {
    let now = Wall(1_000_000);
    let next = |timing: Timing| Plan::new(&timing, now).ok().and_then(|plan| plan.next_after(now));
    assert_eq!(next(Timing::At(Wall(1_000_001))), Some(Wall(1_000_001)));
    assert_eq!(next(Timing::At(now)), None);
    assert_eq!(next(Timing::Every { every: Span(5_000), anchor: None }), Some(Wall(1_005_000)));
    assert_eq!(next(Timing::Every { every: Span(0), anchor: None }), None);
    let minute = next(cron("* * * * *", "UTC")).unwrap();
    assert!(minute > now && minute.since(now) <= Span::secs(60));
}

#[test]
fn gc_c3_an_interval_stays_on_its_grid() {
    for (anchor, every, now, expected) in [
        (1_000, 5_000, 6_500, 11_000),
        (2_000, 5_000, 6_500, 7_000),
        (1_000, 5_000, 6_000, 11_000),
        (1_000, 5_000, 22_000, 26_000),
        (0, 1_000, 86_400_000, 86_401_000),
        (9_000, 5_000, 1_000, 9_000),
        (-7_000, 5_000, -1, 3_000),
    ] {
        let timing = Timing::Every { every: Span(every), anchor: Some(Wall(anchor)) };
        let next = Plan::new(&timing, Wall(0)).unwrap().next_after(Wall(now));
        assert_eq!(next, Some(Wall(expected)), "{anchor} {every} {now}");
    }
}

/// Both days on which clocks change, in zones with whole and half hours, gaps at midnight and changes in the south.
const ODD_DAYS: [(&str, &str); 12] = [
    ("America/New_York", "2026-03-08T00:00:00-05:00"),
    ("America/New_York", "2026-11-01T00:00:00-04:00"),
    ("Europe/Berlin", "2026-03-29T00:00:00+01:00"),
    ("Europe/Berlin", "2026-10-25T00:00:00+02:00"),
    ("Australia/Lord_Howe", "2026-04-05T00:00:00+11:00"),
    ("Australia/Lord_Howe", "2026-10-04T00:00:00+10:30"),
    ("Africa/Cairo", "2026-04-23T22:00:00+02:00"),
    ("Africa/Cairo", "2026-10-29T22:00:00+03:00"),
    ("America/Havana", "2026-03-07T22:00:00-05:00"),
    ("America/Havana", "2026-11-01T00:00:00-04:00"),
    ("America/Santiago", "2026-04-04T22:00:00-03:00"),
    ("America/Santiago", "2026-09-05T22:00:00-04:00"),
];

#[test]
fn x19_the_next_run_is_after_now_in_every_minute_of_odd_days() {
    let exprs = [
        "30 2 * * *",
        "30 1 * * *",
        "30 * * * *",
        "*/5 * * * *",
        "0 0 * * *",
        "0 */2 * * *",
        "15 0,1,2,3 * * *",
    ];
    for (zone, begin) in ODD_DAYS {
        for expr in exprs {
            let plan = Plan::new(&cron(expr, zone), Wall(0)).unwrap();
            let mut last = Wall(0);
            for minute in 0..26 * 60 {
                let now = Wall(wall(begin).0 + minute * 60_000 + 2_000);
                let slot = plan.next_after(now).unwrap();
                assert!(slot > now, "{expr} in {zone} at minute {minute}: {slot:?}");
                assert!(slot >= last, "{expr} in {zone} at minute {minute} goes back");
                assert_eq!(
                    plan.next_after(Wall(slot.0 - 1)),
                    Some(slot),
                    "{expr} in {zone}: {slot:?} is a slot"
                );
                last = slot;
            }
        }
    }
}

#[test]
fn x19_a_time_of_day_comes_once_a_day_and_a_rhythm_as_often_as_time_passes() {
    for (zone, begin) in ODD_DAYS {
        let tz = TimeZoneDatabase::bundled().get(zone).unwrap();
        let (from, to) = (wall(begin), wall(begin).0 + 49 * 3_600_000);
        for hour in 0..24 {
            for minute in [0, 15, 30, 45] {
                let slots = preview(&cron(&format!("{minute} {hour} * * *"), zone), from, 4).unwrap();
                let days: Vec<_> = slots
                    .iter()
                    .map(|slot| tz.to_datetime(Timestamp::from_millisecond(slot.0).unwrap()).date())
                    .collect();
                assert!(
                    days.windows(2).all(|pair| pair[0].tomorrow().unwrap() == pair[1]),
                    "{zone} {hour}:{minute} {days:?}"
                );
            }
        }
        let quarters = preview(&cron("*/15 * * * *", zone), from, 1_000).unwrap();
        let quarters: Vec<_> = quarters.into_iter().filter(|slot| slot.0 <= to).collect();
        assert!(quarters.windows(2).all(|pair| pair[1].since(pair[0]) == Span::mins(15)), "{zone}");
        assert_eq!(quarters.len(), 49 * 4, "{zone}");
    }
}

#[test]
fn the_newest_slots_are_found_without_walking_all_of_them() {
    let plan = Plan::new(&cron("* * * * * *", "Europe/Berlin"), Wall(0)).unwrap();
    let (from, to) = (wall("2016-01-01T00:00:00Z"), wall("2026-01-01T00:00:00Z"));
    assert_eq!(plan.newest(from, to, 1), (vec![to], true));
    let (slots, left_out) = plan.newest(from, to, 100);
    assert_eq!((slots.len(), slots[0], left_out), (100, Wall(to.0 - 99_000), true));
    assert_eq!(plan.newest(to, to, 100), (vec![to], false));

    let yearly = Plan::new(&cron("0 0 1 1 *", "UTC"), Wall(0)).unwrap();
    let (slots, left_out) = yearly.newest(from, to, 100);
    assert_eq!((slots.len(), left_out), (11, false));

    let every = Plan::new(&Timing::Every { every: Span(100), anchor: Some(from) }, Wall(0)).unwrap();
    assert_eq!(every.newest(from, to, 2), (vec![Wall(to.0 - 100), to], true));
}

#[test]
fn a_zone_and_an_anchor_that_are_left_out_are_kept() {
    let utc = Name::fixed("UTC");
    let mut timing = Timing::Every { every: Span(5), anchor: None };
    timing.fill_in(Some(&Timing::Every { every: Span(5), anchor: Some(Wall(3)) }), Wall(9), &utc);
    assert_eq!(timing, Timing::Every { every: Span(5), anchor: Some(Wall(3)) });
    let mut timing = Timing::Every { every: Span(5), anchor: None };
    timing.fill_in(Some(&Timing::Every { every: Span(6), anchor: Some(Wall(3)) }), Wall(9), &utc);
    assert_eq!(timing, Timing::Every { every: Span(5), anchor: Some(Wall(9)) });
    let mut timing = Timing::Cron { expr: "1 * * * *".into(), zone: None };
    timing.fill_in(Some(&cron("2 * * * *", "Asia/Saigon")), Wall(9), &utc);
    assert_eq!(timing, cron("1 * * * *", "Asia/Saigon"));
    let mut timing = Timing::Cron { expr: "1 * * * *".into(), zone: None };
    timing.fill_in(Some(&Timing::At(Wall(1))), Wall(9), &utc);
    assert_eq!(timing, cron("1 * * * *", "UTC"));
}

#[test]
fn gc_r5_r6_r8_waits_of_the_preset() {
    let preset = RetryPolicy::CRON;
    assert_eq!(
        (preset.retries_max, preset.backoff.base, preset.backoff.max),
        (3, Span::secs(2), Span::secs(30))
    );
    let tenths = Backoff { base: Span(100), max: Span(300), ..Backoff::CRON };
    for random in 0..1_000 {
        for (failures, nominal) in [(1, 100), (2, 200), (3, 300), (9, 300)] {
            let wait = tenths.wait(failures, random).0;
            assert!(wait >= nominal * 3 / 4 && wait <= nominal * 5 / 4 && wait <= 300, "{failures}: {wait}");
        }
    }
}

#[test]
fn gc_r7_x26_texts_are_cut_between_characters() {
    assert_eq!(&*cut_text(b"short"), "short");
    let exact = "x".repeat(FIRING_TEXT_MAX);
    assert_eq!(*cut_text(exact.as_bytes()), *exact);
    let longer = "x".repeat(FIRING_TEXT_MAX + 1);
    assert_eq!(*cut_text(longer.as_bytes()), format!("{exact}...[truncated]"));
    for lead in 0..4 {
        let text = "x".repeat(lead) + &"\u{1F600}".repeat(FIRING_TEXT_MAX / 4 + 1);
        let cut = cut_text(text.as_bytes());
        let kept = cut.strip_suffix("...[truncated]").unwrap();
        assert!(
            text.starts_with(kept) && kept.len() > FIRING_TEXT_MAX - 4 && kept.len() <= FIRING_TEXT_MAX,
            "{lead}"
        );
    }
    assert!(cut_text(&vec![0x80; FIRING_TEXT_MAX * 2]).ends_with("...[truncated]"));
}

#[test]
fn ids_and_lines_read_back() {
    let id = ScheduleId(0x0190_a5b0_0000_7000_8000_0000_0000_0001);
    assert_eq!(id.to_string(), "sch_0190a5b0-0000-7000-8000-000000000001");
    assert_eq!(ScheduleId::parse(&id.to_string()), Some(id));
    assert_eq!(ScheduleId::parse("0190a5b0-0000-7000-8000-000000000001"), Some(id));
    assert_eq!(ScheduleId::parse("sch_1"), None);
    let line = ScheduleLine { id, action: "fired".into(), name: Name::fixed("a nightly report") };
    assert_eq!(ScheduleLine::parse(&line.to_string()), Some(line));
}
