//! The configuration with the sections of every dialect: lanes, aliases, variables, mistakes.

#[path = "../../../laneway-runtime/tests/it/config/given.rs"]
mod given;

use expect_test::expect;
use laneway_browser::instances;
use laneway_core::{Dispatch, LaneOrder, LaneSettings, LostPolicy, Name, PullSettings, Settings, Span};
use laneway_runtime::config::{ChangedKey, Config, Layers, Overrides, preview};
use laneway_runtime::live_config::LiveConfig;
use serde_json::json;
use toml::Table;

use self::given::{Given, check_comments, reference_with_examples};
use crate::world::{World, schema};

fn lane_max(given: &Given, lane: &'static str) -> u32 {
    given.config().settings().lanes[&Name::fixed(lane)].running_max
}

/// The engine's defaults, with the lanes of a gateway and of the dialects.
fn builtin_settings() -> Settings {
    let lanes = [("main", 30), ("subagent", 50), ("team", 100), ("cron", 30)].map(|(name, running_max)| {
        (Name::fixed(name), LaneSettings { running_max, ..LaneSettings::default() })
    });
    let mut settings = Settings { lanes: lanes.into(), ..Settings::default() };
    let pinchtab = LaneSettings {
        queued_max: 1_000,
        queued_per_agent_max: 100,
        running_max: 20,
        running_per_agent_max: 10,
        aging_step: None,
        retention: Span::mins(5),
        ..LaneSettings::default()
    };
    let synthia = |aging_step, dispatch, on_lease_lost| LaneSettings {
        order: LaneOrder::Priority,
        aging_step,
        retention: Span::hours(30 * 24),
        pull: PullSettings {
            dispatch,
            lease: Some(Span::secs(60)),
            on_lease_lost,
            ..PullSettings::default()
        },
        ..LaneSettings::default()
    };
    let intents = synthia(Some(Span::secs(30)), Dispatch::Reserve, LostPolicy::Requeue);
    let astraflow =
        LaneSettings { running_max: 1_000, running_per_agent_max: 1_000, ..LaneSettings::default() };
    settings.lanes.insert(Name::fixed("synthia"), intents);
    settings.lanes.insert(Name::fixed("synthia_jobs"), synthia(None, Dispatch::Claim, LostPolicy::Fail));
    settings.lanes.insert(Name::fixed("astraflow"), astraflow);
    settings.lanes.insert(Name::fixed("pinchtab"), pinchtab);
    let browsers = LaneSettings {
        queued_max: 500,
        running_max: 20,
        retention: Span::hours(24),
        ..LaneSettings::default()
    };
    settings.lanes.insert(Name::fixed("browsers"), browsers);
    settings.keys =
        [("browser", 20), ("browser_profile", 3)].map(|(key, max)| (Name::fixed(key), max)).into();
    let lanes = ["astraflow", "browsers", "pinchtab", "synthia", "synthia_jobs"];
    settings.shown_once_used.extend(lanes.map(Name::fixed));
    settings
}

#[test]
fn the_reference_has_the_lanes_of_the_dialects() {
    let config = Config::builtin(&schema());
    let mut expected = builtin_settings();
    // The tests of the kinds check their settings.
    expected.kinds.clone_from(&config.settings().kinds);
    assert_eq!(config.settings(), &expected);
    let kinds: Vec<&str> = expected.kinds.keys().map(Name::as_str).collect();
    let mut browsers = laneway_browser::kinds::KINDS.to_vec();
    browsers.sort_unstable();
    assert_eq!(kinds, browsers);
}

#[test]
fn every_example_of_the_whole_reference_is_valid() {
    let config = Given::file(&reference_with_examples()).config();
    assert_eq!(instances::get(&config, &Name::fixed("desk")).unwrap().tabs, ["tab-1"]);
}

#[test]
fn every_key_of_the_whole_reference_has_its_comment() {
    check_comments();
}

