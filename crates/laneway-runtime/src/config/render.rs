//! Shows a configuration: as TOML that can be read again, and as JSON.

use std::collections::BTreeMap;

use laneway_core::job::session::ChatSettings;
use laneway_core::settings::{
    AgentSettings, KindSettings, RunSettings, ScheduleSettings, TenantSettings, WebhookSettings,
};
use laneway_core::worker::{Pressure, WorkerSettings};
use laneway_core::{
    Backoff, CapacitySettings, Jitter, LaneOrder, LaneSettings, LostPolicy, PullSettings, RetryPolicy,
    Settings, ShutdownPolicy, Span,
};
use laneway_store::postgres::{is_postgres_url, without_password};
use toml::{Table, Value};

use super::path::KeyPath;
use super::schema::{EntryValue, SectionEntry};
use super::secret::{REDACTED, shown_url};
use super::section::NONE;
use super::units::{format_size, format_span};
use super::{
    Config, DialectConfig, LogConfig, LogFormat, Mount, Secret, ServerConfig, SigningSecrets, StorageConfig,
    StreamsConfig, Target, WebhookConfig, WorkersConfig,
};

/// A key of the effective configuration, with its value as it would be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) path: KeyPath,
    pub(super) value: Value,
    /// True: the value is never shown.
    pub(super) secret: bool,
}

impl Entry {
    /// The value as people may see it.
    pub(super) fn shown(&self) -> Value {
        match &self.value {
            _ if self.secret => Value::from(REDACTED),
            Value::String(text) if is_postgres_url(text) => Value::from(without_password(text)),
            Value::String(text) if text.contains("://") => Value::from(shown_url(text)),
            value => value.clone(),
        }
    }
}

/// The whole configuration as TOML, section by section.
pub(super) fn to_toml(config: &Config) -> String {
    let mut text = String::from("# Values that are not the default say where they come from.\n");
    let mut section = None;
    for entry in entries(config) {
        let Some((above, key)) = entry.path.split_last() else { continue };
        if section.as_ref() != Some(&above) {
            text.push_str(&format!("\n[{above}]\n"));
        }
        section = Some(above);
        if let Value::Table(table) = &entry.value
            && table.is_empty()
        {
            continue;
        }
        let key = KeyPath::of(&[key]);
        text.push_str(&format!("{key} = {}", entry.shown()));
        if let Some(place) = config.places.get(&entry.path) {
            text.push_str(&format!(" # from {}", place.to_string().replace(char::is_control, " ")));
        }
        text.push('\n');
    }
    text
}

/// The whole configuration as one JSON tree.
pub(super) fn to_json(config: &Config) -> serde_json::Value {
    let mut tree = serde_json::Map::new();
    for entry in entries(config) {
        let Some((above, key)) = entry.path.split_last() else { continue };
        let mut table = &mut tree;
        for part in above.parts() {
            let below =
                table.entry(part.clone()).or_insert_with(|| serde_json::Value::Object(Default::default()));
            table = below.as_object_mut().expect("no entry lies below a plain value");
        }
        let empty_section = key == EXISTS;
        if !empty_section {
            table.insert(key.to_owned(), json_of(&entry.shown()));
        }
    }
    serde_json::Value::Object(tree)
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Boolean(flag) => (*flag).into(),
        Value::Datetime(time) => time.to_string().into(),
        Value::Array(items) => items.iter().map(json_of).collect(),
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), json_of(value))).collect(),
    }
}

/// Stands for a section without keys, such as a kind that is only named.
const EXISTS: &str = "";

