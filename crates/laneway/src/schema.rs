//! The schema of the configuration: the native sections, the dialects, the browsers, and the instances of browser tabs.

use std::sync::{Arc, LazyLock};

use laneway_browser::{BROWSERS, INSTANCES};
use laneway_runtime::config::Schema;

static SCHEMA: LazyLock<Arc<Schema>> =
    LazyLock::new(|| Schema::new(&laneway_compat::SECTIONS, &[&INSTANCES], &[&BROWSERS]));

/// Every section that the configuration may have, with its defaults.
pub fn config_schema() -> &'static Arc<Schema> {
    &SCHEMA
}
