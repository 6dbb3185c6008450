//! Secrets at rest: secrets that API calls put are encrypted before they are stored.
//!
//! The key is in the file `secret.key` of the data directory, which no backup holds, so that a copy of the database alone
//! gives no secret away. Everything else that calls changed stays readable without the key.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use laneway_core::Bytes;
use laneway_store::sqlite::files::{SECRET_KEY, open_private};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::Value;

use super::schema::Schema;

/// How an encrypted value begins; the rest is nonce, text and tag in base64.
const PREFIX: &str = "sealed:v1:";
/// Bytes of the key.
const KEY_LEN: usize = 32;

/// Where the key of a data directory is. The file is made when it is first needed.
#[derive(Clone, Debug)]
pub struct SecretKey {
    path: PathBuf,
    /// The sections whose entries have a secret, and its key.
    secrets: Vec<(&'static str, &'static str)>,
}

impl SecretKey {
    /// The key of the data directory `dir`.
    pub fn of_dir(dir: &Path, schema: &Schema) -> SecretKey {
        let secrets = schema.entry_sections().iter().map(|section| (section.name, section.secret));
        SecretKey { path: dir.join(SECRET_KEY), secrets: secrets.collect() }
    }

    /// The changes with encrypted secrets, for the store.
    pub fn seal(&self, stored: &Bytes) -> io::Result<Bytes> {
        Ok(self.seal_those(stored, |_| true)?.unwrap_or_else(|| stored.clone()))
    }

    /// The changes that an earlier version stored, with the secrets encrypted that are still in plain text. `None`: there are
    /// none.
    pub fn seal_plain(&self, stored: &Bytes) -> io::Result<Option<Bytes>> {
        self.seal_those(stored, |token| !token.starts_with(PREFIX))
    }

    fn seal_those(&self, stored: &Bytes, which: fn(&str) -> bool) -> io::Result<Option<Bytes>> {
        let mut tree = read(stored)?;
        let mut tokens = self.secrets_in(&mut tree);
        tokens.retain(|(_, token)| which(token));
        if tokens.is_empty() {
            return Ok(None);
        }
        let key = self.make()?;
        for (id, token) in tokens {
            *token = seal_one(&key, &id, token)?;
        }
        Ok(Some(Arc::from(tree.to_string().into_bytes())))
    }

    /// The changes as they were made, and the entries whose secret cannot be read: it is left out.
    pub fn open(&self, stored: &Bytes) -> io::Result<(Bytes, Vec<String>)> {
        let mut tree = read(stored)?;
        let mut unread = Vec::new();
        let key = self.read();
        for (id, token) in self.secrets_in(&mut tree) {
            let Some(sealed) = token.strip_prefix(PREFIX) else { continue };
            match key.as_ref().ok().and_then(|key| open_one(key, &id, sealed)) {
                Some(text) => *token = text,
                None => unread.push(id),
            }
        }
        for (section, key) in &self.secrets {
            for id in &unread {
                if let Some(entry) = tree[section][id].as_object_mut() {
                    entry.remove(*key);
                }
            }
        }
        Ok((Arc::from(tree.to_string().into_bytes()), unread))
    }

    /// A secret of something else than the configuration, encrypted. Only [`SecretKey::open_text`] with the same owner decrypts
    /// it. A text that is encrypted already stays as it is.
    pub fn seal_text(&self, owner: &str, text: &str) -> io::Result<String> {
        if is_sealed(text) {
            return Ok(text.to_owned());
        }
        seal_one(&self.make()?, owner, text)
    }

    /// The secret in an encrypted text. `None`: the key is missing or another one, or the text belongs to another owner.
    pub fn open_text(&self, owner: &str, sealed: &str) -> Option<String> {
        open_one(&self.read().ok()?, owner, sealed.strip_prefix(PREFIX)?)
    }

