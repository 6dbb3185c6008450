//! Builds the typed configuration from the merged tree: every key, its type, its range, and rules between keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use laneway_core::capacity::{BUSY_MAX, Hours};
use laneway_core::settings::{
    AgentSettings, KindSettings, RunSettings, ScheduleSettings, TenantSettings, WebhookSettings,
};
use laneway_core::worker::WorkerSettings;
use laneway_core::{
    Backoff, CapacitySettings, Dispatch, Jitter, LaneOrder, LaneSettings, LostPolicy, Name, PullSettings,
    RetryPolicy, Settings, ShutdownPolicy, Span, Timing,
};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use toml::{Table, Value};

use super::error::ConfigErrors;
use super::layers::Places;
use super::path::KeyPath;
use super::schema::Schema;
use super::section::{NONE, Problems, Section};
use super::units::parse_span;
use super::workers::TenantPressure;
use super::{
    Config, LogConfig, LogFormat, Secret, SigningSecrets, StorageConfig, StreamsConfig, Target, chat,
    contributed, dialects, server, webhooks, workers,
};

/// Most waiting jobs that a limit may allow: ten times as many as the benchmarks use.
pub const QUEUED_MAX: u32 = 10_000_000;
/// Most running attempts that a limit may allow.
pub const RUNNING_MAX: u32 = 1_000_000;
/// Most nodes a cap may let a run have: a run is admitted and canceled in one commit.
const RUN_NODES_MAX: u32 = 10_000;
/// Most schedules a cap may let be: each stays in memory.
const SCHEDULES_MAX: u32 = 1_000_000;
/// Most lanes: the engine looks at all of them now and then.
const LANES_MAX: usize = 1_000;
/// Most entries of another section with names: each costs memory for as long as the server runs.
const NAMED_MAX: usize = 10_000;
/// Most streams of events: each costs a connection, a task and some buffers.
pub(super) const STREAMS_MAX: u32 = 100_000;
/// Longest length of time: ten years. Everything beyond is a slip of the pen.
pub const SPAN_MAX: Span = Span::hours(24 * 3_650);
/// Shortest lease and acknowledgement timeout: less than a round trip of a slow network only loses work.
const SECOND: Span = Span::secs(1);
const MILLISECOND: Span = Span(1);
pub(super) const MIB: u64 = 1 << 20;
pub(super) const TIB: u64 = 1 << 40;
/// Most headers of a target, and longest URL, in bytes.
const TARGET_HEADERS_MAX: usize = 32;
const TARGET_URL_MAX: usize = 2_048;
/// Headers that the forwarding itself sets, or that frame the request.
const TARGET_HEADERS_TAKEN: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
];

/// Reads the whole tree, or returns everything that is wrong with it.
pub(super) fn build(schema: &Arc<Schema>, tree: &Table, places: Places) -> Result<Config, ConfigErrors> {
    let problems = Problems::new(places);
    let root = Section::new(KeyPath::root(), tree, None, &problems);
    let server = server::read(fixed(&root, schema, "server"));
    let log = log(&root, schema);
    let (mut settings, local_slots, storage) = limits(&root, schema);
    settings.lanes = lanes(&root, schema);
    settings.shown_once_used = unchanged_contributed_lanes(&settings.lanes, schema);
    let (kinds, targets) = kinds(&root, schema);
    settings.kinds = kinds;
    let (tenants, tenant_secrets, tenant_pressures) = tenants(&root);
    settings.tenants = tenants;
    let (webhook_settings, webhooks) = webhooks::read(fixed(&root, schema, "webhooks"), tenant_secrets);
    settings.webhooks = webhook_settings;
    let (worker_settings, workers) = workers::read(fixed(&root, schema, "workers"));
    settings.workers = WorkerSettings {
        pressure_of: workers::pressures(tenant_pressures, worker_settings.pressure),
        ..worker_settings
    };
    let streams = streams(&root, schema);
    settings.agents = agents(&root);
    settings.keys = keys(&root);
    let dialects = dialects::read(&root, schema);
    let entries = contributed::entries(&root, schema);
    let sections = contributed::fixed_sections(&root, schema);
    root.finish();
    let (places, errors) = problems.finish();
    ConfigErrors::unless_empty(errors, || Config {
        server,
        log,
        local_slots,
        storage,
        targets,
        webhooks,
        workers,
        streams,
        dialects,
        entries,
        sections,
        settings,
        places,
        schema: schema.clone(),
    })
}

