//! Dialects: the APIs of other systems, on their own paths and in their own formats, so that their clients work
//! unchanged.
//!
//! A dialect translates requests into commands of the scheduler, and its answers into responses; it holds no
//! state and no policy of its own. The configuration lists the dialects with their prefixes and addresses; the
//! gate in front of `Dialect::routes` authenticates callers. `docs/compat/` documents the translations.

pub mod astraflow;
mod body;
pub mod goclaw;
mod names;
pub mod pinchtab;
pub mod synthia;