    /// Every secret in the changes, with the name of its entry.
    fn secrets_in<'t>(&self, tree: &'t mut Value) -> Vec<(String, &'t mut String)> {
        let sections = tree.as_object_mut().into_iter().flatten();
        let secrets = sections.flat_map(|(section, entries)| {
            let known = self.secrets.iter().find(|(name, _)| name == section);
            let entries = known.zip(entries.as_object_mut());
            entries.into_iter().flat_map(|((_, key), entries)| {
                entries.iter_mut().filter_map(|(id, entry)| match entry.get_mut(*key) {
                    Some(Value::String(secret)) => Some((id.clone(), secret)),
                    _ => None,
                })
            })
        });
        secrets.collect()
    }

    fn read(&self) -> io::Result<LessSafeKey> {
        let bytes = std::fs::read(&self.path)?;
        let wrong = || io::Error::other(format!("{} is no key: it must have 32 bytes", self.path.display()));
        if bytes.len() != KEY_LEN {
            return Err(wrong());
        }
        Ok(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| wrong())?))
    }

    /// Reads the key, or makes one and makes it durable before anything is encrypted with it.
    fn make(&self) -> io::Result<LessSafeKey> {
        if !self.path.exists() {
            let mut bytes = [0; KEY_LEN];
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
            let new = self.path.with_extension("key-new");
            let mut file = open_private(&new)?;
            file.set_len(0)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)?;
            if let Some(dir) = self.path.parent() {
                std::fs::File::open(dir)?.sync_all()?;
            }
        }
        self.read()
    }
}

fn read(stored: &Bytes) -> io::Result<Value> {
    serde_json::from_slice(stored).map_err(io::Error::other)
}

/// True for a text that [`SecretKey::seal_text`] returned.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

fn seal_one(key: &LessSafeKey, id: &str, secret: &str) -> io::Result<String> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let mut text = secret.as_bytes().to_vec();
    let sealed = key.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(id.as_bytes()),
        &mut text,
    );
    sealed.map_err(|_| io::Error::other("a secret is too long to be encrypted"))?;
    Ok(format!("{PREFIX}{}", BASE64.encode([&nonce[..], &text[..]].concat())))
}

fn open_one(key: &LessSafeKey, id: &str, sealed: &str) -> Option<String> {
    let mut bytes = BASE64.decode(sealed).ok()?;
    let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let text = key.open_in_place(nonce, Aad::from(id.as_bytes()), text).ok()?;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EntrySection;

    static INSTANCES: EntrySection = EntrySection {
        name: "instances",
        defaults: "",
        len_max: 10,
        read: |_| None,
        secret: "token",
        not_patchable: "",
        not_removable: "",
    };

    #[test]
    fn defect_13_a_stored_token_is_read_with_its_key_only() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let schema = Schema::new(&[], &[&INSTANCES], &[]);
        let key = SecretKey::of_dir(dir.path(), &schema);
        let plain: Bytes = Arc::from(
            br#"{"instances":{"desk":{"token":"s3cret-token","url":"http://127.0.0.1:1/"}},"lanes":{"a":{}}}"#
                .to_vec(),
        );
        let sealed = key.seal(&plain).unwrap();
        let text = String::from_utf8(sealed.to_vec()).unwrap();
        assert!(!text.contains("s3cret") && text.contains("http://127.0.0.1:1/"), "{text}");
        assert_ne!(key.seal(&plain).unwrap(), sealed, "every nonce is its own");
        assert_eq!(key.open(&sealed).unwrap(), (plain.clone(), vec![]));
        // What an earlier version stored is taken as it is.
        assert_eq!(key.open(&plain).unwrap(), (plain.clone(), vec![]));
        // It is encrypted once, and what is encrypted already stays as it is.
        let resealed = key.seal_plain(&plain).unwrap().unwrap();
        assert_eq!(key.open(&resealed).unwrap(), (plain.clone(), vec![]));
        assert_ne!(resealed, plain);
        assert_eq!(key.seal_plain(&sealed).unwrap(), None);
        let (without, unread) = SecretKey::of_dir(other.path(), &schema).open(&sealed).unwrap();
        assert_eq!(unread, ["desk"]);
        assert!(!String::from_utf8(without.to_vec()).unwrap().contains("token"));
        // A value that was moved to another instance is not read.
        let moved: Bytes = Arc::from(text.replace("desk", "gate").into_bytes());
        assert_eq!(key.open(&moved).unwrap().1, ["gate"]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(dir.path().join(SECRET_KEY)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
