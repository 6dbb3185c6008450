//! The section `[dashboard]` of the configuration. The dashboard itself is the crate `laneway-dashboard`; the program mounts it.

use std::sync::Arc;

use laneway_runtime::config::{Config, EntryValue, FixedSection, Section, SectionEntry};

/// The section, for the schema of the configuration.
pub static DASHBOARD: FixedSection =
    FixedSection { name: NAME, defaults: include_str!("../dashboard.default.toml"), read, lanes: &[] };

/// The name of the section.
const NAME: &str = "dashboard";
/// First parts of paths that belong to the API and its dialects.
const TAKEN: [&str; 9] =
    ["v1", "ws", "livez", "readyz", "health", "metrics", "openapi.json", "api", "assets"];

/// The values of the section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardSettings {
    /// True: the server has a dashboard.
    pub enabled: bool,
    /// Its path.
    pub prefix: String,
}

impl DashboardSettings {
    /// The values of a configuration with the schema of this crate.
    pub fn of(config: &Config) -> Option<&DashboardSettings> {
        config.section(NAME)
    }
}

impl SectionEntry for DashboardSettings {
    fn values(&self) -> Vec<(&'static str, EntryValue)> {
        let DashboardSettings { enabled, prefix } = self;
        vec![
            ("enabled", EntryValue::Plain((*enabled).into())),
            ("prefix", EntryValue::Plain(prefix.as_str().into())),
        ]
    }
}

fn read(section: &Section<'_>) -> Arc<dyn SectionEntry> {
    let prefix = section.text("prefix");
    if !is_prefix(&prefix) {
        let message = format!(
            "is {prefix:?}; write a path of letters, digits, - and _ that the API does not use, such as \"/ui\""
        );
        section.problem("prefix", message);
    }
    Arc::new(DashboardSettings { enabled: section.flag("enabled"), prefix })
}

/// True for a path such as `/ui` or `/tools/laneway`.
fn is_prefix(text: &str) -> bool {
    let Some(path) = text.strip_prefix('/') else { return false };
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    path.len() <= 100
        && path.split('/').all(is_part)
        && !TAKEN.iter().any(|taken| path.split('/').next() == Some(*taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_a_plain_path_beside_the_api() {
        for good in ["/ui", "/tools/laneway-1", "/x_y"] {
            assert!(is_prefix(good), "{good}");
        }
        for bad in ["", "/", "ui", "/ui/", "/v1", "/v1/ui", "/a b", "/{x}", "//x", "/metrics"] {
            assert!(!is_prefix(bad), "{bad}");
        }
    }
}