#[test]
fn lanes_of_a_gateway_take_their_short_variables() {
    let given = Given::file("[lanes.main]\nrunning_max = 7\n")
        .variable("LANEWAY_LANE_MAIN", "31")
        .variable("GOCLAW_LANE_MAIN", "99")
        .variable("GOCLAW_LANE_SUBAGENT", " 51 ")
        .variable("GOCLAW_LANE_DELEGATE", "101")
        .variable("LANEWAY_LANE_CRON", "32")
        .variable("LANEWAY_LANES__CRON__RUNNING_MAX", "33");
    let limits = ["main", "subagent", "team", "cron"].map(|lane| lane_max(&given, lane));
    assert_eq!(
        limits,
        [31, 51, 101, 33],
        "ours before theirs, the key's own name before both, all before the file"
    );
    assert_eq!(given.layers().unwrap().warnings(), [""; 0]);
    let dump = given.config().dump();
    assert!(dump.contains("running_max = 101 # from environment GOCLAW_LANE_DELEGATE"), "{dump}");
    let team = given.variable("GOCLAW_LANE_TEAM", "102");
    assert_eq!(lane_max(&team, "team"), 102);
    assert_eq!(lane_max(&team.flags("[lanes.team]\nrunning_max = 9\n"), "team"), 9);
}

