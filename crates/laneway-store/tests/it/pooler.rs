//! A throw-away pgbouncer before a database of the throw-away server.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::postgres_server::{PORT, TestDatabase, run, run_dir, unprivileged};

/// pgbouncer in transaction mode before a database: each transaction may use another connection to the server.
pub struct Pooler {
    dir: tempfile::TempDir,
    child: std::process::Child,
}

impl Pooler {
    /// Starts it. `None`: pgbouncer is not installed here, or the server is not the one of this run.
    pub fn start(database: &TestDatabase) -> Option<Pooler> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"]
            .map(Path::new)
            .into_iter()
            .find(|path| path.exists());
        let Some(program) = program.filter(|_| std::env::var_os("LANEWAY_TEST_POSTGRES").is_none()) else {
            eprintln!("skipped: pgbouncer is not installed here");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        let config = format!(
            "[databases]\n* = host={sockets} port={PORT}\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {path}\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 4\nlogfile = {path}/log\n\
             ignore_startup_parameters = extra_float_digits\n",
            sockets = run_dir().join("sockets").display()
        )
        .replace("* = host=", &format!("{} = user=laneway host=", database.name()));
        fs::write(dir.path().join("pgbouncer.ini"), config).unwrap();
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").arg("-R").arg("postgres").arg(dir.path()));
        }
        let mut pooler = unprivileged(program);
        pooler.arg(dir.path().join("pgbouncer.ini"));
        let child = pooler.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pooler = Pooler { dir, child };
        let socket = pooler.dir.path().join(".s.PGSQL.6432");
        for _ in 0..10_000 {
            if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                return Some(pooler);
            }
            std::thread::yield_now();
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        panic!("pgbouncer did not start: {:?}", fs::read_to_string(pooler.dir.path().join("log")));
    }

    /// The URL of a database through it.
    pub fn url(&self, database: &TestDatabase) -> String {
        let host = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgresql://laneway@{host}:6432/{}", database.name())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // A child of runuser ends with the signal that runuser passes on.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