/// Every key of the configuration, in the order of the reference.
pub(super) fn entries(config: &Config) -> Vec<Entry> {
    let Config {
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
        places: _,
        schema,
    } = config;
    let mut list = List::default();
    list.server(server);
    list.log(log);
    list.limits(settings, *local_slots, storage);
    list.section(&["capacity"]);
    list.capacity(&settings.capacity);
    list.section(&["retry"]);
    list.retry(&settings.retry);
    list.section(&["runs"]);
    list.runs(&settings.runs);
    list.section(&["schedules"]);
    list.schedules(&settings.schedules);
    for (name, lane) in &settings.lanes {
        list.section(&["lanes", name.as_str()]);
        list.lane(lane);
    }
    for (name, kind) in &settings.kinds {
        list.kind(name.as_str(), kind, targets.get(name));
    }
    list.webhooks(webhooks, &settings.webhooks);
    list.workers(workers, &settings.workers);
    list.streams(streams);
    list.section(&["tenants_default"]);
    list.tenant(&settings.tenant_default);
    list.tenants(settings, webhooks);
    for (name, agent) in &settings.agents {
        list.section(&["agents", name.as_str()]);
        list.agent(agent);
    }
    for (name, limit) in &settings.keys {
        list.section(&["keys", name.as_str()]);
        list.put("limit", *limit);
    }
    list.chat(&settings.chat);
    for (name, section) in sections {
        list.section(&[name]);
        list.values(section.as_ref());
    }
    for dialect in dialects.iter() {
        list.dialect(dialect);
    }
    for section in schema.entry_sections() {
        for (name, entry) in entries.get(section.name).into_iter().flatten() {
            list.entry(section.name, name.as_str(), entry.as_ref());
        }
    }
    list.entries
}

#[derive(Default)]
struct List {
    section: KeyPath,
    entries: Vec<Entry>,
}

impl List {
    fn limits(&mut self, settings: &Settings, local_slots: u32, storage: &StorageConfig) {
        self.section(&["limits"]);
        self.put("queued_max", settings.queued_max);
        self.put("running_max", settings.running_max);
        self.put("local_slots", local_slots);
        self.put("strict_kinds", settings.strict_kinds);
        self.put("timeout", span(settings.timeout));
        self.put("queue_timeout", span_or_none(settings.queue_timeout));
        self.put("retry_after_max", span(settings.retry_after_max));
        self.put("lease", span(settings.lease));
        self.put("ack_timeout", span(settings.ack_timeout));
        self.put("stop_grace", span(settings.stop_grace));
        self.put("idempotency_window", span(settings.idempotency_window));
        self.put("event_retention", span(settings.event_retention));
        self.put("key_default", settings.key_default);
        self.put("reserved_percent", settings.reserved_percent);
        self.put("storage_low", format_size(storage.low));
        self.put("storage_reserve", format_size(storage.reserve));
        self.put(
            "start_check",
            span(Span(u64::try_from(storage.start_check.as_millis()).unwrap_or(u64::MAX))),
        );
        self.put(
            "artifact_retention",
            span(Span(u64::try_from(storage.artifact_retention.as_millis()).unwrap_or(u64::MAX))),
        );
        self.put("artifacts_per_tenant_max", format_size(storage.artifacts_per_tenant_max));
    }

    fn section(&mut self, parts: &[&str]) {
        self.section = KeyPath::of(parts);
    }

    fn server(&mut self, server: &ServerConfig) {
        self.section(&["server"]);
        self.put("listen", server.listen.to_string());
        self.put("data_dir", server.data_dir.display().to_string());
        if server.store.directory() != Some(&server.data_dir) {
            self.put("store", server.store.reveal());
        }
        self.put(
            "drain_limit",
            span(Span(u64::try_from(server.drain_limit.as_millis()).unwrap_or(u64::MAX))),
        );
        self.put("connections_max", server.connections_max);
        self.put("body_max", format_size(server.body_max as u64));
        self.put("bodies_max", format_size(server.bodies_max as u64));
        self.put("bodies_per_caller_max", format_size(server.bodies_per_caller_max as u64));
        self.put("allowed_hosts", server.allowed_hosts.clone());
        self.put("allowed_origins", server.allowed_origins.clone());
        self.put("viewer_payloads", if server.viewer_payloads_hidden { "hidden" } else { "shown" });
        if let Some(tls) = &server.tls {
            self.section(&["server", "tls"]);
            self.put("cert", tls.cert.display().to_string());
            self.put("key", tls.key.display().to_string());
            if let Some(client_ca) = &tls.client_ca {
                self.put("client_ca", client_ca.display().to_string());
            }
        }
    }

