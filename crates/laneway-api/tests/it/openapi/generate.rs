//! Generates requests that a schema allows, the same ones for the same seed.

use serde_json::{Map, Value, json};

/// How deep optional objects are filled in.
const DEPTH_MAX: u32 = 6;

/// Generates values for the schemas of one document.
pub struct Generator<'a> {
    document: &'a Value,
    state: u64,
}

impl<'a> Generator<'a> {
    /// The same seed gives the same values.
    pub fn new(document: &'a Value, seed: u64) -> Generator<'a> {
        Generator { document, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// A request of this schema. It also obeys the rules that only the descriptions have.
    pub fn request(&mut self, schema: &str) -> Value {
        let mut request = self.value(&json!({"$ref": format!("#/components/schemas/{schema}")}), 0);
        let fields = request.as_object_mut().expect("requests are objects");
        match schema {
            "JobRequest" => keep_rules_of_jobs(fields),
            "ScheduleRequest" | "PreviewRequest" => self.keep_rules_of_timings(fields),
            "SchedulePatchRequest" => {
                self.keep_rules_of_timings(fields);
                // The fields of the job that are to change.
                if let Some(job) = fields.get_mut("job") {
                    *job = json!({"priority": 5, "timeout": "366d"});
                }
            }
            "RunRequest" => keep_rules_of_runs(fields),
            "LeaseRequest" => keep_rules_of_leases(fields),
            "InstanceRequest" => {
                // An address is a port or a URL.
                fields.remove("url");
                fields.insert("port".to_owned(), json!(9_867));
            }
            "BatchRequest" => keep_rules_of_batches(fields),
            "ProfileRequest" | "ProfilePatchRequest" => keep_rules_of_profiles(fields),
            _ => {}
        }
        request
    }

    fn below(&mut self, end: u64) -> u64 {
        // xorshift64*: small, and good enough to choose values.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    fn pick<'v>(&mut self, values: &'v [Value]) -> &'v Value {
        &values[self.below(values.len() as u64) as usize]
    }

    fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if let Some(name) = schema["$ref"].as_str() {
            let target = self.document.pointer(name.trim_start_matches('#')).expect("a schema");
            return self.value(target, depth);
        }
        if let Some(shapes) = schema["oneOf"].as_array() {
            let shape = self.pick(shapes).clone();
            return self.value(&shape, depth);
        }
        if let Some(values) = schema["enum"].as_array() {
            return self.pick(values).clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.pick(kinds).clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => self.array(schema, depth),
            Some("string") => self.text(schema),
            Some("integer") => self.integer(schema),
            Some("boolean") => json!(self.below(2) == 0),
            Some("null") => Value::Null,
            _ => self.pick(&[json!(null), json!(7), json!("x"), json!({"a": [1, {"b": false}]})]).clone(),
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let wanted = required.iter().any(|name| name == field);
            if wanted || (depth < DEPTH_MAX && self.below(3) == 0) {
                object.insert(field.clone(), self.value(property, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            let most = schema["maxProperties"].as_u64().unwrap_or(3);
            for number in 0..self.below(most + 1) {
                object
                    .insert(format!("key-{number}"), self.value(&schema["additionalProperties"], depth + 1));
            }
        }
        Value::Object(object)
    }

    fn array(&mut self, schema: &Value, depth: u32) -> Value {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let most = schema["maxItems"].as_u64().unwrap_or(least + 3).min(least + 20);
        let len = least + self.below(most - least + 1);
        (0..len).map(|_| self.value(&schema["items"], depth + 1)).collect()
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let (low, high) = match schema["format"].as_str() {
            Some("int64") => (i64::MIN, i64::MAX),
            _ => (i32::MIN.into(), i32::MAX.into()),
        };
        let least = schema["minimum"].as_i64().unwrap_or(low);
        let most = schema["maximum"].as_i64().unwrap_or(high);
        let near = least.saturating_add(self.below(5) as i64).min(most);
        self.pick(&[json!(least), json!(most), json!(near)]).clone()
    }

    /// A string that matches the format or pattern of the schema.
    fn text(&mut self, schema: &Value) -> Value {
        if schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("ms)")) {
            return self.span(schema);
        }
        let samples: &[&str] = match (schema["format"].as_str(), schema["pattern"].as_str()) {
            (Some("date-time"), _) => {
                &["2030-01-01T08:00:00Z", "2031-12-31T23:59:59.999+05:30", "1970-01-01T00:00:00Z"]
            }
            (Some("uuid"), _) => &["0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80"],
            (Some("uri"), _) => &["https://hooks.example/done"],
            (_, Some(pattern)) if pattern.starts_with("^00-") => {
                &["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]
            }
            (_, Some(pattern)) if pattern.contains("*/@") => &["vendor=1", "a=b,t@v=x"],
            (_, Some(pattern)) if pattern.starts_with("^[a-z0-9]") => &["a", "shop-1", "0_z"],
            (_, Some(pattern)) if pattern.starts_with("^[A-Za-z]{2,3}") => &["de", "en-US"],
            (_, Some(pattern)) if pattern.starts_with("^[ -~]") => &["Mozilla/5.0 (X11; Linux)"],
            (_, Some(pattern)) if pattern.contains(":[0-5][0-9]-") => {
                &["22:00-06:00", "00:00-23:59 Europe/Berlin"]
            }
            (_, Some(pattern)) if pattern.contains("(results|parameters)") => &["/results", "/parameters/a"],
            (_, Some(pattern)) if pattern.contains("^/parameters") => &["/parameters/b"],
            (_, Some(pattern)) if pattern.starts_with("^[A-Za-z0-9._:-]") => {
                &["a", "Z.9_:-", "0", "a-name-that-is-128-signs-long"]
            }
            (_, Some(_)) => &["agent:a7:mail/jo@example.org", "ü b", "x"],
            _ => &["x"],
        };
        let text = samples[self.below(samples.len() as u64) as usize];
        match text {
            "a-name-that-is-128-signs-long" => json!(format!("{text:x<128}")),
            text => json!(text),
        }
    }

    /// A duration that the schema allows, often at its bounds.
    fn span(&mut self, schema: &Value) -> Value {
        const SAMPLES: [&str; 16] = [
            "0ms",
            "1ms",
            "100ms",
            "999ms",
            "1s",
            "59s999ms",
            "60s",
            "2m",
            "10m",
            "1h",
            "1h30m",
            "24h",
            "1d2h3m4s5ms",
            "365d23h59m59s999ms",
            "366d",
            "3650d",
        ];
        let rule = jsonschema::validator_for(schema).expect("a schema");
        let allowed: Vec<Value> =
            SAMPLES.into_iter().map(Value::from).filter(|text| rule.is_valid(text)).collect();
        self.pick(&allowed).clone()
    }

    /// One of `cron`, `every` and `at`, without the options of the others.
    fn keep_rules_of_timings(&mut self, fields: &mut Map<String, Value>) {
        let timing = ["cron", "every", "at"][self.below(3) as usize];
        for other in ["cron", "every", "at", "zone", "anchor"] {
            fields.remove(other);
        }
        let value = match timing {
            "cron" => json!("0 9 * * 1-5"),
            "every" => json!("30m"),
            _ => json!("2030-01-01T08:00:00Z"),
        };
        fields.insert(timing.to_owned(), value);
        match (timing, self.below(2)) {
            ("cron", 0) => drop(fields.insert("zone".to_owned(), json!("Europe/Berlin"))),
            ("every", 0) => drop(fields.insert("anchor".to_owned(), json!("2030-01-01T00:00:00Z"))),
            _ => {}
        }
        if let Some(Value::Object(job)) = fields.get_mut("job") {
            keep_rules_of_jobs(job);
            for given_by_schedule in
                ["not_before", "deadline", "idempotency_key", "traceparent", "tracestate"]
            {
                job.remove(given_by_schedule);
            }
            if let Some(Value::Object(session)) = job.get_mut("session") {
                session.remove("sent_at");
            }
        }
        if timing == "at" {
            fields.remove("catch_up");
            fields.remove("overlap");
        }
    }
}

/// The rules for jobs that only descriptions have.
fn keep_rules_of_jobs(job: &mut Map<String, Value>) {
    // Its host must be one that the server may call.
    job.remove("callback");
    if let Some(Value::Object(session)) = job.get_mut("session") {
        // `debounce_max` needs a shorter `debounce` beside it, and both have a maximum.
        session.remove("debounce_max");
        if session.contains_key("debounce") {
            session.insert("debounce".to_owned(), json!("800ms"));
            session.insert("debounce_max".to_owned(), json!("8s"));
        }
    }
    if let Some(Value::Object(backoff)) = job.get_mut("retry").and_then(|retry| retry.get_mut("backoff")) {
        // No wait is longer than `max`, not even the first; jitter is one of two.
        backoff.remove("base");
        if let Some(Value::Object(jitter)) = backoff.get_mut("jitter")
            && jitter.len() == 2
        {
            jitter.remove("add");
        }
    }
    if let Some(Value::Array(resources)) =
        job.get_mut("worker").and_then(|worker| worker.get_mut("resources"))
    {
        // All on one worker.
        resources.truncate(1);
    }
}

/// A lease request names a lane, a job or a new job; only lanes exist here.
fn keep_rules_of_leases(lease: &mut Map<String, Value>) {
    lease.remove("job");
    lease.remove("new");
    lease.insert("lane".to_owned(), json!("asked"));
}

/// A time zone has a name that the server knows, and a password needs a user.
fn keep_rules_of_profiles(profile: &mut Map<String, Value>) {
    if let Some(zone @ Value::String(_)) = profile.get_mut("time_zone") {
        *zone = json!("Europe/Berlin");
    }
    if let Some(Value::Object(proxy)) = profile.get_mut("proxy")
        && !proxy.get("username").is_some_and(Value::is_string)
    {
        proxy.remove("password");
    }
}

/// The rules for jobs apply to each job of a batch.
fn keep_rules_of_batches(batch: &mut Map<String, Value>) {
    let Some(Value::Array(jobs)) = batch.get_mut("jobs") else { return };
    jobs.iter_mut().filter_map(Value::as_object_mut).for_each(keep_rules_of_jobs);
}

/// Nodes have unique names, and depend on earlier ones only.
fn keep_rules_of_runs(run: &mut Map<String, Value>) {
    let Some(Value::Array(nodes)) = run.get_mut("nodes") else { return };
    for (index, node) in nodes.iter_mut().enumerate() {
        let Value::Object(node) = node else { continue };
        node.insert("node".to_owned(), json!(format!("node-{index}")));
        node.remove("middleware");
        node.remove("bindings");
        node.remove("group");
        node.remove("within");
        if node.contains_key("depends_on") {
            let earlier: Vec<String> = (0..index).map(|earlier| format!("node-{earlier}")).collect();
            node.insert("depends_on".to_owned(), json!(earlier));
        }
        if let Some(Value::Object(job)) = node.get_mut("job") {
            keep_rules_of_jobs(job);
            job.remove("session");
            job.remove("idempotency_key");
        }
    }
}
