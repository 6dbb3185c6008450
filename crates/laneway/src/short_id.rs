//! Short forms of ids: how tables show them, and how commands find the full id.

use crate::exit::{CliError, Exit};

/// How many digits of an id are shown where the whole id does not fit.
const SHOWN: usize = 8;
/// A shorter text would match too many ids.
const LEN_MIN: usize = 4;
/// A UUID in its hyphenated form.
const UUID_LEN: usize = 36;
/// How many ids an error about an ambiguous text lists.
const LISTED_MAX: usize = 5;

/// The short form of an id that ends in a UUID: its last eight digits, and the number of an artifact's id after
/// the dot. Any other id is its own short form.
pub fn short_id(id: &str) -> &str {
    let end = id.rfind('.').unwrap_or(id.len());
    let is_uuid = end.checked_sub(UUID_LEN).and_then(|start| id.get(start..end)).is_some_and(|uuid| {
        uuid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    });
    if is_uuid { &id[end - SHOWN..] } else { id }
}

/// True when `text` can be a part of an id.
pub fn is_plausible(text: &str) -> bool {
    text.len() >= LEN_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// True when `text` is a beginning or an end of `id`, with or without the prefix before its first underscore.
pub fn fits(id: &str, text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
    id.starts_with(&text) || bare.starts_with(&text) || id.ends_with(&text)
}

/// The error for a text that cannot be a part of an id.
pub fn implausible(what: &str, text: &str) -> CliError {
    let message =
        format!("{text:?} is not a {what} id; give the whole id, or at least {LEN_MIN} digits of it");
    CliError::new(Exit::NotFound, message)
}

/// The one id in `fitting`. The error names what was searched, or lists the matching ids.
pub fn only_one(what: &str, text: &str, fitting: &[String], looked_at: &str) -> Result<String, CliError> {
    match fitting {
        [only] => Ok(only.clone()),
        [] => {
            let message = format!("none of the {looked_at} has an id that begins or ends with {text}");
            Err(CliError::new(Exit::NotFound, message))
        }
        many => {
            let mut list: Vec<&str> = many.iter().take(LISTED_MAX).map(String::as_str).collect();
            if many.len() > LISTED_MAX {
                list.push("…");
            }
            let (count, list) = (many.len(), list.join("\n  "));
            let message =
                format!("{text} is ambiguous: it matches {count} {what}s; give more of the id:\n  {list}");
            Err(CliError::new(Exit::Usage, message))
        }
    }
}

/// The id that `text` stands for among a few known ids: an equal one, or the only match.
pub fn choose(what: &str, text: &str, ids: Vec<String>) -> Result<String, CliError> {
    if ids.iter().any(|id| id == text) {
        return Ok(text.to_owned());
    }
    if text.len() < LEN_MIN {
        return Err(implausible(what, text));
    }
    let looked_at = format!("{} {what}s", ids.len());
    let fitting: Vec<String> = ids.into_iter().filter(|id| fits(id, text)).collect();
    only_one(what, text, &fitting, &looked_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "01a1e107-0745-7000-8d3c-4aea73d31572";

    #[test]
    fn a_short_id_is_the_end_of_a_uuid() {
        assert_eq!(short_id(JOB), "73d31572");
        assert_eq!(short_id(&format!("run_{JOB}")), "73d31572");
        assert_eq!(short_id(&format!("{JOB}.12")), "73d31572.12");
        for other in
            ["", "desk", "a-worker-with-a-rather-long-name.example", "ü-1e107-0745-7000-8d3c-4aea73d31572"]
        {
            assert_eq!(short_id(other), other);
        }
    }

    #[test]
    fn a_beginning_or_an_end_fits() {
        let run = format!("run_{JOB}");
        for part in ["01a1e107", "73d31572", "73D31572", "run_01a1"] {
            assert!(fits(&run, part), "{part}");
        }
        assert!(!fits(&run, "0745"));
    }

    #[test]
    fn an_ambiguous_text_lists_what_fits() {
        let ids = vec![format!("{JOB}"), "01a1e107-0745-7000-8d3c-4aea00000000".to_owned()];
        assert_eq!(choose("token", "73d31572", ids.clone()).unwrap(), JOB);
        assert_eq!(choose("token", JOB, ids.clone()).unwrap(), JOB);
        let many = choose("token", "01a1", ids.clone()).unwrap_err();
        assert_eq!(many.exit, Exit::Usage);
        assert!(many.message.contains("it matches 2 tokens") && many.message.contains(JOB), "{many}");
        let none = choose("token", "ffff", ids.clone()).unwrap_err();
        assert_eq!(none.exit, Exit::NotFound);
        assert_eq!(choose("token", "1", ids).unwrap_err().exit, Exit::NotFound);
    }
}
