//! Reads server-sent events from a response, one by one.

use anyhow::bail;
use reqwest::Response;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its type; empty for the default type.
    pub event: String,
    /// Its number, if it has one.
    pub id: Option<u64>,
    /// Its data.
    pub data: String,
}

/// A stream of events.
pub struct Messages {
    response: Response,
    buffer: Vec<u8>,
}

/// Longest event in bytes: far above what a server sends, and harmless.
const MESSAGE_LEN_MAX: usize = 1 << 20;

impl Messages {
    /// The events of a response.
    pub fn new(response: Response) -> Messages {
        Messages { response, buffer: Vec::new() }
    }

    /// The next event; `None` when the server has closed the stream.
    pub async fn next(&mut self) -> anyhow::Result<Option<Message>> {
        loop {
            if let Some(message) = take_message(&mut self.buffer) {
                return Ok(Some(message));
            }
            if self.buffer.len() > MESSAGE_LEN_MAX {
                bail!("the server sent an event of more than 1 MiB");
            }
            match self.response.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}

/// Takes the first complete event with data out of the buffer. Comments (keep-alives) are skipped.
fn take_message(buffer: &mut Vec<u8>) -> Option<Message> {
    loop {
        let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = buffer.drain(..end + 2).collect();
        let message = parse_block(&String::from_utf8_lossy(&block));
        if !message.data.is_empty() {
            return Some(message);
        }
    }
}

fn parse_block(block: &str) -> Message {
    let mut message = Message::default();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => message.event = value.to_owned(),
            "id" => message.id = value.parse().ok(),
            "data" if message.data.is_empty() => message.data = value.to_owned(),
            "data" => message.data.extend(["\n", value]),
            _ => {}
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_and_in_order() {
        let mut buffer =
            b": hello\n\nid: 7\nevent: job.started\ndata: {\"a\":1}\n\ndata: x\ndata: y\n\nid: 9\nda"
                .to_vec();
        let first = take_message(&mut buffer).unwrap();
        assert_eq!(first, Message { event: "job.started".into(), id: Some(7), data: "{\"a\":1}".into() });
        assert_eq!(take_message(&mut buffer).unwrap().data, "x\ny");
        assert_eq!(take_message(&mut buffer), None);
        assert_eq!(buffer, b"id: 9\nda");
    }
}