    fn log(&mut self, log: &LogConfig) {
        self.section(&["log"]);
        self.put(
            "format",
            match log.format {
                LogFormat::Text => "text",
                LogFormat::Json => "json",
            },
        );
        self.put("filter", log.filter.clone());
        self.put("keep", span(Span(u64::try_from(log.keep.as_millis()).unwrap_or(u64::MAX))));
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.entries.push(Entry { path: self.section.join(key), value: value.into(), secret: false });
    }

    fn put_secret(&mut self, path: KeyPath, secret: &Secret) {
        self.entries.push(Entry { path, value: Value::from(secret.reveal()), secret: true });
    }

    fn retry(&mut self, retry: &RetryPolicy) {
        let RetryPolicy { retries_max, losses_max, backoff } = retry;
        self.put("retries_max", *retries_max);
        self.put("losses_max", *losses_max);
        self.put("backoff", backoff_value(backoff));
    }

    fn runs(&mut self, runs: &RunSettings) {
        let RunSettings { nodes_max, dependencies_max, depth_max, payload_bytes_max, open_nodes_max } = *runs;
        self.put("nodes_max", nodes_max);
        self.put("dependencies_max", dependencies_max);
        self.put("depth_max", depth_max);
        self.put("payload_bytes_max", format_size(payload_bytes_max));
        self.put("open_nodes_max", open_nodes_max);
    }

    fn schedules(&mut self, schedules: &ScheduleSettings) {
        let ScheduleSettings {
            schedules_max,
            schedules_per_tenant_max,
            bytes_max,
            zone,
            late_max,
            timeout,
            retry,
            slot_retention,
            firing_log_retention,
            firing_log_max,
        } = schedules;
        self.put("schedules_max", *schedules_max);
        self.put("schedules_per_tenant_max", *schedules_per_tenant_max);
        self.put("bytes_max", format_size(*bytes_max));
        self.put("zone", zone.as_str());
        self.put("late_max", span(*late_max));
        self.put("timeout", span(*timeout));
        self.put("slot_retention", span(*slot_retention));
        self.put("firing_log_retention", span(*firing_log_retention));
        self.put("firing_log_max", *firing_log_max);
        self.section(&["schedules", "retry"]);
        self.retry(retry);
    }

    fn lane(&mut self, lane: &LaneSettings) {
        let LaneSettings {
            queued_max,
            queued_per_agent_max,
            running_max,
            running_per_agent_max,
            order,
            aging_step,
            paused,
            retention,
            on_shutdown,
            pull,
        } = lane;
        self.put("queued_max", *queued_max);
        self.put("queued_per_agent_max", *queued_per_agent_max);
        self.put("running_max", *running_max);
        self.put("running_per_agent_max", *running_per_agent_max);
        self.put(
            "order",
            match order {
                LaneOrder::Fair => "fair",
                LaneOrder::Priority => "priority",
            },
        );
        self.put("aging_step", span_or_none(*aging_step));
        self.put("paused", *paused);
        self.put("retention", span(*retention));
        self.put(
            "on_shutdown",
            match on_shutdown {
                ShutdownPolicy::Keep => "keep",
                ShutdownPolicy::Cancel => "cancel",
            },
        );
        self.pull(pull);
    }

    fn pull(&mut self, pull: &PullSettings) {
        let PullSettings { dispatch, lease, reservation_timeout, on_lease_lost } = pull;
        self.put("dispatch", dispatch.as_str());
        self.put("lease", span_or_none(*lease));
        self.put("reservation_timeout", span(*reservation_timeout));
        self.put(
            "on_lease_lost",
            match on_lease_lost {
                LostPolicy::Requeue => "requeue",
                LostPolicy::Fail => "fail",
            },
        );
    }