fn streams(root: &Section<'_>, schema: &Schema) -> StreamsConfig {
    let section = fixed(root, schema, "streams");
    let streams = StreamsConfig {
        max: section.count("max", 1..=STREAMS_MAX),
        per_tenant_max: section.count("per_tenant_max", 1..=STREAMS_MAX),
        per_token_max: section.count("per_token_max", 1..=STREAMS_MAX),
    };
    section.finish();
    streams
}

fn log(root: &Section<'_>, schema: &Schema) -> LogConfig {
    let section = fixed(root, schema, "log");
    let log = LogConfig {
        format: section.one_of("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]),
        filter: section.text("filter"),
        keep: Duration::from_millis(section.span("keep", Span(0)..=SPAN_MAX).0),
    };
    section.finish();
    log
}

fn limits(root: &Section<'_>, schema: &Schema) -> (Settings, u32, StorageConfig) {
    let section = fixed(root, schema, "limits");
    let tenants_default = fixed(root, schema, "tenants_default");
    let retry_section = fixed(root, schema, "retry");
    let settings = Settings {
        queued_max: section.count("queued_max", 0..=QUEUED_MAX),
        running_max: section.count("running_max", 1..=RUNNING_MAX),
        strict_kinds: section.flag("strict_kinds"),
        lease: section.span("lease", SECOND..=Span::hours(24)),
        ack_timeout: section.span("ack_timeout", SECOND..=Span::hours(1)),
        stop_grace: section.span("stop_grace", MILLISECOND..=Span::hours(24)),
        idempotency_window: section.span("idempotency_window", Span(0)..=SPAN_MAX),
        event_retention: section.span("event_retention", Span::mins(1)..=SPAN_MAX),
        timeout: section.span("timeout", MILLISECOND..=SPAN_MAX),
        queue_timeout: section.span_or_none("queue_timeout", MILLISECOND..=SPAN_MAX),
        retry: retry(&retry_section, schema),
        retry_after_max: section.span("retry_after_max", Span(0)..=SPAN_MAX),
        shown_once_used: BTreeSet::new(),
        lanes: BTreeMap::new(),
        kinds: BTreeMap::new(),
        tenants: BTreeMap::new(),
        tenant_default: tenant(&tenants_default),
        agents: BTreeMap::new(),
        keys: BTreeMap::new(),
        key_default: section.count("key_default", 1..=RUNNING_MAX),
        reserved_percent: u8::try_from(section.count("reserved_percent", 0..=100)).unwrap_or(100),
        schedules: schedules(root, schema),
        runs: runs(root, schema),
        webhooks: WebhookSettings::default(),
        workers: WorkerSettings::default(),
        capacity: capacity(root, schema),
        chat: chat::read(fixed(root, schema, "chat")),
    };
    let local_slots = section.count("local_slots", 1..=RUNNING_MAX);
    let storage = StorageConfig {
        low: section.size("storage_low", 0..=1024 * TIB),
        reserve: section.size("storage_reserve", 0..=TIB),
        start_check: Duration::from_millis(section.span("start_check", Span(0)..=Span::hours(1)).0),
        artifact_retention: Duration::from_millis(
            section.span("artifact_retention", Span::mins(1)..=SPAN_MAX).0,
        ),
        artifacts_per_tenant_max: section.size("artifacts_per_tenant_max", 0..=1024 * TIB),
    };
    section.finish();
    tenants_default.finish();
    retry_section.finish();
    (settings, local_slots, storage)
}

fn schedules(root: &Section<'_>, schema: &Schema) -> ScheduleSettings {
    let section = fixed(root, schema, "schedules");
    let defaults = ScheduleSettings::default();
    let builtin = schema.builtin();
    let base =
        builtin.get("schedules").and_then(|schedules| schedules.get("retry")).and_then(Value::as_table);
    let zone = section.text("zone");
    if !Timing::knows_zone(&zone) {
        section.problem(
            "zone",
            format!("is {zone:?}; write an IANA name, such as \"Europe/Berlin\" or \"UTC\""),
        );
    }
    let settings = ScheduleSettings {
        schedules_max: section.count("schedules_max", 0..=SCHEDULES_MAX),
        schedules_per_tenant_max: section.count("schedules_per_tenant_max", 0..=SCHEDULES_MAX),
        bytes_max: section.size("bytes_max", 0..=TIB),
        zone: Name::new(&zone).unwrap_or(defaults.zone),
        late_max: section.span("late_max", SECOND..=SPAN_MAX),
        timeout: section.span("timeout", MILLISECOND..=SPAN_MAX),
        retry: section.section("retry", base).map_or(defaults.retry, |section| {
            let policy = retry(&section, schema);
            section.finish();
            policy
        }),
        slot_retention: section.span("slot_retention", Span::mins(1)..=SPAN_MAX),
        firing_log_retention: section.span("firing_log_retention", Span::mins(1)..=SPAN_MAX),
        firing_log_max: section.count("firing_log_max", 1..=QUEUED_MAX),
    };
    section.finish();
    settings
}

fn runs(root: &Section<'_>, schema: &Schema) -> RunSettings {
    let section = fixed(root, schema, "runs");
    let settings = RunSettings {
        nodes_max: section.count("nodes_max", 1..=RUN_NODES_MAX),
        dependencies_max: section.count("dependencies_max", 0..=QUEUED_MAX),
        depth_max: section.count("depth_max", 1..=RUN_NODES_MAX),
        payload_bytes_max: section.size("payload_bytes_max", 0..=TIB),
        open_nodes_max: section.count("open_nodes_max", 0..=QUEUED_MAX),
    };
    section.finish();
    settings
}

fn capacity(root: &Section<'_>, schema: &Schema) -> CapacitySettings {
    let section = fixed(root, schema, "capacity");
    let small = |key: &'static str, most: u32| u8::try_from(section.count(key, 0..=most)).unwrap_or(u8::MAX);
    let capacity = CapacitySettings {
        total: section.count("total", 1..=1_000_000),
        reserve: section.count("reserve", 0..=1_000_000),
        headroom_pct: small("headroom_percent", 100),
        measured: section.flag("measured"),
        failclosed_busy: small("failclosed_busy", BUSY_MAX.into()),
        stale_after: section.span("stale_after", SECOND..=Span::hours(1)),
        bypasses_max: small("bypasses_max", u8::MAX.into()).max(1),
        near_deadline: section.span("near_deadline", Span(0)..=SPAN_MAX),
        sample_every: section.span("sample_every", Span(100)..=Span::mins(10)),
    };
    if capacity.measured && capacity.sample_every >= capacity.stale_after {
        section.problem("sample_every", "is not shorter than `stale_after`; no reading would stay fresh");
    }
    section.finish();
    capacity
}

fn pull(section: &Section<'_>) -> PullSettings {
    PullSettings {
        dispatch: section.one_of("dispatch", &Dispatch::ALL.map(|dispatch| (dispatch.as_str(), dispatch))),
        lease: section.span_or_none("lease", SECOND..=Span::hours(24)),
        reservation_timeout: section.span("reservation_timeout", SECOND..=Span::hours(24)),
        on_lease_lost: section
            .one_of("on_lease_lost", &[("requeue", LostPolicy::Requeue), ("fail", LostPolicy::Fail)]),
    }
}

/// The hours of an agent, where it has some.
fn hours(section: &Section<'_>) -> Option<Hours> {
    let text = section.opt_text("hours")?;
    let hours = Hours::parse(&text);
    if hours.is_none() {
        section.problem(
            "hours",
            format!("is {text:?}; write hours such as \"22:00-06:00\" or \"22:00-06:00 Europe/Berlin\""),
        );
    }
    hours
}

fn retry(section: &Section<'_>, schema: &Schema) -> RetryPolicy {
    RetryPolicy {
        retries_max: section.count("retries_max", 0..=1_000),
        losses_max: section.count("losses_max", 0..=1_000),
        backoff: backoff(section, schema),
    }
}

fn backoff(retry: &Section<'_>, schema: &Schema) -> Backoff {
    match retry.get("backoff") {
        None => return Backoff::STANDARD,
        Some(Value::String(_)) => {
            return retry.one_of("backoff", &[("standard", Backoff::STANDARD), ("cron", Backoff::CRON)]);
        }
        Some(_) => {}
    }
    let standard =
        schema.builtin().get("retry").and_then(|retry| retry.get("backoff")).and_then(Value::as_table);
    let Some(section) = retry.section("backoff", standard) else { return Backoff::STANDARD };
    let backoff = Backoff {
        base: section.span("base", Span(0)..=SPAN_MAX),
        factor: section.count("factor", 1..=100),
        max: section.span("max", Span(0)..=SPAN_MAX),
        jitter: jitter(&section),
    };
    if backoff.max < backoff.base {
        section.problem("max", "is shorter than `base`; make it at least as long");
    }
    section.finish();
    backoff
}

fn jitter(section: &Section<'_>) -> Jitter {
    let text = section.text("jitter");
    let percent =
        text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok()).filter(|percent| *percent <= 100);
    match (percent, parse_span(&text)) {
        (Some(percent), _) => Jitter::Percent(percent),
        (None, Some(most)) if most <= SPAN_MAX => Jitter::Add(most),
        _ => {
            if text != NONE {
                let message = format!(
                    "is {text:?}; write a length of time (\"1s\"), a percentage (\"25%\") or \"none\""
                );
                section.problem("jitter", message);
            }
            Jitter::None
        }
    }
}

