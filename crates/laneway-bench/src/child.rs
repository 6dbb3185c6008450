//! Servers in their own processes: started, awaited, inspected, killed.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::load::Connection;

/// How long a server may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A server process; killed when dropped.
pub struct Server {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
    /// The time from its start to its first ready answer.
    pub ready_after: Duration,
}

impl Server {
    /// Starts `laneway serve` on a data directory. `settings` are environment variables.
    pub fn laneway(data_dir: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Server> {
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--listen").arg(address.to_string()).arg("--data-dir").arg(data_dir);
        command.env("LANEWAY_LOG__FILTER", "error").envs(settings.iter().copied());
        Server::start(command, address)
    }

    /// Starts the bare echo.
    pub fn echo() -> anyhow::Result<Server> {
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bench").arg("--echo").arg(address.to_string());
        Server::start(command, address)
    }

    fn start(mut command: Command, address: SocketAddr) -> anyhow::Result<Server> {
        let start = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
        let mut server = Server { child, address, ready_after: Duration::ZERO };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            loop {
                if is_ready(address).await {
                    return Ok(());
                }
                if let Some(status) = server.child.try_wait()? {
                    bail!("the server ended at its start with {status}");
                }
                if start.elapsed() > READY_WITHIN {
                    bail!("the server was not ready within {READY_WITHIN:?}");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })?;
        server.ready_after = start.elapsed();
        Ok(server)
    }

    /// Its anonymous resident memory in bytes.
    pub fn resident_anonymous(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line =
            status.lines().find(|line| line.starts_with("RssAnon:")).context("the kernel reports RssAnon")?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("a number follows")?.parse()?;
        Ok(kilobytes * 1_024.0)
    }

    /// Stops it gracefully. Returns how long that took.
    pub fn stop(mut self) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let signaled = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status()?;
        anyhow::ensure!(signaled.success(), "the server cannot be signaled");
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the server ended with {status}");
        Ok(start.elapsed())
    }

    /// Kills it at once, like a crash.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn is_ready(address: SocketAddr) -> bool {
    match Connection::open(address).await {
        Ok(mut connection) => connection.get("/readyz").await.is_ok(),
        Err(_) => false,
    }
}

/// A free local address.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
