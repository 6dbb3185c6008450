//! Configurations as users write them: files, environment, flags; the result, and the problems.

mod given;

use std::path::PathBuf;
use std::sync::Arc;

use expect_test::expect;
use laneway_core::{Backoff, Jitter, LaneOrder, LaneSettings, Name, Settings, ShutdownPolicy, Span};
use laneway_runtime::config::{
    Config, ConfigErrorKind, Layers, LogFormat, Overrides, Schema, Secret, changed_keys, format_size,
    format_span, parse_size, parse_span, preview,
};
use serde_json::json;

use self::given::{Given, check_comments, reference_with_examples};

fn schema() -> Arc<Schema> {
    Schema::native()
}

fn main_lane(config: &Config) -> &LaneSettings {
    &config.settings().lanes[&Name::fixed("main")]
}

/// What the engine defaults to, with the lanes of a gateway.
fn builtin_settings() -> Settings {
    let lanes = [("main", 30), ("subagent", 50), ("team", 100), ("cron", 30)].map(|(name, running_max)| {
        (Name::fixed(name), LaneSettings { running_max, ..LaneSettings::default() })
    });
    Settings { lanes: lanes.into(), ..Settings::default() }
}

#[test]
fn the_reference_says_what_the_engine_defaults_to() {
    let config = Config::builtin(&schema());
    assert_eq!(config.settings(), &builtin_settings());
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7717");
    assert_eq!(config.server.body_max, 1 << 20);
    assert_eq!(config.storage.low, 512 << 20);
    assert_eq!(config.log.format, LogFormat::Text);
    assert!(config.server.tls.is_none() && config.targets.is_empty());
}

#[test]
fn every_example_of_the_reference_is_valid() {
    let given = Given::file(&reference_with_examples());
    let config = given.config();
    let tls = config.server.tls.as_ref().unwrap();
    assert_eq!(tls.client_ca, Some(PathBuf::from("clients.pem")));
    let render = &config.settings().kinds[&Name::fixed("render")];
    assert_eq!(render.running_max, Some(4));
    assert_eq!(render.retry.as_ref().unwrap().backoff, Backoff::CRON);
    assert_eq!(render.retry.as_ref().unwrap().losses_max, 3);
    assert_eq!(config.targets[&Name::fixed("render")].url.as_str(), "http://127.0.0.1:9000/render");
    assert_eq!(config.settings().tenants[&Name::fixed("acme")].running_max, 100);
    assert_eq!(config.settings().agents[&Name::fixed("planner")].weight, 3);
    assert_eq!(config.settings().keys[&Name::fixed("profile")], 1);
}

#[test]
fn every_key_of_the_reference_has_its_sentence() {
    check_comments();
}

#[test]
fn flags_go_before_environment_before_file_before_defaults() {
    let file = "[lanes.main]\nrunning_max = 10\nqueued_max = 11\npaused = true\n";
    let given = Given::file(file)
        .variable("LANEWAY_LANES__MAIN__RUNNING_MAX", "20")
        .variable("LANEWAY_LANES__MAIN__QUEUED_MAX", "21")
        .flags("[lanes.main]\nrunning_max = 30\n");
    let config = given.config();
    let lane = main_lane(&config);
    assert_eq!((lane.running_max, lane.queued_max, lane.paused), (30, 21, true));
    assert_eq!(lane.queued_per_agent_max, 1_000_000);
}