pub(super) fn lanes(root: &Section<'_>, schema: &Schema) -> BTreeMap<Name, LaneSettings> {
    let lanes = root.named("lanes", Some(schema.lane()), LANES_MAX).into_iter();
    lanes.map(|(name, section)| (name, lane(section))).collect()
}

/// Contributed lanes that have their default settings. They are shown once they are used.
fn unchanged_contributed_lanes(lanes: &BTreeMap<Name, LaneSettings>, schema: &Schema) -> BTreeSet<Name> {
    let defaults = schema.contributed_lanes().into_iter();
    defaults.filter(|(name, settings)| lanes.get(name) == Some(settings)).map(|(name, _)| name).collect()
}

fn lane(section: Section<'_>) -> LaneSettings {
    let lane = LaneSettings {
        queued_max: section.count("queued_max", 0..=QUEUED_MAX),
        queued_per_agent_max: section.count("queued_per_agent_max", 0..=QUEUED_MAX),
        running_max: section.count("running_max", 1..=RUNNING_MAX),
        running_per_agent_max: section.count("running_per_agent_max", 1..=RUNNING_MAX),
        order: section.one_of("order", &[("fair", LaneOrder::Fair), ("priority", LaneOrder::Priority)]),
        aging_step: section.span_or_none("aging_step", MILLISECOND..=SPAN_MAX),
        paused: section.flag("paused"),
        retention: section.span("retention", Span(0)..=SPAN_MAX),
        on_shutdown: section
            .one_of("on_shutdown", &[("keep", ShutdownPolicy::Keep), ("cancel", ShutdownPolicy::Cancel)]),
        pull: pull(&section),
    };
    section.finish();
    lane
}

