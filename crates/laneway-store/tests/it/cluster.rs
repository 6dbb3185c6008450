//! A PostgreSQL cluster of one test, with settings of its own: it can be killed, restarted, replicated and filled.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::postgres_server::{bin_dir, run, unprivileged};

/// A cluster.
pub struct Cluster {
    dir: tempfile::TempDir,
    bin: PathBuf,
    /// On 127.0.0.1, and part of the name of the socket.
    pub port: u16,
    options: String,
}

impl Cluster {
    /// Starts one with these settings. `None`: PostgreSQL is not installed here.
    pub fn start(settings: &[&str]) -> Option<Cluster> {
        let cluster = Cluster::empty(settings)?;
        let mut initdb = unprivileged(&cluster.bin.join("initdb"));
        initdb.args([
            "--auth=trust",
            "--username=laneway",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "--pgdata",
        ]);
        run(initdb.arg(cluster.data()));
        cluster.restart();
        Some(cluster)
    }

    /// A cluster without data.
    fn empty(settings: &[&str]) -> Option<Cluster> {
        let Some(bin) = bin_dir() else {
            eprintln!("skipped: PostgreSQL is not installed here");
            return None;
        };
        let memory = Path::new("/dev/shm");
        let base = if memory.exists() { memory } else { Path::new("/tmp") };
        let dir = tempfile::Builder::new().prefix("laneway-cluster-").tempdir_in(base).unwrap();
        own(dir.path());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings: String = settings.iter().map(|setting| format!(" -c {setting}")).collect();
        let options = format!(
            "-k {} -p {port} -c listen_addresses=127.0.0.1 -c shared_buffers=16MB{settings}",
            dir.path().display()
        );
        Some(Cluster { dir, bin, port, options })
    }

    /// A replica that only reads.
    pub fn replica(&self) -> Cluster {
        let replica = Cluster::empty(&[]).unwrap();
        let mut copy = unprivileged(&self.bin.join("pg_basebackup"));
        copy.args(["-U", "laneway", "-h"]).arg(self.dir.path()).args([
            "-p",
            &self.port.to_string(),
            "-R",
            "-D",
        ]);
        run(copy.arg(replica.data()));
        replica.restart();
        replica
    }

    /// Where files for it can be put.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts it, after a stop or a kill. Processes of a server that was killed may keep its memory for a moment.
    pub fn restart(&self) {
        let log = self.dir.path().join("log");
        for _ in 0..100 {
            let mut ctl = unprivileged(&self.bin.join("pg_ctl"));
            ctl.args(["start", "-w", "-t", "120", "-o", &self.options]).arg("-D").arg(self.data());
            ctl.arg("-l").arg(&log).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if ctl.status().unwrap().success() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        panic!("PostgreSQL did not start: {}", fs::read_to_string(&log).unwrap_or_default());
    }

    /// Kills it with all its processes, as a power cut would end them.
    pub fn kill(&self) {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let postmaster = file.lines().next().unwrap().trim().to_owned();
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &postmaster]).output().unwrap();
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        for pid in std::iter::once(postmaster.as_str()).chain(children.split_whitespace()) {
            let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
        }
        // The next start must not meet a process that is still being ended.
        while Path::new("/proc").join(&postmaster).join("exe").exists() {
            std::thread::yield_now();
        }
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        let host = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://laneway@{host}:{}/{database}", self.port)
    }

    /// The same over TCP.
    pub fn tcp_url(&self, host: &str, database: &str) -> String {
        format!("postgres://laneway@{host}:{}/{database}", self.port)
    }

    /// Executes SQL, and returns what it prints.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(self.bin.join("psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1"]);
        let output = command.args(["--dbname", &self.url(database), "--command", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Changes a setting of the running cluster, and waits until it holds.
    pub fn set(&self, setting: &str, value: &str) {
        self.psql("postgres", &format!("ALTER SYSTEM SET {setting} = {value}"));
        self.psql("postgres", "SELECT pg_reload_conf()");
        let shown = value.trim_matches('\'');
        while self.psql("postgres", &format!("SHOW {setting}")) != shown {
            std::thread::yield_now();
        }
    }

    /// Puts a line before the others of pg_hba.conf.
    pub fn allow_first(&self, line: &str) {
        let file = self.data().join("pg_hba.conf");
        let others = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{line}\n{others}")).unwrap();
        self.psql("postgres", "SELECT pg_reload_conf()");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut ctl = unprivileged(&self.bin.join("pg_ctl"));
        ctl.args(["stop", "-m", "immediate", "-D"]).arg(self.data());
        let _ = ctl.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Gives a file or folder to the user that PostgreSQL runs as.
pub fn own(path: &Path) {
    if rustix::process::geteuid().is_root() {
        run(Command::new("chown").arg("-R").arg("postgres").arg(path));
    }
}
