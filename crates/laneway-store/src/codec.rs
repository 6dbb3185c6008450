//! The binary form of what a row keeps in one column (the rest of a job's spec, a failure, a batch of events), and of changes.
//!
//! Shared by every store that has rows or a log. Each form begins with a version byte, so that a later program can read older rows.
//! All numbers are variable-length (seven bits a byte, low ones first); signed ones are folded so that small ones stay
//! short. Reading checks every bound: damaged bytes give [`StoreError::Damaged`], never a panic or a huge allocation.
//! Writing takes structs apart completely, so that a new field does not compile until it is stored.

mod change;
mod events;
mod failure;
mod placement;
mod run;
mod spec;
mod template;

pub(crate) use change::{read_changes, write_changes};
pub(crate) use events::{EventReader, EventWriter};
pub(crate) use failure::{read_failure, write_failure};
pub(crate) use run::{RunRest, read_run, write_run};
pub(crate) use spec::{SpecColumns, read_spec, write_spec};
pub(crate) use template::{read_template, write_template};

use laneway_core::{Name, Wall};

use crate::StoreError;

/// Items of a list for which space is reserved before they are read. Longer lists grow, so a damaged length allocates little.
const LIST_RESERVED_MAX: usize = 1_024;

/// Makes a name of a stored text, so that equal names can share their text.
pub(crate) type Intern<'a> = dyn FnMut(&str) -> Result<Name, StoreError> + 'a;

/// Appends a number.
pub(crate) fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number.
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends a time.
fn put_wall(out: &mut Vec<u8>, time: Wall) {
    put_i64(out, time.0);
}

/// Appends an id.
fn put_u128(out: &mut Vec<u8>, id: u128) {
    out.extend_from_slice(&id.to_be_bytes());
}

/// Appends a name.
pub(crate) fn put_name(out: &mut Vec<u8>, name: &Name) {
    put_bytes(out, name.as_str().as_bytes());
}

/// Appends a list of names.
pub(crate) fn put_names(out: &mut Vec<u8>, names: &[Name]) {
    put_u64(out, names.len() as u64);
    for name in names {
        put_name(out, name);
    }
}

/// Appends bytes with their length before them.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads one form from its bytes, in order.
pub(crate) struct Input<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Begins to read; `what` names the form in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Input<'a> {
        Input { what, rest: bytes }
    }

    /// The error that says that these bytes are not what was written.
    pub fn damaged(&self, why: &str) -> StoreError {
        StoreError::Damaged(format!("{}: {why}", self.what))
    }

    /// Reads the version byte, which must be `version`.
    pub fn version(&mut self, version: u8) -> Result<(), StoreError> {
        match self.u8()? {
            found if found == version => Ok(()),
            found => {
                Err(self.damaged(&format!("its form has version {found}, this program reads {version}")))
            }
        }
    }

    /// Checks that everything has been read.
    pub fn end(&self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged("bytes are left over")) }
    }

    pub fn u8(&mut self) -> Result<u8, StoreError> {
        let (&first, rest) = self.rest.split_first().ok_or_else(|| self.damaged("bytes are missing"))?;
        self.rest = rest;
        Ok(first)
    }

    pub fn u64(&mut self) -> Result<u64, StoreError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number is too long"))
    }

    pub fn u16(&mut self) -> Result<u16, StoreError> {
        u16::try_from(self.u64()?).map_err(|_| self.damaged("a number is too large"))
    }

    pub fn u32(&mut self) -> Result<u32, StoreError> {
        u32::try_from(self.u64()?).map_err(|_| self.damaged("a number is too large"))
    }

    pub fn i64(&mut self) -> Result<i64, StoreError> {
        let folded = self.u64()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    pub fn u128(&mut self) -> Result<u128, StoreError> {
        self.array().map(u128::from_be_bytes)
    }

    pub fn wall(&mut self) -> Result<Wall, StoreError> {
        self.i64().map(Wall)
    }

    /// Reads flags, which must be among `all`.
    pub fn flags(&mut self, all: u8) -> Result<u8, StoreError> {
        match self.u8()? {
            flags if flags & !all == 0 => Ok(flags),
            _ => Err(self.damaged("it has parts that this program does not know")),
        }
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| self.damaged("bytes are missing"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.damaged("bytes are missing"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], StoreError> {
        let len = usize::try_from(self.u64()?).map_err(|_| self.damaged("a length is too large"))?;
        self.take(len)
    }

    pub fn text(&mut self) -> Result<&'a str, StoreError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("a text is not UTF-8"))
    }

    pub fn name(&mut self) -> Result<Name, StoreError> {
        let text = self.text()?;
        Name::new(text).map_err(|error| self.damaged(&format!("a name {error}")))
    }

    /// Reads a list: its length, then each item.
    pub fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let count = self.count()?;
        let mut items = Vec::with_capacity(count.min(LIST_RESERVED_MAX));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Reads the length of a list. No list has more items than bytes are left.
    pub fn count(&mut self) -> Result<usize, StoreError> {
        match usize::try_from(self.u64()?) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(self.damaged("a list is longer than its bytes")),
        }
    }
}

#[cfg(test)]
mod tests;