fn kinds(root: &Section<'_>, schema: &Schema) -> (BTreeMap<Name, KindSettings>, BTreeMap<Name, Target>) {
    let server_retry = root.get("retry").and_then(Value::as_table);
    let (mut kinds, mut targets) = (BTreeMap::new(), BTreeMap::new());
    for (name, section) in root.named("kinds", None, NAMED_MAX) {
        let kind = KindSettings {
            running_max: section.opt_count("running_max", 1..=RUNNING_MAX),
            timeout: section.opt_span("timeout", MILLISECOND..=SPAN_MAX),
            queue_timeout: section.opt_span("queue_timeout", MILLISECOND..=SPAN_MAX),
            retry: section.section("retry", server_retry).map(|section| {
                let policy = retry(&section, schema);
                section.finish();
                policy
            }),
        };
        if let Some(target) = target(&section) {
            targets.insert(name.clone(), target);
        }
        section.finish();
        kinds.insert(name, kind);
    }
    (kinds, targets)
}

fn target(section: &Section<'_>) -> Option<Target> {
    let url = section.opt_text("target");
    let token = section.opt_text("target_token");
    let headers = target_headers(section);
    let response_max = match section.get("target_response_max") {
        None => MIB as usize,
        Some(_) => section.size("target_response_max", 0..=64 * MIB) as usize,
    };
    let Some(url) = url else {
        for key in ["target_token", "target_headers"] {
            if (key == "target_token" && token.is_some()) || (key == "target_headers" && !headers.is_empty())
            {
                section.problem(key, "needs `target` beside it");
            }
        }
        return None;
    };
    if let Some(token) = &token
        && (token.is_empty() || HeaderValue::from_str(token).is_err())
    {
        section
            .problem("target_token", "cannot be sent in a header: it is empty or holds a control character");
    }
    let url = target_url(&url).map_err(|message| section.problem("target", message)).ok()?;
    Some(Target { url, headers, token: token.map(|token| Secret::new(&token)), response_max })
}

