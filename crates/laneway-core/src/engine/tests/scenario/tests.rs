//! The language itself: every verb is documented with an example and used, set-ups do what they say, errors name the
//! word that is wrong.

use std::collections::BTreeSet;
use std::path::Path;

use super::parse::{self, Context, VERBS};
use super::{START, Scenario, check, given};
use crate::Settings;
use expect_test::expect;

/// The examples in the tables of a module's documentation.
fn examples(source: &'static str) -> impl Iterator<Item = &'static str> {
    source.lines().filter_map(|line| line.strip_prefix("//! | `")?.split('`').next())
}

fn verb(command: &str) -> &str {
    command.split(' ').next().unwrap_or_default()
}

#[test]
fn every_verb_is_documented_with_an_example_that_parses() {
    let settings = Settings::default();
    let mut documented: Vec<&str> = Vec::new();
    for example in examples(include_str!("../scenario.rs")) {
        let context = Context { now: START, settings: &settings };
        if let Err(error) = parse::step(example, context) {
            panic!("`{example}`: {error}");
        }
        documented.push(verb(example));
    }
    let known: Vec<&str> = VERBS.iter().map(|(verb, _)| *verb).collect();
    documented.sort_unstable();
    let mut sorted = known.clone();
    sorted.sort_unstable();
    assert_eq!(documented, sorted);
}

#[test]
fn every_verb_is_used_by_a_scenario() {
    let mut used = BTreeSet::new();
    collect_verbs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/tests"), &mut used);
    let unused: Vec<&str> =
        VERBS.iter().map(|(verb, _)| *verb).filter(|verb| !used.contains(*verb)).collect();
    assert!(unused.is_empty(), "no scenario uses {unused:?}");
}

/// The verbs of all transcripts below a folder, apart from this language's own.
fn collect_verbs(folder: &Path, used: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("scenario") {
            collect_verbs(&path, used);
        } else if path.is_file() {
            let text = std::fs::read_to_string(&path).unwrap();
            for transcript in text.split("check(expect![[r#\"").skip(1) {
                let transcript = transcript.split("\"#]]").next().unwrap_or_default();
                let lines = transcript.lines().filter_map(|line| line.strip_prefix("        "));
                let commands = lines.filter(|line| !line.starts_with(' ')).flat_map(|line| line.split('|'));
                used.extend(
                    commands.map(|command| verb(command.trim().trim_start_matches("given ")).to_owned()),
                );
            }
        }
    }
}

#[test]
fn every_named_set_up_expands_to_its_commands() {
    let mut transcript = String::new();
    for example in examples(include_str!("given.rs")) {
        let mut scenario = Scenario::new();
        let set_up = example.trim_start_matches("given ");
        if set_up.starts_with("tasks") {
            scenario.play("worker w1 c1 slots=2 kinds=w");
        }
        transcript.push_str(&format!("{example}\n"));
        for command in given::expand(set_up) {
            transcript.push_str(&format!("  {command}\n"));
            for effect in scenario.play(&command) {
                transcript.push_str(&format!("    {effect}\n"));
            }
        }
    }
    expect![[r#"
        given push workers w1 w2 slots=2
          worker w1 c1 kinds=w slots=2
            lease 30 s
            worker.connected w1: registered over c1, 0 attempts rebound
          worker w2 c2 kinds=w slots=2
            lease 30 s
            worker.connected w2: registered over c2, 0 attempts rebound
        given tasks a1 a2 on c1
          submit a1 kind=w
            a1 assigned #1
            offer a1#1 to c1
          submit a2 kind=w
            a2 assigned #1
            offer a2#1 to c1
          accept c1 a1
            a1 started #1
          accept c1 a2
            a2 started #1
        given leased executor
          executor far leased kinds=w slots=9
        given chain r of m1 m2 around h
          submitrun r h m1 m2 chain=h:m1,m2
            r submitted
            r started
            r/m1 started #1
        given call r of m1 around h
          submitrun r h m1 chain=h:m1
            r submitted
            r started
            r/m1 started #1
          next r/m1 q1
            r/h queued #0 (called)
            r/h started #1
        given firing s every=10s
          schedule s every=10s
            schedule s created
          wait 10s
            schedule s fired
            s/1 started #1
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn errors_name_the_verb_and_the_word() {
    let settings = Settings::default();
    let mut errors = String::new();
    for command in [
        "enqueue a1",
        "submit",
        "submit a1 a2",
        "submit a1 colour=red",
        "submit a1 priority=high",
        "wait 5m",
        "accept w1 a1",
        "finish a1 maybe",
        "lane main order=random",
        "storage full",
    ] {
        let context = Context { now: START, settings: &settings };
        errors.push_str(&format!("{}\n", parse::step(command, context).err().expect(command)));
    }
    expect![[r#"
        "enqueue" is not a verb
        submit: the name is missing
        submit: "a2" is one word too many
        submit: there is no option "colour"
        submit: priority: "high" is not a priority
        wait: "5m" is not a time such as 500ms or 30s
        accept: "w1" is not a connection
        finish: "maybe" is not an outcome
        lane: order: "random" is not a value
        storage: the storage is low or fine, not "full"
    "#]]
    .assert_eq(&errors);
}

#[test]
#[should_panic(expected = "line 3, `finish a1`: finish: the outcome is missing")]
fn an_error_names_the_line_of_the_transcript() {
    check(expect![[r#"
        submit a1
            a1 started #1
        finish a1
    "#]]);
}

#[test]
#[should_panic(expected = "line 2, `given submit a1`: \"given\" is not a verb")]
fn set_up_comes_before_the_first_command() {
    check(expect![[r#"
        submit a0
        given submit a1
    "#]]);
}

#[test]
#[should_panic(expected = "line 1: set-up `finish a1! ok` was not carried out: Stale")]
fn a_set_up_that_is_not_carried_out_fails_the_scenario() {
    check(expect![[r#"
        given submit a1 | finish a1! ok
    "#]]);
}