    fn capacity(&mut self, capacity: &CapacitySettings) {
        let CapacitySettings {
            total,
            reserve,
            headroom_pct,
            measured,
            failclosed_busy,
            stale_after,
            bypasses_max,
            near_deadline,
            sample_every,
        } = capacity;
        self.put("measured", *measured);
        self.put("total", *total);
        self.put("reserve", *reserve);
        self.put("headroom_percent", u32::from(*headroom_pct));
        self.put("failclosed_busy", u32::from(*failclosed_busy));
        self.put("stale_after", span(*stale_after));
        self.put("sample_every", span(*sample_every));
        self.put("bypasses_max", u32::from(*bypasses_max));
        self.put("near_deadline", span(*near_deadline));
    }

    fn kind(&mut self, name: &str, kind: &KindSettings, target: Option<&Target>) {
        let KindSettings { running_max, timeout, queue_timeout, retry } = kind;
        self.section(&["kinds", name]);
        let before = self.entries.len();
        if let Some(running_max) = running_max {
            self.put("running_max", *running_max);
        }
        if let Some(timeout) = timeout {
            self.put("timeout", span(*timeout));
        }
        if let Some(queue_timeout) = queue_timeout {
            self.put("queue_timeout", span(*queue_timeout));
        }
        if let Some(target) = target {
            self.put("target", target.url.as_str());
            self.put("target_response_max", format_size(target.response_max as u64));
            if let Some(token) = &target.token {
                self.put_secret(self.section.join("target_token"), token);
            }
        }
        if self.entries.len() == before && retry.is_none() {
            self.put(EXISTS, Table::new());
        }
        for (header, value) in target.into_iter().flat_map(|target| &target.headers) {
            self.put_secret(KeyPath::of(&["kinds", name, "target_headers", header]), value);
        }
        if let Some(retry) = retry {
            self.section(&["kinds", name, "retry"]);
            self.retry(retry);
        }
    }

    fn chat(&mut self, chat: &ChatSettings) {
        let ChatSettings { mode, cap, drop, debounce, max_concurrent } = *chat;
        self.section(&["chat"]);
        self.put("mode", mode.as_str());
        self.put("cap", cap);
        self.put("drop", drop.as_str());
        self.put("debounce", span(debounce));
        self.put("max_concurrent", max_concurrent);
    }

    fn dialect(&mut self, dialect: &DialectConfig) {
        let DialectConfig { name, mount, values } = dialect;
        self.section(&["dialects", name]);
        self.mount(mount);
        for (key, value) in values {
            self.put(key, value.clone());
        }
    }

    fn mount(&mut self, mount: &Mount) {
        let Mount { enabled, prefix, listen, requests_max, requests_window } = mount;
        self.put("enabled", *enabled);
        self.put("prefix", prefix.clone());
        self.put("listen", listen.map(|listen| listen.to_string()).unwrap_or_default());
        self.put("requests_max", *requests_max);
        self.put("requests_window", span(*requests_window));
    }

    fn entry(&mut self, section: &str, name: &str, entry: &dyn SectionEntry) {
        self.section(&[section, name]);
        self.values(entry);
    }

    fn values(&mut self, entry: &dyn SectionEntry) {
        for (key, value) in entry.values() {
            match value {
                EntryValue::Plain(value) => self.put(key, value),
                EntryValue::Secret(secret) => self.put_secret(self.section.join(key), &secret),
            }
        }
    }

