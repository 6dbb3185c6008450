//! The view as text: what is drawn, and what keys do.

use expect_test::{Expect, expect};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::data::{Detail, Snapshot};
use super::state::{Action, Mode, State, Tab};
use super::{draw, text_of};

const NOW: &str = "2030-01-01T12:00:00Z";

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn counts(ended: u64, failed: u64) -> Value {
    json!({"submitted": ended, "rejected": 0, "succeeded": ended - failed, "failed": failed, "canceled": 0, "expired": 0,
        "dispatched": ended, "queue_wait_ms": ended * 20, "runs": ended, "run_time_ms": ended * 300})
}

fn lane(name: &str, running: u64, waiting: u64, paused: bool) -> Value {
    json!({"name": name, "paused": paused, "queued_max": 1000, "queued_per_agent_max": 100, "running_max": 8,
        "running_per_agent_max": 4, "order": "fair", "retention": "7d", "on_shutdown": "keep", "dispatch": "push",
        "waiting": waiting, "running": running, "counts": counts(120, 2),
        "oldest": {"id": "01a1e107-0745-7000-8d3c-4aea73d31572", "created_at": "2030-01-01T11:59:20Z"}})
}

fn job(n: u32, kind: &str, state: &str) -> Value {
    json!({"id": format!("01a1e107-0745-7000-8d3c-4aea73d3{n:04}"), "state": state, "kind": kind, "agent": "ann",
        "lane": "main", "tenant": "default", "priority": 0, "attempt": 1, "failures": 0, "losses": 0,
        "created_at": "2030-01-01T11:59:00Z", "started_at": "2030-01-01T11:59:58Z", "finished_at": "2030-01-01T11:59:59Z"})
}

fn with(mut value: Value, field: &str, content: Value) -> Value {
    value[field] = content;
    value
}

fn times(p95: u64) -> Value {
    json!({"count": 10, "p50_ms": p95 / 2, "p95_ms": p95, "p99_ms": p95 * 2})
}

fn history() -> Value {
    let activity = json!({"submitted": 120, "succeeded": 118, "failed": 2, "canceled": 0, "wait": times(40), "run": times(900)});
    let values: Vec<u64> = (0..60).map(|minute| minute % 7).collect();
    let point = |waiting: u64| {
        let mut point = activity.clone();
        point["at"] = NOW.into();
        (point["waiting"], point["running"], point["succeeded"]) =
            (waiting.into(), 2.into(), (waiting * 3).into());
        point
    };
    let mut group = activity.clone();
    (group["lane"], group["kind"]) = ("main".into(), "render".into());
    json!({"range": "1h", "interval_s": 60, "points": (0..60).map(point).collect::<Vec<_>>(), "total": activity,
        "groups": [group],
        "lanes": [{"lane": "main", "submitted": values, "ended": values, "failed": vec![0; 60], "waiting": values,
            "running": values}]})
}

fn snapshot() -> Snapshot {
    let agent = |agent: &str, running: u64| json!({"tenant": "default", "agent": agent, "lane": "main", "waiting": 7, "running": running, "counts": counts(50, 1)});
    let hostile = "rm\u{1b}[2J\u{202e}fdp\nnext 日本語";
    let failed = with(
        job(3, "render", "failed"),
        "error",
        json!({"code": "boom", "message": hostile, "retryable": false}),
    );
    let failed = with(failed, "agent", json!("\u{202e}nna"));
    Snapshot {
        now: NOW.parse::<Timestamp>().unwrap(),
        stats: Some(of(json!({"scheduled": 1, "queued": 7, "assigned": 0, "running": 3, "still_running": 0,
            "running_max": 64, "draining": false, "storage_low": false,
            "lanes": [lane("bulk", 0, 4, true), lane("main", 3, 3, false)],
            "agents": [agent("ann", 1), agent("bob", 2)]}))),
        history: Some(of(history())),
        running: vec![of(job(1, "render", "running")), of(job(4, "scan", "assigned"))],
        waiting: vec![of(with(job(2, "render", "queued"), "waiting_for", json!("Lane bulk is paused.")))],
        failed: vec![of(failed)],
        workers: vec![of(
            json!({"id": "w1", "tenant": "default", "state": "ready", "version": "1.2", "hostname": "h",
            "max_parallel": 4, "running": 1, "kinds": ["render", "scan"], "kind_limits": {}, "packages": [], "features": [],
            "runtimes": [], "labels": {}, "connected_at": NOW, "silent_ms": 10, "heartbeat_ms": 5000, "drained": false,
            "too_full": false, "cpu_pct": 12.4}),
        )],
    }
}

