//! Valid and malicious archives.

use std::io::Write;
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;
use crate::worker::ended::Outcome;

/// An entry of an archive.
enum Entry<'a> {
    File(&'a str, &'a [u8]),
    Link(&'a str, &'a str),
}

fn tar_gz(entries: &[Entry<'_>]) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(encoder);
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        let (path, body): (&str, &[u8]) = match entry {
            Entry::File(path, body) => (path, body),
            Entry::Link(path, target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_link_name(target).unwrap();
                (path, b"")
            }
        };
        // The builder rejects paths that lead out of the archive; an attacker writes the header directly.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(body.len() as u64);
        header.set_cksum();
        builder.append(&header, body).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn zip(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
    for entry in entries {
        match entry {
            Entry::File(path, body) => {
                writer.start_file(*path, options).unwrap();
                writer.write_all(body).unwrap();
            }
            Entry::Link(path, target) => writer.add_symlink(*path, *target, options).unwrap(),
        }
    }
    writer.finish().unwrap().into_inner()
}

fn manifest(name: &str, version: &str) -> Vec<u8> {
    format!("{{\"name\": {name:?}, \"version\": {version:?}}}").into_bytes()
}

fn loader() -> Loader {
    Arc::new(|package| {
        if package.manifest.get().contains("unusable") {
            return Err("its handlers are invalid".to_owned());
        }
        Ok(vec![(Text::fixed("run"), Handler::new(|_| async { Ok(Outcome::default()) }))])
    })
}

/// A package folder, and a folder for archives.
struct Fixture {
    packages: Packages,
    folder: TempDir,
    archives: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let packages = Packages::open(folder.path(), loader()).unwrap();
        Fixture { packages, folder, archives: tempfile::tempdir().unwrap() }
    }

    fn order(&self, name: &str, version: &str, archive: &[u8]) -> Install {
        let path = self.archives.path().join("archive");
        fs::write(&path, archive).unwrap();
        let sha256: String = Sha256::digest(archive).iter().map(|byte| format!("{byte:02x}")).collect();
        Install {
            name: Text::fixed(name),
            version: Text::fixed(version),
            url: Some(format!("file://{}", path.display())),
            sha256: Some(Text::fixed(&sha256)),
        }
    }

    async fn install(
        &self,
        name: &str,
        version: &str,
        archive: &[u8],
    ) -> Result<InstalledPackage, PackageError> {
        self.packages.install(&self.order(name, version, archive)).await.map(|(package, _)| package)
    }

    /// All files below the package folder, by path.
    fn files(&self) -> Vec<String> {
        fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.folder.path(), self.folder.path(), &mut found);
        found.sort();
        found
    }
}

#[tokio::test]
async fn d18_a_package_is_installed_found_again_and_removed() {
    let fixture = Fixture::new();
    let (v1, v2) = (manifest("img", "1.0"), manifest("img", "2.0"));
    for (version, archive) in [
        ("1.0", zip(&[Entry::File("manifest.json", &v1), Entry::File("bin/run", b"#!/bin/sh")])),
        ("2.0", tar_gz(&[Entry::File("manifest.json", &v2), Entry::File("./bin/run", b"#!/bin/sh")])),
    ] {
        let package = fixture.install("img", version, &archive).await.unwrap();
        assert_eq!(package.folder, fixture.folder.path().join("img").join(version));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(package.folder.join("bin/run")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o755);
    }
    assert_eq!(
        fixture.files(),
        ["img/1.0/bin/run", "img/1.0/manifest.json", "img/2.0/bin/run", "img/2.0/manifest.json"]
    );
    let again = Packages::open(fixture.folder.path(), loader()).unwrap().load();
    assert_eq!(again.iter().map(|(package, _)| package.version.as_str()).collect::<Vec<_>>(), ["1.0", "2.0"]);
    let uninstall =
        |version: Option<&str>| Uninstall { name: Text::fixed("img"), version: version.map(Text::fixed) };
    assert_eq!(fixture.packages.uninstall(&uninstall(Some("1.0"))).await.unwrap(), ["1.0"]);
    assert_eq!(fixture.packages.uninstall(&uninstall(None)).await.unwrap(), ["2.0"]);
    assert!(fixture.files().is_empty());
    assert_eq!(fixture.packages.uninstall(&uninstall(None)).await.unwrap_err().code, ErrorCode::PkgInvalid);
}

#[tokio::test]
async fn x15_a_failed_install_leaves_the_installed_version() {
    let fixture = Fixture::new();
    let good = manifest("img", "1.0");
    fixture
        .install("img", "1.0", &zip(&[Entry::File("manifest.json", &good), Entry::File("a", b"old")]))
        .await
        .unwrap();
    let before = fixture.files();
    let other = manifest("img", "9.9");
    let unusable = b"{\"name\": \"img\", \"version\": \"1.0\", \"unusable\": true}";
    let evil = [
        zip(&[Entry::File("manifest.json", &good), Entry::File("../../outside", b"x")]),
        tar_gz(&[Entry::File("manifest.json", &good), Entry::File("../../outside", b"x")]),
        tar_gz(&[Entry::File("manifest.json", &good), Entry::File("/outside-of-laneway", b"x")]),
        tar_gz(&[
            Entry::File("manifest.json", &good),
            Entry::Link("link", "/etc"),
            Entry::File("link/x", b"x"),
        ]),
        zip(&[Entry::File("manifest.json", &good), Entry::Link("link", "/etc/passwd")]),
        tar_gz(&[Entry::File("manifest.json", &good), Entry::File("a", b"1"), Entry::File("a", b"2")]),
        zip(&[Entry::File("readme", b"no manifest")]),
        zip(&[Entry::File("manifest.json", &other)]),
        zip(&[Entry::File("manifest.json", b"[]")]),
        zip(&[Entry::File("manifest.json", unusable)]),
        b"no archive at all".to_vec(),
        zip(&[Entry::File("manifest.json", &good)])[..40].to_vec(),
    ];
    for (number, archive) in evil.iter().enumerate() {
        let error = fixture.install("img", "1.0", archive).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PkgInvalid, "{number}: {error}");
        assert_eq!(fixture.files(), before, "{number}: {error}");
    }
    assert_eq!(fs::read(fixture.folder.path().join("img/1.0/a")).unwrap(), b"old");
    // A valid archive of the same version replaces it.
    let next = zip(&[Entry::File("manifest.json", &good), Entry::File("a", b"new")]);
    fixture.install("img", "1.0", &next).await.unwrap();
    assert_eq!(fs::read(fixture.folder.path().join("img/1.0/a")).unwrap(), b"new");
}

