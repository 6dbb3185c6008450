//! The words after a verb: positions, flags and `option=value`. A word that no verb read is an error.

use std::collections::BTreeMap;

use super::AttemptRef;
use crate::{ConnectionId, Name, Now, Settings, Span};

/// The value, or what is wrong with the text.
pub(in super::super) type Parsed<T> = Result<T, String>;

/// What a step is relative to: `after=5s` counts from now, `lane main running=1` changes the settings.
#[derive(Clone, Copy)]
pub(in super::super) struct Context<'a> {
    pub(in super::super) now: Now,
    pub(in super::super) settings: &'a Settings,
}

/// The words that were not read yet.
pub(in super::super) struct Args<'a> {
    words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
    pub(super) context: Context<'a>,
}

impl<'a> Args<'a> {
    pub(super) fn new(text: &'a str, context: Context<'a>) -> Args<'a> {
        let (options, words): (Vec<&str>, Vec<&str>) =
            text.split_whitespace().partition(|word| word.contains('='));
        let options = options.into_iter().filter_map(|word| word.split_once('=')).collect();
        Args { words, options, context }
    }

    /// The next word without `=`.
    pub(super) fn word(&mut self, what: &str) -> Parsed<&'a str> {
        if self.words.is_empty() {
            return Err(format!("the {what} is missing"));
        }
        Ok(self.words.remove(0))
    }

    pub(super) fn text(&mut self, what: &str) -> Parsed<String> {
        self.word(what).map(str::to_owned)
    }

    pub(super) fn named(&mut self, what: &str) -> Parsed<Name> {
        name(self.word(what)?)
    }

    pub(super) fn attempt(&mut self) -> Parsed<AttemptRef> {
        AttemptRef::parse(self.word("attempt")?)
    }

    /// `c1`, `c2`, ….
    pub(super) fn connection(&mut self) -> Parsed<ConnectionId> {
        let word = self.word("connection")?;
        let digits = word.strip_prefix('c').ok_or_else(|| format!("{word:?} is not a connection"))?;
        Ok(ConnectionId(number(digits)?.into()))
    }

    /// True for the one word, false for the other.
    pub(super) fn choice(&mut self, what: &str, yes: &str, no: &str) -> Parsed<bool> {
        let word = self.word(what)?;
        if word != yes && word != no {
            return Err(format!("the {what} is {yes} or {no}, not {word:?}"));
        }
        Ok(word == yes)
    }

    /// True when the word is there.
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let found = self.words.iter().position(|other| *other == word);
        found.map(|at| self.words.remove(at)).is_some()
    }

    /// All words that are left.
    pub(super) fn rest(&mut self) -> Vec<String> {
        self.words.drain(..).map(str::to_owned).collect()
    }

    pub(super) fn option(&mut self, key: &str) -> Option<&'a str> {
        self.options.remove(key)
    }

    /// An option as `read` understands it.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&'a str) -> Parsed<T>,
    ) -> Parsed<Option<T>> {
        let value = self.option(key).map(read).transpose();
        value.map_err(|error| format!("{key}: {error}"))
    }

    pub(super) fn number(&mut self, key: &str) -> Parsed<Option<u32>> {
        self.read(key, number)
    }

    pub(super) fn span(&mut self, key: &str) -> Parsed<Option<Span>> {
        self.read(key, span)
    }

    pub(super) fn name(&mut self, key: &str) -> Parsed<Option<Name>> {
        self.read(key, name)
    }

    pub(super) fn name_or(&mut self, key: &str, default: &str) -> Parsed<Name> {
        self.name(key)?.map_or_else(|| name(default), Ok)
    }

    /// `a,b,c`; empty without the option.
    pub(super) fn names(&mut self, key: &str) -> Parsed<Vec<Name>> {
        self.list(key, name)
    }

    /// `a:1,b:2`; empty without the option.
    pub(super) fn pairs(&mut self, key: &str) -> Parsed<Vec<(Name, Name)>> {
        self.list(key, |word| {
            let (left, right) = word.split_once(':').ok_or("it is name:value")?;
            Ok((name(left)?, name(right)?))
        })
    }

    /// The parts between commas; empty without the option.
    pub(super) fn list<T>(&mut self, key: &str, read: impl Fn(&'a str) -> Parsed<T>) -> Parsed<Vec<T>> {
        let all = self.read(key, |all| all.split(',').filter(|part| !part.is_empty()).map(read).collect())?;
        Ok(all.unwrap_or_default())
    }

    /// Everything must have been read.
    pub(super) fn end(self) -> Parsed<()> {
        if let Some(word) = self.words.first() {
            return Err(format!("{word:?} is one word too many"));
        }
        match self.options.keys().next() {
            Some(key) => Err(format!("there is no option {key:?}")),
            None => Ok(()),
        }
    }
}

pub(in super::super) fn name(word: &str) -> Parsed<Name> {
    Name::new(word).map_err(|error| format!("{word:?} is not a name: {error}"))
}

pub(in super::super) fn number(word: &str) -> Parsed<u32> {
    word.parse().map_err(|_| format!("{word:?} is not a number"))
}

/// `500ms` or `30s`.
pub(in super::super) fn span(word: &str) -> Parsed<Span> {
    let wrong = || format!("{word:?} is not a time such as 500ms or 30s");
    let (digits, unit) = match word.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (word.strip_suffix('s').ok_or_else(wrong)?, 1_000),
    };
    Ok(Span(digits.parse::<u64>().map_err(|_| wrong())? * unit))
}