/// Messages here never show the URL: it may hold a secret where none belongs.
pub fn target_url(text: &str) -> Result<Url, String> {
    if text.len() > TARGET_URL_MAX {
        return Err(format!("has {} bytes; at most {TARGET_URL_MAX} are allowed", text.len()));
    }
    let url = Url::parse(text)
        .map_err(|error| format!("is no URL ({error}); write one such as \"http://127.0.0.1:9000/path\""))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password; use `target_token` or `target_headers`".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not hold a fragment (#…); it is never sent".to_owned());
    }
    Ok(url)
}

fn target_headers(section: &Section<'_>) -> Vec<(String, Secret)> {
    let pairs = section.pairs("target_headers");
    if pairs.len() > TARGET_HEADERS_MAX {
        section
            .problem("target_headers", format!("has {} entries; at most {TARGET_HEADERS_MAX}", pairs.len()));
    }
    let mut headers = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            section.problem("target_headers", format!("{name:?} is no name of a header"));
        } else if TARGET_HEADERS_TAKEN.contains(&lower.as_str()) || lower.starts_with("laneway-") {
            section.problem("target_headers", format!("{name} is set by Laneway itself; remove it"));
        } else if HeaderValue::from_str(&value).is_err() {
            section.problem("target_headers", format!("the value of {name} holds a control character"));
        } else {
            headers.push((lower, Secret::new(&value)));
        }
    }
    headers
}

/// The limits of tenants, the secrets of their webhooks, and the thresholds of their workers.
type Tenants = (BTreeMap<Name, TenantSettings>, BTreeMap<Name, SigningSecrets>, Vec<(Name, TenantPressure)>);

fn tenants(root: &Section<'_>) -> Tenants {
    let defaults = root.get("tenants_default").and_then(Value::as_table);
    let (mut tenants, mut secrets, mut pressures) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for (name, section) in root.named("tenants", defaults, NAMED_MAX) {
        let signing = webhooks::secrets(&section, "webhook_secret", "webhook_secret_previous");
        if signing.current.is_some() {
            secrets.insert(name.clone(), signing);
        }
        pressures.push((name.clone(), workers::tenant_pressure(&section)));
        tenants.insert(name, tenant(&section));
        section.finish();
    }
    (tenants, secrets, pressures)
}

fn tenant(section: &Section<'_>) -> TenantSettings {
    TenantSettings {
        queued_max: section.count("queued_max", 0..=QUEUED_MAX),
        running_max: section.count("running_max", 1..=RUNNING_MAX),
    }
}

fn agents(root: &Section<'_>) -> BTreeMap<Name, AgentSettings> {
    let mut agents = BTreeMap::new();
    for (name, section) in root.named("agents", None, NAMED_MAX) {
        let weight = section.opt_count("weight", 1..=1_000).unwrap_or(1);
        agents.insert(name, AgentSettings { weight, hours: hours(&section) });
        section.finish();
    }
    agents
}

fn keys(root: &Section<'_>) -> BTreeMap<Name, u32> {
    let mut keys = BTreeMap::new();
    for (name, section) in root.named("keys", None, NAMED_MAX) {
        keys.insert(name, section.opt_count("limit", 1..=RUNNING_MAX).unwrap_or(1));
        section.finish();
    }
    keys
}

/// A section that the defaults have, so that it is always there unless the tree has another value in its place.
pub(super) fn fixed<'a>(root: &Section<'a>, schema: &'a Schema, key: &'static str) -> Section<'a> {
    let base = schema.builtin().get(key).and_then(Value::as_table);
    root.section_or(key, base.expect("the embedded defaults have every fixed section"))
}
