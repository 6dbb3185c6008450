//! Dialects: the APIs of other systems, on their own paths and in their own formats, so that their clients work
//! unchanged.
//!
//! A dialect translates requests into commands of the scheduler, and its answers into responses; it holds no
//! state and no policy of its own. The configuration lists the dialects with their prefixes and addresses; the
//! gate in front of `Dialect::routes` authenticates callers. `docs/compat/` documents the translations.

pub mod agent_turn;
pub mod astraflow;
mod body;
pub mod browser_manager;
pub mod goclaw;
mod names;
pub mod outbound;
pub mod pinchtab;
pub mod synthia;

use laneway_runtime::config::DialectSection;

/// The section of every dialect, for the schema of the configuration.
pub const SECTIONS: [&DialectSection; 5] =
    [&pinchtab::SECTION, &goclaw::SECTION, &synthia::SECTION, &astraflow::SECTION, &browser_manager::SECTION];
