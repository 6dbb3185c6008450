//! Tells which mutant is on: the one that LANEWAY_MUTANT names. It is part of the mutated copy only, as `mutant.rs` of
//! laneway-core.

use std::sync::OnceLock;

static NAME: OnceLock<Option<String>> = OnceLock::new();

/// True when this mutant is on.
pub fn on(mutant: &str) -> bool {
    NAME.get_or_init(|| std::env::var("LANEWAY_MUTANT").ok()).as_deref() == Some(mutant)
}
