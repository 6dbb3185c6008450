//! Keys and their codes.

use serde_json::{Value, json};

/// A key with the modifiers that are held, such as `Control+Shift+K`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chord {
    modifiers: u32,
    key: Key,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    key: String,
    code: String,
    number: u32,
    text: Option<String>,
}

/// The names of modifiers, with their bit in DevTools.
const MODIFIERS: [(&str, u32); 6] =
    [("alt", 1), ("control", 2), ("ctrl", 2), ("meta", 4), ("command", 4), ("shift", 8)];

/// Keys with a name: as it is written, its code if that is another one, its number, its text.
const NAMED: [(&str, &str, u32, &str); 24] = [
    ("Enter", "", 13, "\r"),
    ("Tab", "", 9, ""),
    ("Escape", "", 27, ""),
    ("Backspace", "", 8, ""),
    ("Delete", "", 46, ""),
    ("Insert", "", 45, ""),
    ("Space", "", 32, " "),
    ("ArrowUp", "", 38, ""),
    ("ArrowDown", "", 40, ""),
    ("ArrowLeft", "", 37, ""),
    ("ArrowRight", "", 39, ""),
    ("Home", "", 36, ""),
    ("End", "", 35, ""),
    ("PageUp", "", 33, ""),
    ("PageDown", "", 34, ""),
    ("Shift", "ShiftLeft", 16, ""),
    ("Control", "ControlLeft", 17, ""),
    ("Alt", "AltLeft", 18, ""),
    ("Meta", "MetaLeft", 91, ""),
    ("F1", "", 112, ""),
    ("F2", "", 113, ""),
    ("F5", "", 116, ""),
    ("F11", "", 122, ""),
    ("F12", "", 123, ""),
];

impl Chord {
    /// Reads `Enter`, `a` or `Control+A`.
    pub(crate) fn parse(text: &str) -> Result<Chord, String> {
        let unknown = |part: &str| {
            format!(
                "{part:?} is not known; give one letter or a name such as Enter, Tab, ArrowDown or Control+A"
            )
        };
        // A plus sign at the end is the key itself.
        let (held, last) = match text.strip_suffix("++").map(|held| (held, "+")) {
            Some(parts) => parts,
            None => text.rsplit_once('+').filter(|(_, last)| !last.is_empty()).unwrap_or(("", text)),
        };
        let mut modifiers = 0;
        for part in held.split('+').filter(|part| !part.is_empty()) {
            let found = MODIFIERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(part));
            modifiers |= found.ok_or_else(|| unknown(part))?.1;
        }
        let mut key = Key::named(last).or_else(|| Key::letter(last)).ok_or_else(|| unknown(last))?;
        if modifiers & !8 != 0 {
            // With Control, Alt or Meta a key is a command and no text.
            key.text = None;
        }
        Ok(Chord { modifiers, key, name: text.to_owned() })
    }

    /// As it was written.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The parameters of `Input.dispatchKeyEvent`.
    pub(crate) fn event(&self, is_down: bool) -> Value {
        self.key.event(is_down, self.modifiers)
    }
}

impl Key {
    fn named(name: &str) -> Option<Key> {
        let (key, code, number, text) = NAMED.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))?;
        let text = (!text.is_empty()).then(|| (*text).to_owned());
        Some(Key {
            key: if *key == "Space" { " ".to_owned() } else { (*key).to_owned() },
            code: if code.is_empty() { (*key).to_owned() } else { (*code).to_owned() },
            number: *number,
            text,
        })
    }

    /// The key of one letter, if it has one.
    fn letter(text: &str) -> Option<Key> {
        let mut letters = text.chars();
        let letter = letters.next().filter(|letter| letters.next().is_none() && !letter.is_control())?;
        let (code, number) = match letter {
            'a'..='z' | 'A'..='Z' => {
                (format!("Key{}", letter.to_ascii_uppercase()), u32::from(letter.to_ascii_uppercase()))
            }
            '0'..='9' => (format!("Digit{letter}"), u32::from(letter)),
            ' ' => ("Space".to_owned(), 32),
            _ => (String::new(), 0),
        };
        Some(Key { key: letter.to_string(), code, number, text: Some(letter.to_string()) })
    }

    fn event(&self, is_down: bool, modifiers: u32) -> Value {
        let kind = match (is_down, &self.text) {
            (true, Some(_)) => "keyDown",
            (true, None) => "rawKeyDown",
            (false, _) => "keyUp",
        };
        let mut event = json!({
            "type": kind, "modifiers": modifiers, "key": self.key, "code": self.code,
            "windowsVirtualKeyCode": self.number, "nativeVirtualKeyCode": self.number,
        });
        if is_down && let Some(text) = &self.text {
            event["text"] = text.as_str().into();
            event["unmodifiedText"] = text.as_str().into();
        }
        event
    }
}

/// How a letter of a text is typed.
pub(crate) enum Stroke {
    /// Down and up, as on a keyboard.
    Events(Value, Value),
    /// No usual keyboard has it, so it is inserted.
    Insert(String),
}

/// The strokes that type a text.
pub(crate) fn strokes(text: &str) -> impl Iterator<Item = Stroke> + '_ {
    text.chars().map(|letter| {
        let key = match letter {
            '\n' | '\r' => Key::named("Enter"),
            '\t' => Key::named("Tab"),
            ' '..='~' => Key::letter(letter.encode_utf8(&mut [0; 4])),
            _ => None,
        };
        match key {
            Some(key) => {
                let shift = if letter.is_ascii_uppercase() { 8 } else { 0 };
                Stroke::Events(key.event(true, shift), key.event(false, shift))
            }
            None => Stroke::Insert(letter.to_string()),
        }
    })
}
