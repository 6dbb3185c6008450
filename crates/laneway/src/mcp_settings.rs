//! The section `[mcp]` of the configuration. The protocol itself is the crate `laneway-mcp`; the program mounts it.

use std::sync::Arc;

use laneway_runtime::config::{Config, EntryValue, FixedSection, Section, SectionEntry};

/// The section, for the schema of the configuration.
pub static MCP: FixedSection =
    FixedSection { name: NAME, defaults: include_str!("../mcp.default.toml"), read, lanes: &[] };

/// The name of the section.
const NAME: &str = "mcp";

/// The values of the section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpSettings {
    /// True: the server has the path `/mcp`.
    pub enabled: bool,
}

impl McpSettings {
    /// The values of a configuration with the schema of this crate.
    pub fn of(config: &Config) -> Option<&McpSettings> {
        config.section(NAME)
    }
}

impl SectionEntry for McpSettings {
    fn values(&self) -> Vec<(&'static str, EntryValue)> {
        vec![("enabled", EntryValue::Plain(self.enabled.into()))]
    }
}

fn read(section: &Section<'_>) -> Arc<dyn SectionEntry> {
    Arc::new(McpSettings { enabled: section.flag("enabled") })
}
