//! Converts the `scheduler` section of PinchTab's configuration file (JSON) into TOML for Laneway.
//!
//! Every key is either converted or listed in a comment with the reason. Values of other sections are never
//! shown: they may be secrets.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use thiserror::Error;

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The configuration, as TOML with comments.
    pub toml: String,
    /// Keys that do not apply, each with the reason.
    pub not_applicable: Vec<String>,
}

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// It is not JSON, or not an object.
    #[error("not a JSON object: {0}")]
    Syntax(String),
    /// It has nothing to import.
    #[error("there is no section `scheduler`, and none of its keys; give the configuration file of PinchTab")]
    NoScheduler,
    /// A value is invalid.
    #[error("scheduler.{key} is {value}; write {wanted}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What is valid.
        wanted: &'static str,
    },
}

/// PinchTab's name of a number, and the key in `[dialects.pinchtab]`.
const NUMBERS: [(&str, &str); 6] = [
    ("maxQueueSize", "max_queue_size"),
    ("maxPerAgent", "max_per_agent"),
    ("maxInflight", "max_inflight"),
    ("maxPerAgentInflight", "max_per_agent_inflight"),
    ("workerCount", "worker_count"),
    ("maxBatchSize", "max_batch_size"),
];
/// Keys of the section beside the numbers.
const OTHERS: [&str; 3] = ["enabled", "strategy", "resultTTLSec"];

/// Imports a whole configuration file, or its `scheduler` section alone.
pub fn import(json: &str) -> Result<Imported, ImportError> {
    let file: Value = serde_json::from_str(json).map_err(|error| ImportError::Syntax(error.to_string()))?;
    let Value::Object(mut file) = file else {
        return Err(ImportError::Syntax("the file is not an object".to_owned()));
    };
    let (section, rest) = match file.remove("scheduler") {
        Some(Value::Object(section)) => (section, file),
        Some(Value::Null) => (Map::new(), file),
        Some(_) => return Err(ImportError::Syntax("`scheduler` is not an object".to_owned())),
        None if file.keys().any(|key| is_known(key)) => (file, Map::new()),
        None => return Err(ImportError::NoScheduler),
    };
    let mut import = Import { toml: String::new(), not_applicable: Vec::new() };
    import.section(&section)?;
    for section in rest.keys() {
        import.skip(section, reason_of(section));
    }
    Ok(import.finish())
}

fn is_known(key: &str) -> bool {
    OTHERS.contains(&key) || NUMBERS.iter().any(|(theirs, _)| *theirs == key)
}

struct Import {
    toml: String,
    not_applicable: Vec<String>,
}

impl Import {
    fn section(&mut self, section: &Map<String, Value>) -> Result<(), ImportError> {
        for (key, value) in section {
            match (key.as_str(), value) {
                (_, Value::Null) => self.default_of(key, "null"),
                ("enabled", Value::Bool(enabled)) => self.put(format_args!("enabled = {enabled}")),
                ("enabled", other) => return Err(wrong(key, other, "true or false")),
                ("strategy", Value::String(strategy)) => {
                    // A JSON string is a valid TOML string.
                    self.put(format_args!("strategy = {}", Value::from(strategy.as_str())));
                }
                ("strategy", other) => return Err(wrong(key, other, "a text such as \"fair-fifo\"")),
                ("resultTTLSec", _) => match number(key, value)? {
                    0 => self.default_of(key, "0"),
                    seconds => self.put(format_args!("result_ttl = \"{seconds}s\"")),
                },
                (theirs, _) => match NUMBERS.iter().find(|(known, _)| *known == theirs) {
                    Some((_, ours)) => match number(key, value)? {
                        0 => self.default_of(key, "0"),
                        number => self.put(format_args!("{ours} = {number}")),
                    },
                    None => self.skip(&format!("scheduler.{key}"), reason_of(theirs)),
                },
            }
        }
        Ok(())
    }

    fn put(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.toml, "{line}").expect("writing to a string cannot fail");
    }

    /// 0 and null mean the default in PinchTab, and the default is the same here.
    fn default_of(&mut self, key: &str, value: &str) {
        self.put(format_args!("# scheduler.{key} is {value}: the default holds"));
    }

    fn skip(&mut self, key: &str, reason: &str) {
        // A key may contain anything; a comment is one line.
        let key = key.replace(char::is_control, " ");
        self.not_applicable.push(format!("{key}: {reason}"));
    }

    fn finish(self) -> Imported {
        let Import { toml: keys, not_applicable } = self;
        let mut toml = String::from("# Imported from the configuration of PinchTab.\n[dialects.pinchtab]\n");
        toml.push_str(&keys);
        if !not_applicable.is_empty() {
            toml.push_str("\n# Not applicable here:\n");
        }
        for line in &not_applicable {
            writeln!(toml, "# - {line}").expect("writing to a string cannot fail");
        }
        Imported { toml, not_applicable }
    }
}

