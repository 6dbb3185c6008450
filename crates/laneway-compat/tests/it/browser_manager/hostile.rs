//! Bodies, queries and paths of every form: no call answers 500, and every answer has the envelope.

use serde_json::{Value, json};

use super::world::World;

/// A generator of its own: the same bodies in every run of a seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn one<'t>(&mut self, of: &'t [&'t str]) -> &'t str {
        of[self.next(of.len() as u64) as usize]
    }

    fn text(&mut self) -> String {
        let parts = [
            "",
            "p1",
            "../",
            "\u{0}",
            "ü",
            "%00",
            "\"",
            "{",
            "null",
            "-1",
            "1e999",
            "\u{202e}",
            "http://x/",
            "a b",
            "🦀",
            "\\",
            "'",
            "javascript:",
            "9999999999999999999999",
        ];
        let count = self.next(4);
        let mut text: String = (0..count).map(|_| self.one(&parts)).collect();
        if self.next(40) == 0 {
            text = text.repeat(5_000);
        }
        text
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.next(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => Value::Bool(self.next(2) == 0),
            2 => json!(self.next(5_000)),
            3 => json!(-(self.next(50) as i64)),
            4 => json!(self.next(1_000) as f64 / 7.0),
            5 => Value::String(self.text()),
            6 => (0..self.next(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let count = self.next(5);
                Value::Object((0..count).map(|_| (self.field(), self.value(depth - 1))).collect())
            }
        }
    }

    fn field(&mut self) -> String {
        let known = [
            "id",
            "ids",
            "name",
            "newId",
            "script",
            "steps",
            "program",
            "path",
            "args",
            "input",
            "timeout",
            "timeoutSeconds",
            "proxy",
            "host",
            "port",
            "scheme",
            "username",
            "password",
            "url",
            "failFast",
            "headless",
            "idempotencyKey",
            "callbackUrl",
            "window",
            "width",
            "height",
            "userAgent",
            "locale",
            "timeZone",
            "retentionDays",
            "tabId",
            "agent.max_queue_size",
            "agent.max_concurrent_jobs",
        ];
        if self.next(5) == 0 { self.text() } else { self.one(&known).to_owned() }
    }

    fn body(&mut self) -> Vec<u8> {
        let count = self.next(8);
        let object: serde_json::Map<String, Value> =
            (0..count).map(|_| (self.field(), self.value(3))).collect();
        let mut bytes = match self.next(6) {
            0 => self.value(3).to_string().into_bytes(),
            _ => Value::Object(object).to_string().into_bytes(),
        };
        if self.next(8) == 0 {
            bytes.truncate(self.next(bytes.len() as u64 + 1) as usize);
        }
        if self.next(12) == 0 {
            bytes.push(0xff);
        }
        bytes
    }
}

const POSTS: [&str; 13] = [
    "/api/env/start",
    "/api/env/close",
    "/api/env/closeAll",
    "/api/env/removeLocalCache",
    "/api/env/cache/cleanCloud",
    "/api/env/clone",
    "/api/env/create/quick",
    "/api/env/removeToRecycleBin/batch",
    "/api/script/run",
    "/api/proxy/test",
    "/api/recycleBin/cleanup",
    "/api/db/migrate",
    "/api/settings",
];

const GETS: [&str; 6] = [
    "/api/jobs",
    "/api/env/list",
    "/api/jobs/{}",
    "/api/jobs/{}/logs",
    "/api/jobs/{}/artifacts",
    "/api/settings",
];

#[tokio::test]
async fn no_body_gives_an_internal_error() {
    let world = World::new("").await;
    world.post("/api/env/create/quick", json!({"id": "p1", "name": "one"})).await;
    let mut random = Random(20_26);
    for round in 0..1_500 {
        let path = POSTS[random.next(POSTS.len() as u64) as usize];
        let body = random.body();
        let shown = String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned();
        let (status, answer) = world.answer(world.request("POST", path).body(body)).await;
        assert!(status != 500 && answer["code"] != json!(-1701), "round {round}: {path} {shown}: {answer}");
        let names: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(names, ["code", "data", "msg", "requestId"], "round {round}: {path} {shown}");
        assert_eq!(status == 200, answer["code"] == json!(0), "round {round}: {path} {shown}: {answer}");
    }
}

#[tokio::test]
async fn no_query_and_no_path_gives_an_internal_error() {
    let world = World::new("").await;
    let mut random = Random(7);
    let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let known = ["pageNum", "pageSize", "status", "jobType", "search", "tail", "level", "job_id"];
    for round in 0..500 {
        let path = GETS[random.next(GETS.len() as u64) as usize];
        let mut id = escaped(&random.text());
        id.truncate(300);
        let path = path.replace("{}", if id.is_empty() { "x" } else { &id });
        let count = random.next(4);
        let query: Vec<String> = (0..count)
            .map(|_| {
                let mut value = escaped(&random.text());
                value.truncate(3_000);
                format!("{}={value}", random.one(&known))
            })
            .collect();
        let url = format!("{path}?{}", query.join("&"));
        let (status, answer) = world.get(&url).await;
        assert!(status < 500 && answer["code"].is_i64(), "round {round}: {url}: {status} {answer}");
    }
}