fn state() -> State {
    let mut state = State::new("laneway top", "http://127.0.0.1:7717");
    state.loaded(Tab::Lanes, Ok(snapshot()));
    // All lists, as if every tab had been read.
    (state.snapshot, state.has_read) = (snapshot(), [true; 6]);
    state
}

fn picture(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let drawn = terminal.draw(|frame| draw::draw(state, true, frame)).unwrap();
    let last = (0..width).map(|x| drawn.buffer[(x, height - 1)].symbol()).collect::<String>();
    let mut lines = text_of(drawn.buffer);
    lines.push(last.trim_end().to_owned());
    lines
}

fn check(state: &State, expected: &Expect) {
    expected.assert_eq(&format!("\n{}\n", picture(state, 80, 24).join("\n")));
}

fn press(state: &mut State, keys: &str) -> Option<Action> {
    let mut action = None;
    for key in keys.chars() {
        let code = match key {
            '⏎' => KeyCode::Enter,
            '⎋' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '→' => KeyCode::Right,
            '⌫' => KeyCode::Backspace,
            letter => KeyCode::Char(letter),
        };
        action = state.on_key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    action
}

#[test]
fn lanes() {
    check(
        &state(),
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            LANE   STATE   RUNNING        WAITING   ENDED 1H   FAILED  ENDED, 20 MIN
            bulk   paused  ········ 0/8         4          0        0
            main   open    ▇▇▇····· 3/8         3        174        0  ▇█ ▂▃▄▆▇█ ▂▃▄▆▇█ ▂▃▄
            Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
        "#]],
    );
}

#[test]
fn lanes_on_a_large_terminal_have_a_chart() {
    let lines = picture(&state(), 120, 40);
    expect![[r#"

        laneway top  http://127.0.0.1:7717                                                                          12:00:00 UTC
        3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40ms
         1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
        LANE   STATE   RUNNING        WAITING   OLDEST   ENDED 1H   FAILED   WAIT P95   RUN P95  ENDED, 20 MIN
        bulk   paused  ········ 0/8         4      40s          0        0          –         –
        main   open    ▇▇▇····· 3/8         3      40s        174        0       40ms     900ms  ▇█ ▂▃▄▆▇█ ▂▃▄▆▇█ ▂▃▄

        AGENT   LANE   TENANT    RUNNING   WAITING   ENDED   FAILED   REJECTED   AVG WAIT   AVG RUN
        bob     main   default         2         7      50        1          0       20ms     300ms
        ann     main   default         1         7      50        1          0       20ms     300ms






















        ended per minute: now 179, most in the last hour 179         waiting: now 59, most in the last hour 59
                                                          ▁▂▃▃▄▅▆▇█                                                    ▁▂▃▃▄▅▆▇█
                                                ▁▂▃▃▄▅▆▇▇██████████                                          ▁▂▂▃▄▅▆▇▇██████████
                                      ▁▂▃▃▄▅▆▇▇████████████████████                                ▁▂▂▃▄▅▆▆▇████████████████████
                            ▁▂▃▃▄▅▆▇▇██████████████████████████████                      ▁▁▂▃▄▅▅▆▇██████████████████████████████
                  ▁▂▂▃▄▅▆▇▇████████████████████████████████████████             ▁▂▃▄▅▅▆▇████████████████████████████████████████
        ▁▂▂▃▄▅▆▆▇██████████████████████████████████████████████████   ▁▂▃▄▄▅▆▇██████████████████████████████████████████████████
        Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
    "#]].assert_eq(&format!("\n{}\n", lines.join("\n")));
}

#[test]
fn agents() {
    let mut state = state();
    assert_eq!(press(&mut state, "2"), Some(Action::Reload));
    check(
        &state,
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            AGENT   LANE    RUNNING   WAITING   ENDED   FAILED   REJECTED   AVG RUN
            bob     main          2         7      50        1          0     300ms
            ann     main          1         7      50        1          0     300ms
            Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
        "#]],
    );
}

#[test]
fn waiting_jobs_say_why() {
    let mut state = state();
    press(&mut state, "4");
    check(
        &state,
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            ID        KIND    LANE   AGENT   STATE     FOR   PRIO  WAITS FOR
            73d30002  render  main   ann     queued  1m00s      0  Lane bulk is paused.
            Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
        "#]],
    );
}

#[test]
fn hostile_texts_are_shown_and_change_nothing() {
    let mut state = state();
    press(&mut state, "5");
    check(
        &state,
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            KIND    LANE   AGENT         TRY   AGO  CODE   ERROR
            render  main   \u{202e}nna     1  1.0s  boom   rm [2J\u{202e}fdp next 日本語
            Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
        "#]],
    );
    assert!(!picture(&state, 200, 24).join("\n").contains(['\u{1b}', '\u{202e}']));
}

#[test]
fn workers() {
    let mut state = state();
    press(&mut state, "6");
    check(
        &state,
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            WORKER   STATE    RUNNING   OF   CPU %   MEM %  VERSION   HOST   KINDS
            w1       ready          1    4      12       –  1.2       h      render scan
            Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
        "#]],
    );
}

#[test]
fn help() {
    let mut state = state();
    press(&mut state, "?");
    check(
        &state,
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            LANE   STATE   RUNNING        WAITING   ENDED 1H   FAILED  ENDED, 20 MIN
            b┌ help ──────────────────────────────────────────────────────────────────────┐
            m│1 … 6, Tab, ← →     choose a list                                           │
             │↑ ↓, k j            select a line                                           │
             │PgUp PgDn, Home End move further                                            │
             │Enter               open a job; show the jobs of a lane or an agent         │
             │/                   show only lines with a text; Esc shows all again        │
             │s                   sort by the next column                                 │
             │S                   reverse the order                                       │
             │p                   pause or resume the selected lane                       │
             │c                   cancel the selected job                                 │
             │r                   retry the selected job: it becomes a new job            │
             │Esc, q              in an open job: back to the list                        │
             │? h                 this help                                               │
             │q, Ctrl-C           quit                                                    │
             │                                                                            │
             │                    Lists have the newest 200 jobs. Every second they are re│
             └────────────────────────────────────────────────────────────────────────────┘
            Enter open  / filter  s sort  p pause  c cancel  r retry  ? help  q quit
        "#]],
    );
    press(&mut state, "q");
    assert_eq!(state.mode, Mode::List, "any key closes the help and does nothing else");
}

fn detail() -> Detail {
    let attempt = |n: u32, state: &str| json!({"attempt": n, "state": state, "started_at": "2030-01-01T11:59:58Z", "finished_at": "2030-01-01T11:59:59.5Z"});
    Detail {
        job: of(job(2, "render", "queued")),
        explanation: Some(of(json!({"id": "x", "state": "queued", "summary": "Lane bulk is paused.", "ahead": 0,
            "blocked_by": [{"code": "lane_paused", "message": "Lane bulk is paused."}]}))),
        attempts: vec![of(attempt(1, "failed")), of(attempt(2, "lost"))],
        logs: (1..=40)
            .map(|n| of(json!({"line": n, "attempt": 1, "at": NOW, "stream": "stdout", "text": format!("line {n}\u{1b}[2J")})))
            .collect(),
        more_logs: true,
    }
}

#[test]
fn a_job_is_opened_scrolled_and_closed() {
    let mut state = state();
    let open = press(&mut state, "4⏎");
    assert_eq!(open, Some(Action::Open("01a1e107-0745-7000-8d3c-4aea73d30002".to_owned())));
    state.opened(Ok(detail()));
    check(
        &state,
        &expect![[r#"

            laneway top  http://127.0.0.1:7717                                  12:00:00 UTC
            3 running of 64 · 7 queued · 1 scheduled · 1h: 120 ended, 2 failed · wait p95 40
             1 Lanes  2 Agents  3 Running  4 Waiting  5 Failures  6 Workers
            job 01a1e107-0745-7000-8d3c-4aea73d30002  queued
            kind render  lane main  agent ann  tenant default
            submitted 1m00s ago  priority 0  attempt 1  failures 0  losses 0

            explain
            Lane bulk is paused.
            - lane_paused: Lane bulk is paused.

            attempts
              1  failed          1.5s
              2  lost            1.5s

            log
            12:00:00.000 stdout line 1 [2J
            12:00:00.000 stdout line 2 [2J
            12:00:00.000 stdout line 3 [2J
            12:00:00.000 stdout line 4 [2J
            12:00:00.000 stdout line 5 [2J
            12:00:00.000 stdout line 6 [2J
            12:00:00.000 stdout line 7 [2J
            ↑↓ scroll  c cancel  r retry  Esc back  ? help
        "#]],
    );
    press(&mut state, "G");
    assert!(picture(&state, 80, 24).iter().any(|line| line.contains("laneway jobs logs")));
    press(&mut state, "⎋");
    assert!(state.detail.is_none() && state.mode == Mode::List);
    // The answer to a read of a job that was closed meanwhile opens nothing.
    state.opened(Ok(detail()));
    assert!(state.detail.is_none());
}

#[test]
fn changes_are_confirmed() {
    let mut state = state();
    assert_eq!(
        press(&mut state, "p"),
        Some(Action::Resume("bulk".to_owned())),
        "a resume needs no confirmation"
    );
    assert_eq!(press(&mut state, "↓p"), None);
    assert!(picture(&state, 80, 24).last().unwrap().starts_with("pause lane main? y"));
    assert_eq!(press(&mut state, "n"), None);
    assert_eq!(press(&mut state, "py"), Some(Action::Pause("main".to_owned())));
    let running = "01a1e107-0745-7000-8d3c-4aea73d30001".to_owned();
    assert_eq!(press(&mut state, "3cy"), Some(Action::Cancel(running)));
    let failed = "01a1e107-0745-7000-8d3c-4aea73d30003".to_owned();
    assert_eq!(press(&mut state, "5ry"), Some(Action::Retry(failed)));
    assert_eq!(press(&mut state, "1cy"), None, "a lane cannot be canceled");
    assert!(matches!(state.message, Some(Err(_))));
}

#[test]
fn a_filter_hides_lines_and_esc_shows_them_again() {
    let mut state = state();
    press(&mut state, "3/scan⏎");
    let ids =
        |state: &State| state.sheet().lines.iter().map(|line| line.cells[1].text.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&state), ["scan"]);
    assert!(picture(&state, 80, 24)[2].ends_with("/scan"));
    press(&mut state, "/zzz⏎");
    assert!(picture(&state, 80, 24)[4].contains("no line contains"));
    press(&mut state, "⎋");
    assert_eq!(ids(&state), ["render", "scan"]);
    assert_eq!(press(&mut state, "/q"), None, "a letter of the filter is no command");
    press(&mut state, "⌫⎋1⏎");
    assert_eq!(
        (state.tab, state.filter.as_str()),
        (Tab::Waiting, "bulk"),
        "Enter on a lane shows its waiting jobs"
    );
}

#[test]
fn lists_are_sorted_and_the_selection_follows_its_line() {
    let mut state = state();
    press(&mut state, "ss");
    assert_eq!(state.sort(), Some((1, false)));
    press(&mut state, "ss");
    assert_eq!(state.sort(), Some((3, true)), "numbers begin with the largest");
    assert_eq!(state.sheet().lines[0].id, "bulk");
    press(&mut state, "↓");
    press(&mut state, "S");
    let sheet = state.sheet();
    assert_eq!((sheet.lines[0].id.as_str(), state.selected_in(&sheet)), ("main", Some(0)));
    assert!(picture(&state, 80, 24)[3].contains("WAITING▲"));
}

#[test]
fn a_server_that_is_away_is_reported_and_the_last_numbers_stay() {
    let mut state = State::new("laneway top", "http://127.0.0.1:1");
    assert!(picture(&state, 80, 24).join("\n").contains("waiting for the server"));
    state.loaded(Tab::Lanes, Ok(snapshot()));
    state.loaded(Tab::Lanes, Err("no server answers at http://127.0.0.1:1 (away)\nstart one".to_owned()));
    let lines = picture(&state, 80, 24);
    assert!(lines[0].ends_with("away, trying again"), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("no server answers"));
    assert!(lines[5].starts_with("main"), "{lines:?}");
    state.loaded(Tab::Lanes, Ok(snapshot()));
    assert!(picture(&state, 80, 24)[0].ends_with("12:00:00 UTC"));
}

#[test]
fn every_size_of_a_terminal_can_be_drawn() {
    let mut state = state();
    for keys in ["1", "2", "3", "4", "5", "6", "?"] {
        press(&mut state, keys);
        for (width, height) in [(1, 1), (10, 3), (20, 5), (40, 10), (80, 24), (120, 40), (300, 100)] {
            picture(&state, width, height);
        }
    }
    press(&mut state, "⎋4⏎");
    state.opened(Ok(detail()));
    [(1, 1), (20, 5), (300, 100)]
        .into_iter()
        .for_each(|(width, height)| drop(picture(&state, width, height)));
}

#[test]
fn ctrl_c_quits_in_every_mode() {
    let mut state = state();
    for keys in ["", "/", "?", "⎋3c"] {
        press(&mut state, keys);
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.on_key(key), Some(Action::Quit), "{keys}");
    }
    assert_eq!(press(&mut self::state(), "q"), Some(Action::Quit));
}
