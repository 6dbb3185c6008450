//! Converts the session of a job.

use laneway_core::job::session::{ChatSettings, SESSION_DEBOUNCE_MAX, SESSION_DEBOUNCE_TOTAL_MAX};
use laneway_core::{DropPolicy, Name, Session, SessionMode, Span};
use laneway_runtime::config::format_span;
use laneway_wire::{SessionObject, SessionRequest};

use super::{count, optional, span, time};
use crate::error::ApiError;

/// A session's name. It may contain any printable characters, because chat systems build it from theirs:
/// `agent:a7:mail/jo@example.org`.
pub fn session_key(field: &str, text: &str) -> Result<Name, ApiError> {
    Name::new(text).map_err(|error| ApiError::field(field, error))
}

/// Converts the session of a job.
pub(super) fn session(request: &SessionRequest<'_>, chat: &ChatSettings) -> Result<Session, ApiError> {
    match request {
        SessionRequest::Key(key) => Ok(Session::new(session_key("session", key)?)),
        SessionRequest::Object(object) => session_object(object, chat),
    }
}

fn session_object(object: &SessionObject<'_>, chat: &ChatSettings) -> Result<Session, ApiError> {
    let SessionObject {
        key,
        chat: is_chat,
        mode,
        cap,
        drop,
        debounce,
        debounce_max,
        max_concurrent,
        sent_at,
    } = object;
    let key = session_key("session.key", key)?;
    let session = if is_chat.unwrap_or(false) { chat.session(key) } else { Session::new(key) };
    let mode = match mode.as_deref() {
        None => session.mode,
        Some(text) => SessionMode::parse(text).ok_or_else(|| {
            ApiError::field("session.mode", one_of(SessionMode::ALL.map(SessionMode::as_str).as_slice()))
        })?,
    };
    let drop = match drop.as_deref() {
        None => session.drop,
        Some(text) => DropPolicy::parse(text).ok_or_else(|| {
            ApiError::field("session.drop", one_of(DropPolicy::ALL.map(DropPolicy::as_str).as_slice()))
        })?,
    };
    let debounce = optional("session.debounce", debounce, span)?.or(session.debounce);
    let debounce_max = optional("session.debounce_max", debounce_max, span)?;
    check_debounce(debounce, debounce_max)?;
    Ok(Session {
        mode,
        drop,
        cap: cap.map(|cap| count("session.cap", cap, 0)).transpose()?.or(session.cap),
        debounce,
        debounce_max,
        max_concurrent: count("session.max_concurrent", max_concurrent.unwrap_or(session.max_concurrent), 1)?,
        sent_at: optional("session.sent_at", sent_at, time)?,
        ..session
    })
}

/// Checks the debounce window, and that the longest wait is not shorter.
fn check_debounce(debounce: Option<Span>, debounce_max: Option<Span>) -> Result<(), ApiError> {
    let too_long = |field: &str, most: Span| {
        Err(ApiError::field(field, format!("is longer than {}; use less", format_span(most))))
    };
    if debounce.is_some_and(|window| window > SESSION_DEBOUNCE_MAX) {
        return too_long("session.debounce", SESSION_DEBOUNCE_MAX);
    }
    let Some(most) = debounce_max else { return Ok(()) };
    if most > SESSION_DEBOUNCE_TOTAL_MAX {
        return too_long("session.debounce_max", SESSION_DEBOUNCE_TOTAL_MAX);
    }
    match debounce {
        None => Err(ApiError::field("session.debounce_max", "requires session.debounce")),
        Some(window) if most < window || most == Span(0) => Err(ApiError::field(
            "session.debounce_max",
            "must not be shorter than session.debounce, nor zero",
        )),
        Some(_) => Ok(()),
    }
}

