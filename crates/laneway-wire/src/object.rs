//! Deserializers that accept an object only as an object.
//!
//! The derived `Deserialize` of a struct also accepts an array, with the fields in the order of their declaration. No
//! client means that, and a new field would change the meaning of such an array.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A `T` that must be a JSON object.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Shape<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Shape<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Shape(PhantomData))
    }
}

/// For required fields.
pub(crate) fn required<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// For fields of a patch, where `null` (the default again) differs from an absent field (no change).
pub(crate) fn nullable<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

/// For fields of a patch that are objects.
pub(crate) fn nullable_object<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    optional(deserializer).map(Some)
}

/// For optional fields.
pub(crate) fn optional<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(value)| value))
}

/// A list of at most `MAX` items. The reader stops at the first item too many, before it reads the rest.
pub struct UpTo<T, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for UpTo<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UpTo<T, MAX>, D::Error> {
        struct Shape<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Shape<T, MAX> {
            type Value = UpTo<T, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UpTo<T, MAX>, A::Error> {
                let mut list = Vec::new();
                while list.len() < MAX {
                    match items.next_element()? {
                        Some(item) => list.push(item),
                        None => return Ok(UpTo(list)),
                    }
                }
                match items.next_element::<IgnoredAny>()? {
                    Some(_) => {
                        Err(A::Error::custom(format_args!("has more than {MAX} items; give at most {MAX}")))
                    }
                    None => Ok(UpTo(list)),
                }
            }
        }
        deserializer.deserialize_seq(Shape(PhantomData))
    }
}

/// For lists of at most `MAX` items.
pub(crate) fn up_to<'de, T, D, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    UpTo::<T, MAX>::deserialize(deserializer).map(|UpTo(list)| list)
}

/// For lists of at most `MAX` objects.
pub(crate) fn list_up_to<'de, T, D, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let UpTo(objects) = UpTo::<Object<T>, MAX>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(value)| value).collect())
}

/// For lists of objects.
pub(crate) fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(value)| value).collect())
}
