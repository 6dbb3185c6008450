//! Merges messages that arrive quickly into one.

use std::time::Duration;

use serde_json::{Map, Value};

use super::run::Message;

/// The default debounce window of a message with media: pictures arrive one by one.
pub const MEDIA_WINDOW: Duration = Duration::from_millis(1_000);
/// The metadata key of a message's id.
const MESSAGE_ID: &str = "message_id";
/// The metadata key of the ids of merged messages.
const MERGED_IDS: &str = "merged_message_ids";

/// The merged message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// The contents, one line each; empty contents leave no line.
    pub content: String,
    /// The media, in order.
    pub media: Vec<String>,
    /// The metadata of the last message; with more than one, `merged_message_ids` lists all ids.
    pub metadata: Map<String, Value>,
}

/// Merges messages. A single message stays as it is.
pub fn merge_texts(messages: &[Message]) -> Merged {
    let Some(last) = messages.last() else { return Merged::default() };
    let contents =
        messages.iter().map(|message| message.content.as_str()).filter(|content| !content.is_empty());
    let mut merged = Merged {
        content: contents.collect::<Vec<_>>().join("\n"),
        media: messages.iter().flat_map(|message| message.media.iter().cloned()).collect(),
        metadata: last.metadata.clone(),
    };
    if messages.len() > 1 {
        let ids = ids_of(messages);
        if !ids.is_empty() {
            merged.metadata.insert(MERGED_IDS.to_owned(), ids.join(",").into());
        }
    }
    merged
}

/// The debounce window of a message. A message with media waits a second unless a window is set, except messages
/// of the gateway itself (`system:…`, `subagent:…`).
pub fn inbound_window(configured: Duration, sender: &str, has_media: bool) -> Duration {
    let is_internal = sender.starts_with("system:") || sender.starts_with("subagent:");
    if configured.is_zero() && has_media && !is_internal { MEDIA_WINDOW } else { configured }
}

/// The ids of all messages, including those of messages that were merged before, each once.
fn ids_of(messages: &[Message]) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for message in messages {
        for key in [MESSAGE_ID, MERGED_IDS] {
            let text = match message.metadata.get(key) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => continue,
            };
            for id in text.split(',').filter(|id| !id.is_empty()) {
                if !ids.iter().any(|known| known == id) {
                    ids.push(id.to_owned());
                }
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(content: &str, media: &[&str], metadata: Value) -> Message {
        let Value::Object(metadata) = metadata else { panic!("metadata are an object") };
        Message {
            content: content.to_owned(),
            media: media.iter().map(|media| (*media).to_owned()).collect(),
            metadata,
            context: super::super::Context::default(),
            run_id: None,
            trace_id: None,
            user: None,
        }
    }

    #[test]
    fn gc_d1_texts_become_lines_and_the_last_one_gives_the_rest() {
        let merged = merge_texts(&[
            message("one", &[], json!({"thread": "a"})),
            message("", &[], json!({})),
            message("two", &[], json!({"thread": "b"})),
        ]);
        assert_eq!(merged.content, "one\ntwo");
        assert_eq!(merged.metadata, *json!({"thread": "b"}).as_object().unwrap());
    }

    #[test]
    fn gc_d5_to_d8_media_and_texts_keep_their_order() {
        let merged = merge_texts(&[
            message("look", &["1.png"], json!({})),
            message("", &["2.png", "3.png"], json!({})),
            message("nice?", &[], json!({})),
        ]);
        assert_eq!((merged.content.as_str(), merged.media.len()), ("look\nnice?", 3));
        assert_eq!(merged.media, ["1.png", "2.png", "3.png"]);
        let alone = message("x", &["1.png"], json!({"message_id": "7"}));
        let merged = merge_texts(std::slice::from_ref(&alone));
        assert_eq!(
            (merged.content, merged.media, merged.metadata),
            (alone.content, alone.media, alone.metadata)
        );
    }

    #[test]
    fn gc_d10_merged_ids_name_every_message_once() {
        let merged = merge_texts(&[
            message("a", &[], json!({"message_id": "1"})),
            message("b", &[], json!({"message_id": 2, "merged_message_ids": "1,5"})),
            message("c", &[], json!({"message_id": "3"})),
        ]);
        assert_eq!(merged.metadata["merged_message_ids"], json!("1,2,5,3"));
        let merged = merge_texts(&[message("a", &[], json!({})), message("b", &[], json!({}))]);
        assert_eq!(merged.metadata.get("merged_message_ids"), None);
        assert_eq!(merge_texts(&[]), Merged::default());
    }

    #[test]
    fn gc_d11_media_wait_a_second_where_nothing_is_set() {
        let ms = Duration::from_millis;
        for (configured, sender, has_media, window) in [
            (0, "user:1", false, 0),
            (0, "user:1", true, 1_000),
            (500, "user:1", true, 500),
            (2_000, "user:1", true, 2_000),
            (0, "system:escalation", true, 0),
            (0, "subagent:7", true, 0),
            (0, "systemic", true, 1_000),
        ] {
            assert_eq!(
                inbound_window(ms(configured), sender, has_media),
                ms(window),
                "{sender} {configured}"
            );
        }
    }
}