/// The remedy for a value outside a vocabulary.
pub(super) fn one_of(names: &[&str]) -> String {
    format!("must be one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use laneway_core::Wall;

    use super::*;

    fn read(text: &str) -> Result<Session, ApiError> {
        session(&serde_json::from_str(text).unwrap(), &ChatSettings::default())
    }

    #[test]
    fn reads_every_field() {
        let session = read(
            r#"{"key":"agent:a7:mail/jo@example.org","mode":"interrupt","cap":10,"drop":"new","debounce":"800ms",
            "debounce_max":"5s","max_concurrent":3,"sent_at":"2030-01-01T08:00:00Z"}"#,
        )
        .unwrap();
        let expected = Session {
            key: Name::fixed("agent:a7:mail/jo@example.org"),
            max_concurrent: 3,
            mode: SessionMode::Interrupt,
            cap: Some(10),
            drop: DropPolicy::New,
            debounce: Some(Span(800)),
            debounce_max: Some(Span(5_000)),
            sent_at: Some(Wall(1_893_484_800_000)),
        };
        assert_eq!(session, expected);
        assert_eq!(read(r#""a""#).unwrap(), Session::new(Name::fixed("a")));
        assert_eq!(read(r#"{"key":"a","debounce":"0s"}"#).unwrap().debounce, Some(Span(0)));
        assert_eq!(read(r#"{"key":"a","cap":0}"#).unwrap().cap, Some(0), "defect 18: a cap of 0 is a cap");
    }

    #[test]
    fn defect_17_a_chat_session_takes_absent_fields_from_the_settings() {
        let settings = ChatSettings { cap: 3, mode: SessionMode::Interrupt, ..ChatSettings::default() };
        let read = |text: &str| session(&serde_json::from_str(text).unwrap(), &settings).unwrap();
        assert_eq!(read(r#"{"key":"a","chat":true}"#), settings.session(Name::fixed("a")));
        let own =
            read(r#"{"key":"a","chat":true,"mode":"queue","cap":5,"debounce":"0s","max_concurrent":2}"#);
        assert_eq!((own.mode, own.cap, own.max_concurrent), (SessionMode::Queue, Some(5), 2));
        assert_eq!((own.debounce, own.drop), (Some(Span(0)), DropPolicy::Old));
        assert_eq!(read(r#"{"key":"a"}"#), Session::new(Name::fixed("a")), "other sessions have no settings");
    }

    #[test]
    fn errors_name_the_wrong_field() {
        let long = "x".repeat(129);
        for (text, field) in [
            (r#""""#.to_owned(), "session"),
            (format!("\"{long}\""), "session"),
            (r#"" a""#.to_owned(), "session"),
            (format!(r#"{{"key":"{long}"}}"#), "session.key"),
            (r#"{"key":"a","mode":"collect"}"#.to_owned(), "session.mode"),
            (r#"{"key":"a","mode":"Queue"}"#.to_owned(), "session.mode"),
            (r#"{"key":"a","drop":"oldest"}"#.to_owned(), "session.drop"),
            (r#"{"key":"a","cap":10001}"#.to_owned(), "session.cap"),
            (r#"{"key":"a","max_concurrent":0}"#.to_owned(), "session.max_concurrent"),
            (r#"{"key":"a","max_concurrent":10001}"#.to_owned(), "session.max_concurrent"),
            (r#"{"key":"a","debounce":"800"}"#.to_owned(), "session.debounce"),
            (r#"{"key":"a","debounce":"11m"}"#.to_owned(), "session.debounce"),
            (r#"{"key":"a","debounce_max":"1s"}"#.to_owned(), "session.debounce_max"),
            (r#"{"key":"a","debounce":"2s","debounce_max":"1s"}"#.to_owned(), "session.debounce_max"),
            (r#"{"key":"a","debounce":"0s","debounce_max":"0s"}"#.to_owned(), "session.debounce_max"),
            (r#"{"key":"a","debounce":"2s","debounce_max":"61m"}"#.to_owned(), "session.debounce_max"),
            (r#"{"key":"a","sent_at":"now"}"#.to_owned(), "session.sent_at"),
        ] {
            let error = read(&text).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{text}: {}", error.detail);
        }
    }
}
