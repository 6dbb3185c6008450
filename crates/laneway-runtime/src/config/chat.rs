//! Reads `[chat]`: what messages of a conversation ask of their session where they do not say.

use laneway_core::job::session::{ChatSettings, SESSION_DEBOUNCE_MAX};
use laneway_core::{DropPolicy, SessionMode, Span};

use super::section::Section;

/// Most messages of a session that may be allowed to wait, or to run at once: as in the API.
const COUNT_MAX: u32 = 10_000;

/// Reads `[chat]`.
pub(super) fn read(section: Section<'_>) -> ChatSettings {
    let chat = ChatSettings {
        mode: section.one_of("mode", &SessionMode::ALL.map(|mode| (mode.as_str(), mode))),
        cap: section.count("cap", 0..=COUNT_MAX),
        drop: section.one_of("drop", &DropPolicy::ALL.map(|drop| (drop.as_str(), drop))),
        debounce: section.span("debounce", Span(0)..=SESSION_DEBOUNCE_MAX),
        max_concurrent: section.count("max_concurrent", 1..=COUNT_MAX),
    };
    section.finish();
    chat
}
