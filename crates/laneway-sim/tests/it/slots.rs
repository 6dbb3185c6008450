//! Many schedules for a long time, with crashes: each slot exactly once.

use laneway_core::Span;
use laneway_sim::marathon::Marathon;

/// 1,000 schedules over ten simulated hours. Intervals of forty seconds to ten minutes here, so that a build without
/// optimization plays them in seconds; `laneway-sim --marathon` is for every second.
#[test]
fn a_thousand_schedules_over_ten_hours_with_crashes_each_slot_once() {
    let plan = Marathon { seed: 7, schedules: 1_000, length: Span::hours(10), shortest: 40, longest: 600 };
    let finish = plan.run().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(finish.slots > 150_000, "only {} slots came", finish.slots);
    assert!(finish.crashes > 100, "only {} crashes", finish.crashes);
}

/// Schedules that come every second, for twenty simulated seconds.
#[test]
fn a_thousand_schedules_every_second_with_crashes_each_slot_once() {
    let plan = Marathon { seed: 8, schedules: 1_000, length: Span::secs(20), shortest: 1, longest: 1 };
    let finish = plan.run().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(finish.slots >= 20_000, "only {} slots came", finish.slots);
}
