//! Writes protobuf: the few wire types that OTLP uses.
//!
//! OTLP is stable and small, and this file is all that its messages need. A field that has its default is left out, as the
//! encoding asks.

/// The wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// A message that is being written.
#[derive(Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The encoded message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A number. Also a boolean (1) and a value of an enum.
    pub(super) fn uint(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.tag(field, VARINT);
            self.varint(value);
        }
    }

    /// A number that is written even when it is 0: the value of a `oneof`.
    pub(super) fn int_set(&mut self, field: u64, value: i64) {
        self.tag(field, VARINT);
        self.varint(value.cast_unsigned());
    }

    /// Four bytes.
    pub(super) fn fixed32(&mut self, field: u64, value: u32) {
        if value != 0 {
            self.tag(field, FIXED32);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Eight bytes.
    pub(super) fn fixed64(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.tag(field, FIXED64);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// A floating-point number that is written even when it is 0.
    pub(super) fn double_set(&mut self, field: u64, value: f64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A text.
    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A text that is written even when it is empty.
    pub(super) fn text_set(&mut self, field: u64, text: &str) {
        self.length_delimited(field, text.as_bytes());
    }

    /// Bytes.
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.length_delimited(field, bytes);
        }
    }

    /// A list of numbers of eight bytes.
    pub(super) fn packed(&mut self, field: u64, values: impl Iterator<Item = [u8; 8]>) {
        let values: Vec<u8> = values.flatten().collect();
        self.bytes(field, &values);
    }

    /// A message inside of this one.
    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.length_delimited(field, &inner.bytes);
    }

    fn length_delimited(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// The first value of a field with a number or with bytes. `None`: it is absent, or the message is not protobuf.
pub(super) fn find(message: &[u8], wanted: u64) -> Option<Found<'_>> {
    let mut rest = message;
    while !rest.is_empty() {
        let tag = take_varint(&mut rest)?;
        let found = match tag & 7 {
            VARINT => Found::Number(take_varint(&mut rest)?),
            FIXED64 => Found::Bytes(take(&mut rest, 8)?),
            LENGTH => {
                let len = usize::try_from(take_varint(&mut rest)?).ok()?;
                Found::Bytes(take(&mut rest, len)?)
            }
            FIXED32 => Found::Bytes(take(&mut rest, 4)?),
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(found);
        }
    }
    None
}

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *take(rest, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the encoding's own documentation.
    #[test]
    fn messages_are_encoded_as_documented() {
        let mut message = Message::default();
        message.uint(1, 150);
        assert_eq!(message.into_bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.text(2, "testing");
        assert_eq!(message.into_bytes(), [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let mut message = Message::default();
        message.message(3, |inner| inner.uint(1, 150));
        assert_eq!(message.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.int_set(1, -2);
        assert_eq!(message.into_bytes(), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        let mut defaults = Message::default();
        defaults.uint(1, 0);
        defaults.fixed32(2, 0);
        defaults.fixed64(3, 0);
        defaults.text(4, "");
        assert!(defaults.into_bytes().is_empty());
    }

    #[test]
    fn a_field_is_found_and_broken_messages_are_not_read() {
        let mut message = Message::default();
        message.fixed64(9, 7);
        message.fixed32(10, 7);
        message.message(1, |inner| {
            inner.uint(1, 3);
            inner.text(2, "too old");
        });
        let bytes = message.into_bytes();
        let Some(Found::Bytes(inner)) = find(&bytes, 1) else { panic!("{bytes:?}") };
        assert_eq!(find(inner, 1), Some(Found::Number(3)));
        assert_eq!(find(inner, 2), Some(Found::Bytes(b"too old")));
        assert_eq!(find(inner, 3), None);
        for broken in [&bytes[..bytes.len() - 1], &[0x0b], &[0x08], &[0x08; 1], &[0xff; 12]] {
            assert_eq!(find(broken, 7), None, "{broken:?}");
        }
    }
}