#[tokio::test]
async fn x15_the_digest_is_required_and_checked() {
    let fixture = Fixture::new();
    let body = manifest("img", "1.0");
    let mut order = fixture.order("img", "1.0", &zip(&[Entry::File("manifest.json", &body)]));
    order.sha256 = Some(Text::fixed(&"0".repeat(64)));
    let error = fixture.packages.install(&order).await.err().unwrap();
    assert!(error.message.contains("sha256"), "{error}");
    order.sha256 = None;
    assert_eq!(fixture.packages.install(&order).await.err().unwrap().code, ErrorCode::PkgInvalid);
    for url in ["ftp://example.org/x", "nonsense", "file://host/x"] {
        let order = Install { url: Some(url.to_owned()), sha256: Some(Text::fixed("00")), ..order.clone() };
        assert_eq!(
            fixture.packages.install(&order).await.err().unwrap().code,
            ErrorCode::PkgInvalid,
            "{url}"
        );
    }
    assert!(fixture.files().is_empty());
}

#[tokio::test]
async fn x15_names_cannot_lead_out_of_the_folder() {
    let fixture = Fixture::new();
    for name in ["..", ".hidden", "a/b", "a\\b", "a b", "ä", &"x".repeat(101)] {
        let body = manifest(name, "1.0");
        let error =
            fixture.install(name, "1.0", &zip(&[Entry::File("manifest.json", &body)])).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PkgInvalid, "{name:?}");
    }
    assert!(fixture.files().is_empty());
}

#[tokio::test]
async fn unfinished_work_of_a_crash_is_removed() {
    let fixture = Fixture::new();
    let half = fixture.folder.path().join(format!("{STAGING}0"));
    fs::create_dir(&half).unwrap();
    fs::write(half.join("x"), "x").unwrap();
    assert!(Packages::open(fixture.folder.path(), loader()).unwrap().load().is_empty());
    assert!(fixture.files().is_empty());
}

/// Answers one HTTP call with these bytes.
async fn answer_once(answer: Vec<u8>) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/img.zip", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(&answer).await.unwrap();
    });
    url
}

#[tokio::test]
async fn d18_archives_are_fetched_over_http() {
    let fixture = Fixture::new();
    let body = manifest("img", "1.0");
    let archive = zip(&[Entry::File("manifest.json", &body)]);
    let order = fixture.order("img", "1.0", &archive);
    let with_len = |len: usize| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n");
        [head.into_bytes(), archive.clone()].concat()
    };
    // Other content, or only half of it, replaces nothing.
    let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
    for answer in [missing, with_len(archive.len() + 1)] {
        let order = Install { url: Some(answer_once(answer).await), ..order.clone() };
        assert_eq!(fixture.packages.install(&order).await.err().unwrap().code, ErrorCode::PkgInvalid);
        assert!(fixture.files().is_empty());
    }
    let order = Install { url: Some(answer_once(with_len(archive.len())).await), ..order };
    fixture.packages.install(&order).await.unwrap();
    assert_eq!(fixture.files(), ["img/1.0/manifest.json"]);
}

/// The original system rejects its own archives after a download, because it goes by the file extension.
#[tokio::test]
async fn af_x15_the_type_of_an_archive_follows_from_its_content() {
    let fixture = Fixture::new();
    let body = manifest("img", "1.0");
    for archive in
        [zip(&[Entry::File("manifest.json", &body)]), tar_gz(&[Entry::File("manifest.json", &body)])]
    {
        let order = fixture.order("img", "1.0", &archive);
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", archive.len());
        let url = answer_once([head.into_bytes(), archive].concat()).await.replace("img.zip", "img.cwx");
        let order = Install { url: Some(url), ..order };
        fixture.packages.install(&order).await.unwrap();
        assert_eq!(fixture.files(), ["img/1.0/manifest.json"]);
    }
}

#[tokio::test]
async fn defect_13_only_regular_files_are_read() {
    let fixture = Fixture::new();
    let pipe = fixture.archives.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let large = fixture.archives.path().join("large");
    fs::File::create(&large).unwrap().set_len((256 << 20) + 1).unwrap();
    let folder = fixture.archives.path().display().to_string();
    let (pipe, large) = (pipe.display().to_string(), large.display().to_string());
    for (path, why) in [
        (pipe.as_str(), "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/dev/tty", "cannot be read"),
        (folder.as_str(), "not a regular file"),
        (large.as_str(), "more than 268435456 bytes"),
    ] {
        let order = Install { url: Some(format!("file://{path}")), ..fixture.order("img", "1.0", b"") };
        let installing =
            tokio::time::timeout(std::time::Duration::from_secs(60), fixture.packages.install(&order));
        let error = installing.await.expect("the installation blocks").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(why), "{path}: {error}");
    }
    assert_eq!(fixture.files(), Vec::<String>::new());
}