fn number(key: &str, value: &Value) -> Result<u32, ImportError> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| wrong(key, value, "a whole number from 0 to 4294967295"))
}

fn wrong(key: &str, value: &Value, wanted: &'static str) -> ImportError {
    let value: String = value.to_string().chars().take(60).collect();
    ImportError::Value { key: key.to_owned(), value, wanted }
}

/// Why a key does not apply, and what to use instead.
fn reason_of(key: &str) -> &'static str {
    match key {
        "watcherInterval" => "the file is watched, and read again when it changes",
        "server" => {
            "for an address of its own set dialects.pinchtab.listen; take its token over with `laneway token import`"
        }
        "observability" => "tasks are logged under laneway::dialects; see log.filter",
        "instances" | "multiInstance" | "profiles" | "browser" => {
            "browsers stay with PinchTab; name its servers in [instances] or with `laneway instances put`"
        }
        "security" => "addresses that callbacks may reach are webhooks.allow_hosts",
        _ => "Laneway has no such setting",
    }
}

#[cfg(test)]
mod tests {
    use super::{ImportError, import};

    #[test]
    fn defect_18_a_scheduler_section_becomes_toml_that_means_the_same() {
        let file = r#"{"server": {"port": "9867", "token": "hush"}, "scheduler": {"enabled": true, "strategy": "fair-fifo",
            "maxQueueSize": 5, "maxPerAgent": 3, "maxInflight": 2, "maxPerAgentInflight": 0, "resultTTLSec": 120,
            "workerCount": null, "maxBatchSize": 7, "watcherInterval": 30, "colour": "red"}}"#;
        let imported = import(file).expect("it is a configuration");
        for line in [
            "[dialects.pinchtab]",
            "enabled = true",
            "strategy = \"fair-fifo\"",
            "max_queue_size = 5",
            "max_per_agent = 3",
            "max_inflight = 2",
            "# scheduler.maxPerAgentInflight is 0: the default holds",
            "result_ttl = \"120s\"",
            "# scheduler.workerCount is null: the default holds",
            "max_batch_size = 7",
        ] {
            assert!(imported.toml.lines().any(|other| other == line), "{line}\n{}", imported.toml);
        }
        let keys: Vec<&str> =
            imported.not_applicable.iter().filter_map(|line| Some(line.split_once(':')?.0)).collect();
        assert_eq!(keys, ["scheduler.colour", "scheduler.watcherInterval", "server"]);
        assert!(!imported.toml.contains("hush"), "a secret was shown: {}", imported.toml);
        let table = imported.toml.parse().expect("it is TOML");
        let schema = laneway_runtime::config::Schema::new(&[&super::super::SECTION], &[], &[]);
        let layers = laneway_runtime::config::Layers::read(&schema, None, [], table).expect("it can be read");
        let config = layers.resolve(&laneway_runtime::config::Overrides::none()).expect("it is good");
        let lane = &config.settings().lanes[&laneway_core::Name::fixed("pinchtab")];
        assert_eq!((lane.queued_max, lane.running_max, lane.running_per_agent_max), (5, 2, 10));
        assert_eq!((lane.retention.0, config.dialect("pinchtab").count("worker_count")), (120_000, 4));
    }

    #[test]
    fn defect_18_the_section_alone_is_taken_and_wrong_values_are_named() {
        assert!(
            import(r#"{"maxInflight": 4}"#).expect("the section alone").toml.contains("max_inflight = 4")
        );
        assert_eq!(import(r#"{"port": 1}"#), Err(ImportError::NoScheduler));
        let error = import(r#"{"scheduler": {"maxInflight": -1}}"#).unwrap_err().to_string();
        assert_eq!(error, "scheduler.maxInflight is -1; write a whole number from 0 to 4294967295");
        assert!(import("{").is_err() && import("[]").is_err() && import(r#"{"scheduler": 3}"#).is_err());
        assert!(import(r#"{"scheduler": {"enabled": "yes"}}"#).is_err());
    }
}