#[test]
fn lane_variables_that_cannot_be_are_ignored_with_a_warning() {
    let given = Given::file("")
        .variable("LANEWAY_LANE_MAIN", "many")
        .variable("GOCLAW_LANE_MAIN", "12")
        .variable("LANEWAY_LANE_SUBAGENT", "0")
        .variable("LANEWAY_LANE_TEAM", "-4")
        .variable("LANEWAY_LANE_CRON", "99999999999");
    let limits = ["main", "subagent", "team", "cron"].map(|lane| lane_max(&given, lane));
    assert_eq!(limits, [12, 50, 100, 30]);
    let warnings = given.layers().unwrap().warnings().join("\n");
    expect![[r#"
        environment LANEWAY_LANE_MAIN is "many" and is ignored; write a whole number from 1 to 1000000
        environment LANEWAY_LANE_SUBAGENT is "0" and is ignored; write a whole number from 1 to 1000000
        environment LANEWAY_LANE_TEAM is "-4" and is ignored; write a whole number from 1 to 1000000
        environment LANEWAY_LANE_CRON is "99999999999" and is ignored; write a whole number from 1 to 1000000"#]]
    .assert_eq(&warnings);
}

#[test]
fn a_dialects_own_names_are_keys_of_its_lane_in_every_layer() {
    let lane = |config: &Config| config.settings().lanes[&Name::fixed("pinchtab")].clone();
    let given = Given::file(
        "[dialects.pinchtab]\nmax_queue_size = 7\nmax_inflight = 3\nmax_per_agent = 0\nresult_ttl = \"2m\"\n",
    )
    .variable("LANEWAY_LANES__PINCHTAB__RUNNING_MAX", "4")
    .flags("[dialects.pinchtab]\nmax_per_agent_inflight = 2\n");
    let now = lane(&given.config());
    assert_eq!((now.queued_max, now.running_max, now.running_per_agent_max), (7, 4, 2));
    assert_eq!(
        (now.queued_per_agent_max, now.retention),
        (100, Span::mins(2)),
        "zero leaves a value as it is"
    );
    assert_eq!((now.order, now.aging_step), (LaneOrder::Fair, None));

    let layers = given.layers().unwrap();
    let patch = json!({"dialects": {"pinchtab": {"max_queue_size": 9, "max_inflight": 0}}});
    let changed = preview(&layers, &Overrides::none(), &patch).unwrap();
    assert_eq!((lane(&changed).queued_max, lane(&changed).running_max), (9, 4));
    let overrides = Overrides::none().patched(&schema(), &patch).unwrap();
    let again = preview(&layers, &overrides, &json!({"lanes": {"pinchtab": {"queued_max": 11}}})).unwrap();
    assert_eq!(lane(&again).queued_max, 11, "both names are one key");
}

#[test]
fn mistakes_in_dialects_and_instances_are_named() {
    Given::file(
        "[dialects.pinchtab]\nmax_queue_size = 5\nprefix = \"pt/\"\nlisten = \"here\"\nmax_inflght = 3\n\
         [dialects.elsewhere]\nenabled = true\n[lanes.pinchtab]\nqueued_max = 6\n",
    )
    .problems(expect![[r#"
        laneway.toml:2: dialects.pinchtab.max_queue_size: is the same as lanes.pinchtab.queued_max, which says 6; remove one of them
        laneway.toml:3: dialects.pinchtab.prefix: is "pt/"; write "" or a path such as "/pt" that begins with / and does not end with it
        laneway.toml:4: dialects.pinchtab.listen: is "here"; write an IP address and a port, such as "127.0.0.1:9867", or ""
        laneway.toml:5: dialects.pinchtab.max_inflght: unknown key; did you mean `max_inflight`?
        laneway.toml:6: dialects.elsewhere: unknown key; known here: pinchtab, goclaw, synthia, astraflow, browser_manager
    "#]]);
    Given::file(
        "[dialects.pinchtab]\nprefix = \"pt/\"\nlisten = \"here\"\nmax_inflght = 3\n[dialects.elsewhere]\nenabled = true\n\
         [instances.a]\n[instances.b]\nurl = \"http://x/\"\nport = 1\n[instances.c]\nurl = \"x\"\ntabs = [\"\"]\n",
    )
    .problems(expect![[r#"
        laneway.toml:2: dialects.pinchtab.prefix: is "pt/"; write "" or a path such as "/pt" that begins with / and does not end with it
        laneway.toml:3: dialects.pinchtab.listen: is "here"; write an IP address and a port, such as "127.0.0.1:9867", or ""
        laneway.toml:4: dialects.pinchtab.max_inflght: unknown key; did you mean `max_inflight`?
        laneway.toml:5: dialects.elsewhere: unknown key; known here: pinchtab, goclaw, synthia, astraflow, browser_manager
        laneway.toml:7: instances.a.url: is missing; write `url`, or `port` for an instance on this machine
        laneway.toml:10: instances.b.port: stands beside `url`; write one of them
        laneway.toml:13: instances.c.tabs: holds an id that is empty or longer than 256 bytes
        laneway.toml:12: instances.c.url: is no URL (relative URL without a base); write one such as "http://127.0.0.1:9000/path"
    "#]]);
}

#[test]
fn defect_18_zero_is_the_default_of_every_number_of_pinchtab() {
    let given = Given::file(
        "[dialects.pinchtab]\nmax_queue_size = 0\nmax_per_agent = 0\nmax_inflight = 0\nmax_per_agent_inflight = 0\n\
         result_ttl = \"0s\"\nworker_count = 0\nmax_batch_size = 0\n",
    )
    .variable("LANEWAY_DIALECTS__PINCHTAB__MAX_INFLIGHT", "0");
    let config = given.config();
    let lane = &config.settings().lanes[&Name::fixed("pinchtab")];
    assert_eq!((lane.queued_max, lane.queued_per_agent_max), (1_000, 100));
    assert_eq!((lane.running_max, lane.running_per_agent_max, lane.retention), (20, 10, Span::mins(5)));
    let pinchtab = &config.dialect("pinchtab");
    assert_eq!((pinchtab.count("worker_count"), pinchtab.count("max_batch_size")), (4, 50));
    let patch = json!({"dialects": {"pinchtab": {"result_ttl": "0s", "worker_count": 0}}});
    let changed = preview(&given.layers().unwrap(), &Overrides::none(), &patch).unwrap();
    assert_eq!(changed.settings().lanes[&Name::fixed("pinchtab")].retention, Span::mins(5));
}

#[tokio::test]
async fn a_reload_lists_numbers_that_need_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("laneway.toml");
    std::fs::write(&file, "").unwrap();
    let world = World::new("").await;
    let layers = Layers::read(&schema(), Some(&file), [], Table::new()).unwrap();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let live = LiveConfig::new(layers, Overrides::none(), config, world.scheduler.clone());
    std::fs::write(&file, "[dialects.goclaw]\nsockets_max = 7\nrequests_max = 8\n").unwrap();
    let done = live.reload().await.unwrap();
    let printed = |changes: &[ChangedKey]| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(printed(&done.changed), ["dialects.goclaw.requests_max: 3000 -> 8"]);
    assert_eq!(printed(&done.needs_restart), ["dialects.goclaw.sockets_max: 1000 -> 7"]);
    let goclaw = live.current().dialect("goclaw").clone();
    assert_eq!((goclaw.count("sockets_max"), goclaw.mount.requests_max), (1_000, 8));
}
