//! The small values that frames consist of: non-empty texts, times, JSON objects, bounded lists and tables.
//!
//! A value that exists is valid. `schema.rs` has the JSON Schema of each type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::Object;

/// The largest number of characters of a [`Text`]: names and ids, not prose.
pub const TEXT_LEN_MAX: usize = 1_024;

/// A name or an id: at least one character, at most [`TEXT_LEN_MAX`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

/// Why a string is no [`Text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// The string is empty.
    #[error("must not be empty")]
    Empty,
    /// The string is too long.
    #[error("has more than {TEXT_LEN_MAX} characters")]
    TooLong,
}

impl Text {
    /// Checks a string.
    pub fn new(text: impl Into<String>) -> Result<Text, TextError> {
        let text = text.into();
        if text.is_empty() {
            return Err(TextError::Empty);
        }
        // Bytes first: most texts are short, and counting characters takes longer.
        if text.len() > TEXT_LEN_MAX && text.chars().count() > TEXT_LEN_MAX {
            return Err(TextError::TooLong);
        }
        Ok(Text(text))
    }

    /// A constant. Panics when it is no [`Text`].
    pub fn fixed(text: &str) -> Text {
        Text::new(text).expect("a constant text is valid")
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Text {
    type Error = TextError;
    fn try_from(text: String) -> Result<Text, TextError> {
        Text::new(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        Text::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A time with an offset from UTC (RFC 3339). It is written in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub jiff::Timestamp);

impl Timestamp {
    /// The current time of the wall clock.
    pub fn now() -> Timestamp {
        Timestamp(jiff::Timestamp::now())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let parsed = text.parse().map_err(|_| {
            D::Error::custom("is no time with an offset (RFC 3339, such as 2030-01-01T08:00:00Z)")
        })?;
        Ok(Timestamp(parsed))
    }
}

/// Any JSON object, kept byte for byte.
#[derive(Clone)]
pub struct JsonObject(Box<RawValue>);

impl JsonObject {
    /// `{}`.
    pub fn empty() -> JsonObject {
        JsonObject::of(&serde_json::Map::new()).expect("an empty map is an object")
    }

    /// Serializes `value`; an error when the result is not an object.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<JsonObject, serde_json::Error> {
        JsonObject::from_raw(serde_json::value::to_raw_value(value)?)
    }

    /// Takes valid JSON; an error when it is not an object.
    pub fn from_raw(raw: Box<RawValue>) -> Result<JsonObject, serde_json::Error> {
        if raw.get().trim_start().starts_with('{') {
            Ok(JsonObject(raw))
        } else {
            Err(serde_json::Error::custom("is not an object"))
        }
    }

    /// The JSON text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Deserializes it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }
}

impl Default for JsonObject {
    fn default() -> JsonObject {
        JsonObject::empty()
    }
}

impl PartialEq for JsonObject {
    fn eq(&self, other: &JsonObject) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonObject, D::Error> {
        JsonObject::from_raw(Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A list of at least `MIN` and at most `MAX` items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List<T, const MIN: usize, const MAX: usize>(Vec<T>);

/// A list with too few or too many items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("has {len} items; {min} to {max} are allowed")]
pub struct LenError {
    /// The number of items.
    pub len: usize,
    /// The smallest number of items.
    pub min: usize,
    /// The largest number of items.
    pub max: usize,
}

impl<T, const MIN: usize, const MAX: usize> List<T, MIN, MAX> {
    /// A list, if its length is valid.
    pub fn new(items: Vec<T>) -> Result<Self, LenError> {
        if (MIN..=MAX).contains(&items.len()) {
            Ok(List(items))
        } else {
            Err(LenError { len: items.len(), min: MIN, max: MAX })
        }
    }

    /// The items.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MAX: usize> Default for List<T, 0, MAX> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T, const MIN: usize, const MAX: usize> Deref for List<T, MIN, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Deserialize<'de> for List<T, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        List::new(Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// For lists of objects.
pub(crate) fn objects<'de, T, D, const MIN: usize, const MAX: usize>(
    deserializer: D,
) -> Result<List<T, MIN, MAX>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    List::new(crate::object::list(deserializer)?).map_err(D::Error::custom)
}

/// For optional lists of objects that must not be `null`.
pub(crate) fn present_objects<'de, T, D, const MIN: usize, const MAX: usize>(
    deserializer: D,
) -> Result<Option<List<T, MIN, MAX>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    objects(deserializer).map(Some)
}

/// For fields with an object.
pub(crate) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// For optional fields with an object that must not be `null`.
pub(crate) fn present_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    object(deserializer).map(Some)
}

/// For optional fields that must not be `null`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A finite number that is not below zero.
pub(crate) fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number >= 0.0 { Ok(Some(number)) } else { Err(D::Error::custom("must not be below 0")) }
}

/// A number from 0 to 1.
pub(crate) fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&number) {
        Ok(Some(number))
    } else {
        Err(D::Error::custom("must be from 0 to 1"))
    }
}

/// Values by name, at most `MAX` of them, in the order of their names.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Table<V, const MAX: usize>(BTreeMap<Text, V>);

impl<V, const MAX: usize> Table<V, MAX> {
    /// A table, if it is not too long.
    pub fn new(entries: BTreeMap<Text, V>) -> Result<Self, LenError> {
        if entries.len() <= MAX {
            Ok(Table(entries))
        } else {
            Err(LenError { len: entries.len(), min: 0, max: MAX })
        }
    }
}

impl<V, const MAX: usize> Default for Table<V, MAX> {
    fn default() -> Self {
        Table(BTreeMap::new())
    }
}

impl<V, const MAX: usize> Deref for Table<V, MAX> {
    type Target = BTreeMap<Text, V>;
    fn deref(&self) -> &BTreeMap<Text, V> {
        &self.0
    }
}

impl<'de, V: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Table<V, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Table::new(BTreeMap::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Prose: a non-empty string.
pub(crate) fn prose<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Err(D::Error::custom(TextError::Empty)) } else { Ok(text) }
}

/// For ids that may be absent, `null` or empty. All three mean the same.
pub(crate) fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(text) if !text.is_empty() => Text::new(text).map(Some).map_err(D::Error::custom),
        _ => Ok(None),
    }
}

/// A secret: it can be sent and compared, and is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
