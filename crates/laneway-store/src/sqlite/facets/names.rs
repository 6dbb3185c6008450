//! The numbers of names and words.

use std::collections::{HashMap, HashSet};

use laneway_core::Name;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Dimension, Facet};
use crate::StoreError;
use crate::search::words_of;
use crate::sqlite::row_sums::FACET_NAME;

/// Names and words whose numbers are kept in memory; beyond that they are begun anew. They come from clients, and have no bound.
const KEPT_MAX: usize = 100_000;

/// The numbers that the writer uses.
#[derive(Default)]
pub(super) struct Names {
    names: HashMap<(Dimension, Name), Known>,
    words: HashMap<Box<str>, Facet>,
    /// Numbers of new rows: their first set is counted already.
    fresh: HashSet<i64>,
}

/// A name that is known.
#[derive(Clone)]
struct Known {
    facet: Facet,
    /// The words of the name, where they can be searched for.
    words: std::sync::Arc<[Facet]>,
}

impl Names {
    /// Puts the facets of a name: its own, and those of its words.
    pub fn put(
        &mut self,
        conn: &Connection,
        dimension: Dimension,
        name: &Name,
        put: &mut dyn FnMut(Facet),
    ) -> Result<(), StoreError> {
        // A name is cheap to clone, and the key must own it.
        let key = (dimension, name.clone());
        let known = match self.names.get(&key) {
            Some(known) => known.clone(),
            None => {
                let known = self.learn(conn, dimension, name)?;
                if self.names.len() >= KEPT_MAX {
                    self.names.clear();
                }
                self.names.insert(key, known.clone());
                known
            }
        };
        put(known.facet);
        known.words.iter().for_each(|word| put(*word));
        Ok(())
    }

    fn learn(&mut self, conn: &Connection, dimension: Dimension, name: &Name) -> Result<Known, StoreError> {
        let facet = self.number(conn, dimension, name.as_str())?;
        let mut words = Vec::new();
        if matches!(dimension, Dimension::Kind | Dimension::Agent | Dimension::Tag) {
            let mut texts = Vec::new();
            words_of(name.as_str(), &mut |word| texts.push(Box::<str>::from(word)));
            for text in texts {
                words.push(self.word(conn, text)?);
            }
        }
        Ok(Known { facet, words: words.into() })
    }

    /// The facet of a word.
    pub fn word(&mut self, conn: &Connection, word: Box<str>) -> Result<Facet, StoreError> {
        if let Some(facet) = self.words.get(&word) {
            return Ok(*facet);
        }
        let facet = self.number(conn, Dimension::Word, &word)?;
        if self.words.len() >= KEPT_MAX {
            self.words.clear();
        }
        self.words.insert(word, facet);
        Ok(facet)
    }

    fn number(&mut self, conn: &Connection, dimension: Dimension, text: &str) -> Result<Facet, StoreError> {
        if let Some(facet) = find(conn, dimension, text)? {
            return Ok(facet);
        }
        let mut insert =
            conn.prepare_cached("INSERT INTO facet_name (dimension, text, chunks) VALUES (?1, ?2, 1)")?;
        let number = insert.insert(params![dimension as u8, text])?;
        self.fresh.insert(number);
        Ok(Facet::new(dimension, number))
    }

    /// A set of a name was created. True: the row of the name must count it.
    pub fn is_counted_later(&mut self, number: i64) -> bool {
        !self.fresh.remove(&number)
    }
}

/// The facet of a stored name or word.
pub(super) fn find(conn: &Connection, dimension: Dimension, text: &str) -> Result<Option<Facet>, StoreError> {
    let mut find = conn.prepare_cached(&format!(
        "SELECT number, {} FROM facet_name WHERE dimension = ?1 AND text = ?2",
        FACET_NAME.check
    ))?;
    let number: Option<i64> = find.query_row(params![dimension as u8, text], |row| row.get(0)).optional()?;
    Ok(number.map(|number| Facet::new(dimension, number)))
}

/// The facets of words that begin with `prefix`, at most `max`. `None`: there are more.
pub(super) fn find_words(
    conn: &Connection,
    prefix: &str,
    max: usize,
) -> Result<Option<Vec<Facet>>, StoreError> {
    let mut find = conn.prepare_cached(&format!(
        "SELECT number, {} FROM facet_name WHERE dimension = ?1 AND text >= ?2 AND text < ?3 LIMIT ?4",
        FACET_NAME.check
    ))?;
    // No word has this character: it is no letter and no digit.
    let end = format!("{prefix}\u{10ffff}");
    let limit = i64::try_from(max).unwrap_or(i64::MAX - 1) + 1;
    let mut rows = find.query(params![Dimension::Word as u8, prefix, end, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Facet::new(Dimension::Word, row.get(0)?));
    }
    Ok((found.len() <= max).then_some(found))
}
