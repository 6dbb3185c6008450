//! A throw-away PostgreSQL server for tests. All test processes of a run share one; it ends some seconds after the last of them.
//!
//! The tests of other crates use this file, too. `LANEWAY_TEST_POSTGRES` names another server: the URL of a database whose user may create databases.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How large a file system in memory must be to hold the server.
const MEMORY_MIN: u64 = 2 << 30;
/// Part of the name of the socket. Nothing listens on a port.
pub const PORT: &str = "5432";

/// A server.
pub struct TestServer {
    /// The URL of its database `postgres`, up to the name of the database.
    base: String,
    /// What follows the name of the database.
    query: String,
    /// Held while this process uses the server.
    _use: Option<File>,
}

/// A database of a test, which goes with it.
pub struct TestDatabase {
    name: String,
    server: &'static TestServer,
}

impl TestDatabase {
    /// An empty database. `None`: PostgreSQL is not installed here.
    pub fn new() -> Option<TestDatabase> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        server.drop_left_over();
        let name = format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        server.psql("postgres", &format!("CREATE DATABASE {name}"));
        Some(TestDatabase { name, server })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Executes SQL from outside, and returns what it prints.
    pub fn psql(&self, sql: &str) -> String {
        self.server.psql(&self.name, sql)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        self.server.psql("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

impl TestServer {
    fn url(&self, database: &str) -> String {
        format!("{}{database}{}", self.base, self.query)
    }

    /// Drops databases of processes that were killed, or ended before their stores.
    fn drop_left_over(&self) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        if self._use.is_none() {
            return;
        }
        ONCE.call_once(|| {
            let found =
                self.psql("postgres", "SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'");
            let is_gone = |name: &&str| {
                let pid = name.split('_').nth(1).unwrap_or_default();
                !Path::new("/proc").join(pid).exists()
            };
            for name in found.lines().filter(is_gone) {
                self.psql("postgres", &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
            }
        });
    }

    fn psql(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(bin_dir().map_or("psql".into(), |dir| dir.join("psql")));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1"]);
        let output = command.args(["--dbname", &self.url(database), "--command", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// The server of this run.
fn server() -> Option<&'static TestServer> {
    static SERVER: OnceLock<Option<TestServer>> = OnceLock::new();
    SERVER.get_or_init(find_or_start).as_ref()
}

fn find_or_start() -> Option<TestServer> {
    if let Ok(url) = std::env::var("LANEWAY_TEST_POSTGRES") {
        let (url, query) = url
            .split_once('?')
            .map_or((url.as_str(), String::new()), |(url, query)| (url, format!("?{query}")));
        let base = url.rsplit_once('/').map_or(url, |(base, _)| base);
        return Some(TestServer { base: format!("{base}/"), query, _use: None });
    }
    let Some(bin) = bin_dir().filter(|_| can_run()) else {
        eprintln!("skipped: PostgreSQL cannot run here; LANEWAY_TEST_POSTGRES may name a server");
        return None;
    };
    let dir = run_dir();
    let user = File::create(dir.join("users.lock")).unwrap();
    user.lock_shared().unwrap();
    let starting = File::create(dir.join("start.lock")).unwrap();
    starting.lock().unwrap();
    let sockets = dir.join("sockets");
    if !is_ready(&bin, &sockets) {
        start(&bin, &dir);
        assert!(is_ready(&bin, &sockets), "PostgreSQL did not start; see {}", dir.join("log").display());
    }
    let host = sockets.display().to_string().replace('/', "%2F");
    Some(TestServer {
        base: format!("postgresql://laneway@{host}:{PORT}/"),
        query: String::new(),
        _use: Some(user),
    })
}

/// One folder for each target folder and user, because the server must not stand in the sources. In memory if there is room:
/// containers may have 64 MB there. The choice stays the same for all processes of a run, because it is made by the total size.
pub fn run_dir() -> PathBuf {
    let id = crc32fast::hash(env!("CARGO_TARGET_TMPDIR").as_bytes());
    let memory = Path::new("/dev/shm");
    let size = rustix::fs::statvfs(memory).map_or(0, |found| found.f_blocks.saturating_mul(found.f_frsize));
    // The user postgres reaches /tmp, but not every temporary folder of root. A path of a socket has at most 107 bytes.
    let base = if size >= MEMORY_MIN { memory } else { Path::new("/tmp") };
    let dir = base.join(format!("laneway-postgres-{}-{id:08x}", rustix::process::geteuid().as_raw()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

pub fn bin_dir() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .ok()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    found.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    found.into_iter().find(|dir| dir.join("initdb").exists() && dir.join("pg_ctl").exists())
}

fn is_ready(bin: &Path, sockets: &Path) -> bool {
    // A server that is busy must not be taken for one that is gone: without one, the answer comes at once.
    let mut ready = Command::new(bin.join("pg_isready"));
    ready.args(["--quiet", "--timeout", "60", "--port", PORT, "--host"]).arg(sockets);
    ready.status().is_ok_and(|status| status.success())
}

/// Can this process run programs as a user who is not root?
fn can_run() -> bool {
    let mut nothing = unprivileged(Path::new("true"));
    nothing.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// PostgreSQL does not run as root. Its user may have no access to the current folder.
pub fn unprivileged(program: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/");
    command
}

#[expect(clippy::zombie_processes, reason = "the watcher ends after this process")]
fn start(bin: &Path, dir: &Path) {
    let (data, sockets, log) = (dir.join("data"), dir.join("sockets"), dir.join("log"));
    let _ = (fs::remove_dir_all(&data), fs::remove_dir_all(&sockets), fs::remove_file(&log));
    for path in [&data, &sockets] {
        fs::create_dir_all(path).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        let done = Command::new("chown").arg("-R").arg("postgres").arg(dir).status().unwrap();
        assert!(done.success(), "cannot give {} to the user postgres", dir.display());
    }
    let mut initdb = unprivileged(&bin.join("initdb"));
    initdb
        .args([
            "--auth=trust",
            "--username=laneway",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "--pgdata",
        ])
        .arg(&data);
    run(&mut initdb);
    // Some tests count the transactions of a server without work: those of autovacuum are not its own.
    let options = format!(
        "-k {} -p {PORT} -c listen_addresses= -c max_connections=200 -c shared_buffers=32MB -c autovacuum=off",
        sockets.display()
    );
    let mut server = unprivileged(&bin.join("pg_ctl"));
    server.args(["start", "-w", "-t", "60", "-o", &options]).arg("-D").arg(&data).arg("-l").arg(&log);
    run(&mut server);
    // Ends the server when no test has used it for a while.
    let stop = format!(
        "while sleep 5; do flock -n -x {dir}/users.lock sh -c '{ctl} stop -m immediate -D {data}; rm -rf {data}' && break; done",
        dir = dir.display(),
        ctl = bin.join("pg_ctl").display(),
        data = data.display()
    );
    let mut watch = unprivileged(Path::new("sh"));
    watch.arg("-c").arg(stop).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    watch.process_group(0).spawn().unwrap();
}

pub fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?} failed");
}
