//! Scenarios as text: a line is a command, what follows from it is written below it, and `expect!` holds the whole.
//!
//! ```text
//! lane main running=1
//! submit a1 agent=A | submit b1 agent=B
//! finish a1 ok
//! ```
//! After every command the engine recounts itself. Kinds are offered by an attached place called `local` unless the
//! scenario says otherwise; only `Story` below touches the engine.

mod admission;
mod bursts;
mod calendar;
mod calls;
mod cancel;
mod capacity;
mod chains;
mod counts;
mod crew;
mod deliveries;
mod dispatch;
mod explain;
mod group_slots;
mod groups;
mod ids;
mod lease;
mod members;
mod newcomers;
mod outbound;
mod placing;
mod processes;
mod pull;
mod recover;
mod reject;
mod retry;
mod runs;
mod schedules;
mod serving;
mod sessions;
mod settings;
mod slots;
mod story;
mod time;
mod tokens;
mod workers;

use expect_test::Expect;
use story::Story;

/// Plays the scenario and compares the whole transcript.
fn check(scenario: &str, expect: Expect) {
    let mut story = Story::new();
    let mut transcript = String::new();
    for line in scenario.lines().map(str::trim).filter(|line| !line.is_empty()) {
        transcript.push_str(line);
        transcript.push('\n');
        for command in line.split('|') {
            for said in story.play(command.trim()) {
                transcript.push_str("    ");
                transcript.push_str(&said);
                transcript.push('\n');
            }
        }
    }
    expect.assert_eq(&transcript);
}