    fn webhooks(&mut self, webhooks: &WebhookConfig, settings: &WebhookSettings) {
        let WebhookConfig {
            in_flight_max,
            in_flight_per_host_max,
            timeout,
            allow_hosts,
            secrets,
            tenant_secrets: _,
        } = webhooks;
        self.section(&["webhooks"]);
        self.put("pending_max", settings.pending_max);
        self.put("pending_per_tenant_max", settings.pending_per_tenant_max);
        self.put("retries", settings.retries.iter().map(|wait| span(*wait)).collect::<Vec<Value>>());
        self.put("in_flight_max", *in_flight_max as i64);
        self.put("in_flight_per_host_max", *in_flight_per_host_max as i64);
        self.put("timeout", span(Span(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))));
        self.put("allow_hosts", allow_hosts.clone());
        self.secrets(secrets, "secret", "secret_previous");
    }

    /// Tenants with a section of their own.
    fn tenants(&mut self, settings: &Settings, webhooks: &WebhookConfig) {
        for (name, tenant) in &settings.tenants {
            self.section(&["tenants", name.as_str()]);
            self.tenant(tenant);
            if let Some(Pressure { memory, disk, relief: _ }) = settings.workers.pressure_of.get(name) {
                self.put("worker_memory_full", i64::from(*memory / 10));
                self.put("worker_disk_full", i64::from(*disk / 10));
            }
            if let Some(secrets) = webhooks.tenant_secrets.get(name) {
                self.secrets(secrets, "webhook_secret", "webhook_secret_previous");
            }
        }
    }

    fn streams(&mut self, streams: &StreamsConfig) {
        let StreamsConfig { max, per_tenant_max, per_token_max } = streams;
        self.section(&["streams"]);
        self.put("max", *max);
        self.put("per_tenant_max", *per_tenant_max);
        self.put("per_token_max", *per_token_max);
    }

    fn workers(&mut self, workers: &WorkersConfig, settings: &WorkerSettings) {
        let WorkersConfig {
            sockets_max,
            sockets_per_tenant_max,
            unauthenticated_max,
            unauthenticated_per_address_max,
            require_certificate,
        } = workers;
        self.section(&["workers"]);
        self.put("sockets_max", *sockets_max);
        self.put("sockets_per_tenant_max", *sockets_per_tenant_max);
        self.put("unauthenticated_max", *unauthenticated_max);
        self.put("unauthenticated_per_address_max", *unauthenticated_per_address_max);
        self.put("require_certificate", *require_certificate);
        self.put("workers_max", settings.workers_max);
        self.put("workers_per_tenant_max", settings.workers_per_tenant_max);
        self.put("rejections_max", settings.rejections_max);
        self.put("saturated_after", span(settings.saturated_after));
        let Pressure { memory, disk, relief } = settings.pressure;
        for (key, thousandths) in [("memory_full", memory), ("disk_full", disk), ("relief", relief)] {
            self.put(key, i64::from(thousandths / 10));
        }
    }

    fn secrets(&mut self, secrets: &SigningSecrets, current: &str, previous: &str) {
        for (key, secret) in [(current, &secrets.current), (previous, &secrets.previous)] {
            if let Some(secret) = secret {
                self.put_secret(self.section.join(key), secret);
            }
        }
    }

    fn agent(&mut self, agent: &AgentSettings) {
        let AgentSettings { weight, hours } = agent;
        self.put("weight", *weight);
        if let Some(hours) = hours {
            self.put("hours", hours.to_string());
        }
    }

    fn tenant(&mut self, tenant: &TenantSettings) {
        let TenantSettings { queued_max, running_max } = tenant;
        self.put("queued_max", *queued_max);
        self.put("running_max", *running_max);
    }
}

fn backoff_value(backoff: &Backoff) -> Value {
    let Backoff { base, factor, max, jitter } = backoff;
    let jitter = match jitter {
        Jitter::None => NONE.to_owned(),
        Jitter::Add(most) => format_span(*most),
        Jitter::Percent(percent) => format!("{percent}%"),
    };
    let table: BTreeMap<String, Value> = BTreeMap::from([
        ("base".to_owned(), span(*base)),
        ("factor".to_owned(), Value::from(*factor)),
        ("max".to_owned(), span(*max)),
        ("jitter".to_owned(), Value::from(jitter)),
    ]);
    Value::Table(table.into_iter().collect())
}

fn span(span: Span) -> Value {
    Value::from(format_span(span))
}

fn span_or_none(limit: Option<Span>) -> Value {
    limit.map_or_else(|| Value::from(NONE), span)
}