#[test]
fn variables_are_toml_where_they_can_be_and_text_else() {
    let given = Given::file("[kinds.render]\ntarget = \"http://localhost:1/\"\n")
        .variable("LANEWAY_LIMITS__STRICT_KINDS", "true")
        .variable("LANEWAY_LIMITS__LEASE", "45s")
        .variable("LANEWAY_LIMITS__TIMEOUT", "\"1h\"")
        .variable("LANEWAY_SERVER__ALLOWED_HOSTS", "[\"a.example\", \"b.example\"]")
        .variable("LANEWAY_SERVER__LISTEN", "[::1]:80")
        .variable("LANEWAY_RETRY__BACKOFF__MAX", "5m")
        .variable("LANEWAY_KINDS__RENDER__TARGET_TOKEN", "12345")
        .variable("LANEWAY_TOKEN", "not a key: no double underscore")
        .variable("OTHER__THING", "not ours");
    let config = given.config();
    assert!(config.settings().strict_kinds);
    assert_eq!(config.settings().lease, Span::secs(45));
    assert_eq!(config.settings().timeout, Span::hours(1));
    assert_eq!(config.settings().retry.backoff, Backoff { max: Span::mins(5), ..Backoff::STANDARD });
    assert_eq!(config.server.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(config.server.listen.to_string(), "[::1]:80");
    assert_eq!(config.targets[&Name::fixed("render")].token, Some(Secret::new("12345")));
}

#[test]
fn a_new_lane_starts_from_the_reference_not_from_main() {
    let config = Given::file("[lanes.main]\nrunning_max = 3\n[lanes.bulk]\norder = \"priority\"\n").config();
    let bulk = &config.settings().lanes[&Name::fixed("bulk")];
    assert_eq!(bulk, &LaneSettings { order: LaneOrder::Priority, ..LaneSettings::default() });
}

#[test]
fn schedules_can_have_no_retries() {
    let config =
        Given::file("[schedules]\nzone = \"America/Toronto\"\n[schedules.retry]\nretries_max = 0\n").config();
    let schedules = &config.settings().schedules;
    assert_eq!((schedules.retry.retries_max, schedules.zone.as_str()), (0, "America/Toronto"));
    assert_eq!(schedules.retry.backoff, Backoff::CRON);
}

#[test]
fn names_and_units_are_parsed() {
    let config = Given::file(
        "[limits]\nqueue_timeout = \"1h30m\"\nstorage_low = \"2GiB\"\n[log]\nformat = \"json\"\n\
         [retry]\nretries_max = 0\nbackoff = { base = \"200ms\", factor = 1, max = \"5s\", jitter = \"10%\" }\n\
         [lanes.main]\naging_step = \"none\"\non_shutdown = \"cancel\"\n\
         [kinds.x.retry]\nbackoff = { jitter = \"none\" }\n[tenants.acme]\nrunning_max = 5\n\
         [tenants_default]\nqueued_max = 7\n",
    )
    .config();
    let settings = config.settings();
    assert_eq!(settings.queue_timeout, Some(Span::mins(90)));
    assert_eq!(config.storage.low, 2 << 30);
    assert_eq!(config.log.format, LogFormat::Json);
    let backoff = Backoff { base: Span(200), factor: 1, max: Span::secs(5), jitter: Jitter::Percent(10) };
    assert_eq!((settings.retry.retries_max, settings.retry.backoff), (0, backoff));
    assert_eq!(
        (main_lane(&config).aging_step, main_lane(&config).on_shutdown),
        (None, ShutdownPolicy::Cancel)
    );
    let kind = settings.kinds[&Name::fixed("x")].retry.as_ref().unwrap();
    assert_eq!((kind.retries_max, kind.backoff.jitter), (0, Jitter::None));
    let tenant = settings.tenants[&Name::fixed("acme")];
    assert_eq!((tenant.running_max, tenant.queued_max), (5, 7));
}

#[test]
fn all_mistakes_are_reported_at_once_with_place_and_remedy() {
    Given::file(
        "[server]\nlisten = \"localhost\"\nbody_max = 1000\n\n[limts]\nlease = \"30s\"\n\n\
         [lanes.main]\nruning_max = 3\nrunning_max = 0\norder = \"random\"\naging_step = 60\n\n\
         [lanes.\"two parts\"]\n\n[retry]\nbackoff = \"fast\"\n\n[kinds.a]\ntarget = \"ftp://x/\"\ntimeout = \"soon\"\n",
    )
    .variable("LANEWAY_LIMITS__QUEUED_MAX", "-1")
    .variable("LANEWAY_LOG__FORMATT", "json")
    .problems(expect![[r#"
        laneway.toml:2: server.listen: is "localhost"; write an IP address and a port, such as "127.0.0.1:7717"
        laneway.toml:3: server.body_max: is 1000; write a size from "1KiB" to "1GiB", such as "1MiB"
        environment LANEWAY_LOG__FORMATT: log.formatt: unknown key; did you mean `format`?
        environment LANEWAY_LIMITS__QUEUED_MAX: limits.queued_max: is -1; write a whole number from 0 to 10000000
        laneway.toml:17: retry.backoff: is "fast"; write "standard" or "cron"
        laneway.toml:14: lanes."two parts": is no name here; use letters, digits and . _ : - only
        laneway.toml:10: lanes.main.running_max: is 0; write a whole number from 1 to 1000000
        laneway.toml:11: lanes.main.order: is "random"; write "fair" or "priority"
        laneway.toml:12: lanes.main.aging_step: is 60; write a length of time from "1ms" to "3650d", such as "30s", "1h30m" or "500ms"
        laneway.toml:9: lanes.main.runing_max: unknown key; did you mean `running_max`?
        laneway.toml:21: kinds.a.timeout: is "soon"; write a length of time from "1ms" to "3650d", such as "30s", "1h30m" or "500ms"
        laneway.toml:20: kinds.a.target: must begin with http:// or https://
        laneway.toml:5: limts: unknown key; did you mean `limits`?
    "#]]);
}

#[test]
fn allowed_hosts_and_origins_are_hosts_and_origins() {
    Given::file(
        "[server]\nallowed_hosts = [\"ops.example\", \"Ops.Example:8080\", \"[::1]\", \"10.0.0.1\", \"http://x\", \"a/b\", \"\"]\n\
         allowed_origins = [\"https://ops.example\", \"http://localhost:3000\", \"https://ops.example/\", \"ops.example\", \"null\", \"*\"]\n",
    )
    .problems(expect![[r#"
        laneway.toml:2: server.allowed_hosts: holds "http://x"; write entries such as "ops.example"
        laneway.toml:2: server.allowed_hosts: holds "a/b"; write entries such as "ops.example"
        laneway.toml:2: server.allowed_hosts: holds ""; write entries such as "ops.example"
        laneway.toml:3: server.allowed_origins: holds "https://ops.example/"; write entries such as "https://ops.example"
        laneway.toml:3: server.allowed_origins: holds "ops.example"; write entries such as "https://ops.example"
        laneway.toml:3: server.allowed_origins: holds "null"; write entries such as "https://ops.example"
        laneway.toml:3: server.allowed_origins: holds "*"; write entries such as "https://ops.example"
    "#]]);
}

#[test]
fn tls_needs_both_halves() {
    Given::file("[server.tls]\ncert = \"a.pem\"\n").problems(expect![[r#"
        laneway.toml:2: server.tls.cert: needs `key` beside it
    "#]]);
    Given::file("[server.tls]\nclient_ca = \"a.pem\"\n").problems(expect![[r#"
        laneway.toml:2: server.tls.client_ca: needs `cert` and `key` beside it
    "#]]);
}

#[test]
fn files_that_are_not_toml_are_reported_by_line() {
    Given::file("[server]\nlisten = \n\n[log\nformat = \"json\"\n").problems(expect![[r#"
        laneway.toml:4: not TOML: unclosed table, expected `]`
        laneway.toml:2: not TOML: string values must be quoted, expected literal string
    "#]]);
    let given = Given::file("");
    std::fs::write(given.path(), b"[log]\n# \xff\n").unwrap();
    given.problems(expect![[r#"
        laneway.toml: not UTF-8 after byte 8
    "#]]);
    std::fs::remove_file(given.path()).unwrap();
    given.problems(expect![[r#"
        laneway.toml: cannot be read: No such file or directory (os error 2)
    "#]]);
}

#[test]
fn values_in_the_place_of_sections_are_mistakes() {
    Given::file("limits = 3\nlanes = \"main\"\n[kinds]\nx = 1\n")
        .variable("LANEWAY_RETRY__LOSSES_MAX", "1")
        .variable("LANEWAY_RETRY__LOSSES_MAX__X", "1")
        .problems(expect![[r#"
            environment LANEWAY_RETRY__LOSSES_MAX__X: retry.losses_max.x: another variable gives a value to a part of this key; remove one of them
        "#]]);
    Given::file("limits = 3\nlanes = \"main\"\nretry = []\n[kinds]\nx = 1\n").problems(expect![[r#"
        laneway.toml:1: limits: is no section; write [limits]
        laneway.toml:3: retry: is no section; write [retry]
        laneway.toml:2: lanes: is no section; write [lanes]
        laneway.toml:5: kinds.x: is no section; write [kinds.x]
    "#]]);
}

#[test]
fn targets_are_checked_and_their_secrets_never_shown() {
    let given = Given::file(
        "[kinds.a]\ntarget = \"http://user:hunter2@x/\"\n[kinds.b]\ntarget_token = \"hunter2\"\n\
         [kinds.c]\ntarget = \"http://x/\"\ntarget_token = \"hunter2\\n\"\n\
         target_headers = { Host = \"hunter2\", \"a b\" = \"hunter2\", ok = \"hunter2\\r\\n\", Laneway-Kind = \"x\", n = 5 }\n",
    );
    let errors = given.layers().unwrap().resolve(&Overrides::none()).unwrap_err();
    assert!(!errors.to_string().contains("hunter2"), "{errors}");
    given.problems(expect![[r#"
        laneway.toml:2: kinds.a.target: must not hold a user or password; use `target_token` or `target_headers`
        laneway.toml:4: kinds.b.target_token: needs `target` beside it
        laneway.toml:8: kinds.c.target_headers.n: is no text; write it in quotes
        laneway.toml:8: kinds.c.target_headers: Host is set by Laneway itself; remove it
        laneway.toml:8: kinds.c.target_headers: Laneway-Kind is set by Laneway itself; remove it
        laneway.toml:8: kinds.c.target_headers: "a b" is no name of a header
        laneway.toml:8: kinds.c.target_headers: the value of ok holds a control character
        laneway.toml:7: kinds.c.target_token: cannot be sent in a header: it is empty or holds a control character
    "#]]);
}

#[test]
fn webhooks_are_checked_and_their_secrets_never_shown() {
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    Given::file(
        "[webhooks]\nsecret = \"hunter2\"\nretries = [\"5s\", \"soon\", \"0s\"]\nallow_hosts = [\"http://x/\", \"*\"]\n\
         in_flight_max = 0\n[tenants.acme]\nwebhook_secret_previous = \"whsec_hunter2\"\n",
    )
    .problems(expect![[r#"
        laneway.toml:7: tenants.acme.webhook_secret_previous: is no secret; write "whsec_" and 24 to 64 bytes in base64
        laneway.toml:3: webhooks.retries: holds "soon"; write waits from "1s" to "7d"
        laneway.toml:3: webhooks.retries: holds "0s"; write waits from "1s" to "7d"
        laneway.toml:5: webhooks.in_flight_max: is 0; write a whole number from 1 to 256
        laneway.toml:4: webhooks.allow_hosts: holds "http://x/"; write entries such as "127.0.0.1:9000" or "*.corp.example"
        laneway.toml:4: webhooks.allow_hosts: holds "*"; write entries such as "127.0.0.1:9000" or "*.corp.example"
        laneway.toml:2: webhooks.secret: is no secret; write "whsec_" and 24 to 64 bytes in base64
    "#]]);
    let given = Given::file(&format!(
        "[webhooks]\nretries = [\"1m\"]\nallow_hosts = [\"Hooks.Internal:81\"]\nsecret = \"{SECRET}\"\n\
         [tenants.acme]\nwebhook_secret = \"{SECRET}\"\nwebhook_secret_previous = \"{SECRET}\"\n"
    ));
    let config = given.config();
    assert_eq!(config.settings().webhooks.retries, [Span::mins(1)]);
    assert_eq!(config.webhooks.allow_hosts, ["hooks.internal:81"]);
    assert_eq!(config.webhooks.secrets_of(&Name::fixed("acme")).iter().count(), 2);
    assert_eq!(config.webhooks.secrets_of(&Name::fixed("other")).iter().count(), 1);
    for text in [config.dump(), format!("{config:?}"), config.to_json().to_string()] {
        assert!(!text.contains("MfKQ"), "{text}");
    }
    assert!(config.dump().contains("webhook_secret_previous = \"***\""), "{}", config.dump());
}

#[test]
fn a_dump_is_readable_again_and_means_the_same() {
    let given = Given::file(
        "[server]\nlisten = \"0.0.0.0:80\"\nallowed_hosts = [\"a\"]\n[server.tls]\ncert = \"c\"\nkey = \"k\"\n\
         [lanes.\"a.b\"]\nrunning_max = 7\n[kinds.named]\n[kinds.r]\nretry = { backoff = \"cron\" }\n\
         [agents.a]\nweight = 4\n[keys.k]\nlimit = 2\n[tenants.t]\nrunning_max = 9\n",
    );
    let config = given.config();
    let again = Given::file(&config.dump()).config();
    assert_eq!(config.settings(), again.settings());
    assert_eq!(config.server, again.server);
    assert_eq!(changed_keys(&config, &again), []);
}

#[test]
fn a_dump_says_where_values_come_from_and_hides_secrets() {
    let given = Given::file(
        "[kinds.r]\ntarget = \"http://127.0.0.1:9/\"\ntarget_headers = { X-Key = \"hunter2\" }\n",
    )
    .variable("LANEWAY_KINDS__R__TARGET_TOKEN", "hunter2")
    .flags("[server]\nlisten = \"127.0.0.1:1\"\n");
    let layers = given.layers().unwrap();
    let overrides =
        Overrides::none().patched(&schema(), &json!({"lanes": {"main": {"paused": true}}})).unwrap();
    let config = layers.resolve(&overrides).unwrap();
    let dump = config.dump().replace(&given.path().display().to_string(), "laneway.toml");
    for (what, text) in
        [("dump", dump.clone()), ("debug", format!("{config:?}")), ("json", config.to_json().to_string())]
    {
        // The text of a variable is kept for those who ask for text; it must not be shown either.
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
    for line in [
        "listen = \"127.0.0.1:1\" # from flags",
        "target = \"http://127.0.0.1:9/\" # from laneway.toml:2",
        "target_token = \"***\" # from environment LANEWAY_KINDS__R__TARGET_TOKEN",
        "x-key = \"***\"",
        "paused = true # from an API call",
        "running_max = 30",
    ] {
        assert!(dump.lines().any(|found| found == line), "{line}\n{dump}");
    }
}

#[test]
fn the_json_tree_has_the_shape_of_the_file() {
    let json = Config::builtin(&schema()).to_json();
    assert_eq!(json["lanes"]["main"]["running_max"], 30);
    assert_eq!(json["retry"]["backoff"]["jitter"], "1s");
    assert_eq!(json["server"]["listen"], "127.0.0.1:7717");
}

#[test]
fn stored_changes_lie_on_top_and_null_undoes_them() {
    let layers = Given::file("[lanes.main]\nrunning_max = 10\n")
        .flags("[lanes.main]\nrunning_max = 20\n")
        .layers()
        .unwrap();
    let stored = Overrides::none()
        .patched(&schema(), &json!({"lanes": {"main": {"running_max": 30, "paused": true}}}))
        .unwrap();
    let read_back = Overrides::from_stored(&stored.to_stored()).unwrap();
    assert_eq!(read_back, stored);
    let config = layers.resolve(&read_back).unwrap();
    assert_eq!((main_lane(&config).running_max, main_lane(&config).paused), (30, true));
    let config = preview(&layers, &read_back, &json!({"lanes": {"main": {"running_max": null}}})).unwrap();
    assert_eq!((main_lane(&config).running_max, main_lane(&config).paused), (20, true));
    let config = preview(&layers, &read_back, &json!({"lanes": null})).unwrap();
    assert_eq!((main_lane(&config).running_max, main_lane(&config).paused), (20, false));
}

#[test]
fn an_empty_lane_in_a_change_is_a_lane() {
    let config =
        preview(&Layers::builtin(&schema()), &Overrides::none(), &json!({"lanes": {"bulk": {}}})).unwrap();
    assert_eq!(config.settings().lanes[&Name::fixed("bulk")], LaneSettings::default());
}

#[test]
fn calls_cannot_change_everything() {
    for (patch, kind, expected) in [
        (
            json!({"server": {"listen": "0.0.0.0:1"}}),
            ConfigErrorKind::NotChangeable,
            "server: cannot be changed by a call",
        ),
        (json!({"log": null}), ConfigErrorKind::NotChangeable, "log: cannot be changed by a call"),
        (json!({"limts": {}}), ConfigErrorKind::UnknownKey, "limts: unknown key; did you mean `limits`?"),
        (
            json!({"kinds": {"a": {"target": "http://evil/"}}}),
            ConfigErrorKind::NotChangeable,
            "kinds.a.target: cannot be changed by a call",
        ),
        (
            json!({"webhooks": {"allow_hosts": ["10.0.0.1"]}}),
            ConfigErrorKind::NotChangeable,
            "webhooks.allow_hosts: cannot be changed by a call",
        ),
        (
            json!({"tenants": {"acme": {"webhook_secret": "x"}}}),
            ConfigErrorKind::NotChangeable,
            "tenants.acme.webhook_secret: cannot be changed by a call",
        ),
        (
            json!({"lanes": {"main": {"runing_max": 1}}}),
            ConfigErrorKind::UnknownKey,
            "did you mean `running_max`?",
        ),
        (
            json!({"lanes": {"main": {"running_max": "many"}}}),
            ConfigErrorKind::Invalid,
            "lanes.main.running_max: is \"many\"",
        ),
        (
            json!({"lanes": {"main": {"running_max": 1e300}}}),
            ConfigErrorKind::Invalid,
            "lanes.main.running_max",
        ),
        (
            json!({"lanes": {"main": {"running_max": [null]}}}),
            ConfigErrorKind::Invalid,
            "lanes.main.running_max",
        ),
        (json!([1]), ConfigErrorKind::Invalid, "is a JSON object"),
    ] {
        let errors = preview(&Layers::builtin(&schema()), &Overrides::none(), &patch).unwrap_err();
        assert_eq!(errors.kind(), kind, "{errors}");
        assert!(errors.to_string().contains(expected), "{errors}");
    }
}

#[test]
fn a_start_leaves_out_stored_changes_that_fit_no_longer() {
    let layers = Layers::builtin(&schema());
    let stored = br#"{"lanes":{"main":{"running_max":5,"gone":1},"bulk":{"order":"chaos"}},"old":{"x":1}}"#
        .to_vec()
        .into();
    let (config, overrides, left_out) = layers.resolve_stored(Some(&stored)).unwrap();
    assert_eq!(main_lane(&config).running_max, 5);
    assert!(config.settings().lanes.contains_key(&Name::fixed("bulk")));
    let mut keys: Vec<&str> = left_out.iter().map(|error| error.key.as_str()).collect();
    keys.sort();
    assert_eq!(keys, ["lanes.bulk.order", "lanes.main.gone", "old"]);
    assert!(layers.resolve(&overrides).is_ok());

    let (config, overrides, left_out) = layers.resolve_stored(Some(&b"not json".to_vec().into())).unwrap();
    assert_eq!((config.settings(), overrides, left_out.len()), (&builtin_settings(), Overrides::none(), 1));

    // A mistake in the file is still a mistake.
    let given = Given::file("[limits]\nlease = 1\n");
    assert!(given.layers().unwrap().resolve_stored(Some(&stored)).is_err());
}

#[test]
fn differences_are_listed_key_by_key_without_secrets() {
    let with = |token: &str, max: u32| {
        Given::file(&format!(
            "[server]\nlisten = \"127.0.0.1:{max}\"\n[lanes.main]\nrunning_max = {max}\n\
             [kinds.r]\ntarget = \"http://x/\"\ntarget_token = \"{token}\"\n"
        ))
        .config()
    };
    let changes = changed_keys(&with("one", 1), &with("two", 2));
    let lines: Vec<String> =
        changes.iter().map(|change| format!("{change}; restart: {}\n", change.needs_restart)).collect();
    expect![[r#"
        kinds.r.target_token: "***" -> "***"; restart: false
        lanes.main.running_max: 1 -> 2; restart: false
        server.listen: "127.0.0.1:1" -> "127.0.0.1:2"; restart: true
    "#]]
    .assert_eq(&lines.concat());
}

#[test]
fn lengths_of_time_and_sizes() {
    for (text, expected) in [
        ("30s", Some(Span::secs(30))),
        ("1h30m", Some(Span::mins(90))),
        ("500ms", Some(Span(500))),
        ("7d", Some(Span::hours(168))),
        ("1d2h3m4s5ms", Some(Span(93_784_005))),
        ("0s", Some(Span(0))),
        ("", None),
        ("30", None),
        ("s", None),
        ("30 s", None),
        ("-1s", None),
        ("1.5s", None),
        ("1m1h", None),
        ("1s1s", None),
        ("1w", None),
        ("99999999999999999999s", None),
        ("18446744073709551615d", None),
    ] {
        assert_eq!(parse_span(text), expected, "{text}");
        if let Some(span) = expected {
            assert_eq!(parse_span(&format_span(span)), Some(span), "{text}");
        }
    }
    for (text, expected) in [
        ("1MiB", Some(1 << 20)),
        ("64KiB", Some(64 << 10)),
        ("1 GiB", Some(1 << 30)),
        ("10B", Some(10)),
        ("5MB", Some(5_000_000)),
        ("0B", Some(0)),
        ("1024", None),
        ("MiB", None),
        ("1mib", None),
        ("99999999999GiB", None),
    ] {
        assert_eq!(parse_size(text), expected, "{text}");
        if let Some(size) = expected {
            assert_eq!(parse_size(&format_size(size)), Some(size), "{text}");
        }
    }
    assert_eq!((format_span(Span(5_400_000)), format_size(1 << 20)), ("1h30m".to_owned(), "1MiB".to_owned()));
}

#[test]
fn defect_17_what_a_chat_asks_of_its_session_is_a_setting() {
    let chat = Config::builtin(&schema()).settings().chat;
    assert_eq!(chat, laneway_core::job::session::ChatSettings::default(), "as the library has it");
    let given = Given::file("[chat]\nmode = \"interrupt\"\ncap = 0\ndrop = \"new\"\ndebounce = \"0s\"\n");
    let chat = given.config().settings().chat;
    assert_eq!((chat.mode.as_str(), chat.cap, chat.drop.as_str()), ("interrupt", 0, "new"));
    assert_eq!(chat.session(Name::fixed("s")).debounce, None);
    let patch = json!({"chat": {"cap": 3}});
    let changed = preview(&given.layers().unwrap(), &Overrides::none(), &patch).unwrap();
    assert_eq!(changed.settings().chat.cap, 3, "calls change it while the server runs");
    let wrong = Given::file("[chat]\nmode = \"shout\"\n").layers().unwrap().resolve(&Overrides::none());
    assert!(wrong.unwrap_err().to_string().contains("chat.mode"));
}
