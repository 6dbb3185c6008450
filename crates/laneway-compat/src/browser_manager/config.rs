//! The section `[dialects.browser_manager]`.

use laneway_browser::kinds::SCRIPT_RUN;
use laneway_runtime::config::{DialectKey, DialectSection};

use super::settings::{SETTINGS, Setting};

/// The section, for the schema of the configuration. The lane and the limits belong to the section `[browsers]`; the setting keys
/// of the original are other names for them.
pub static SECTION: DialectSection = DialectSection {
    name: super::NAME,
    defaults: include_str!("config.default.toml"),
    keys: &[
        alias(&SETTINGS[0]),
        alias(&SETTINGS[1]),
        alias(&SETTINGS[2]),
        alias(&SETTINGS[3]),
        // As many scripts run at once as browsers may be open.
        DialectKey::Follower { key: &SETTINGS[1].key, to: &["kinds", SCRIPT_RUN, "running_max"] },
    ],
    jobs: &[],
    lane_variables: &[],
};

const fn alias(setting: &'static Setting) -> DialectKey {
    DialectKey::Alias { key: &setting.key, to: setting.to }
}
