//! A relay on loopback for SOCKS proxies with a password: Chromium cannot log in to them, so the relay does.
//!
//! Chromium connects to the relay without a password. The relay logs in to the proxy and passes everything else on as it is. It
//! lives as long as the browser.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::connect::{Stream, Trust, connect};
use super::{Proxy, socks};

/// Connections at once. Chromium has at most 256 to one proxy.
const CONNECTIONS_MAX: usize = 256;
/// How long the proxy may take to accept a connection and a login.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// A relay. It ends when it is dropped.
pub(crate) struct Relay {
    port: u16,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    /// Listens on a free port of loopback.
    pub(crate) async fn start(proxy: Proxy) -> io::Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(serve(listener, Arc::new(proxy)));
        Ok(Relay { port, _task: AbortOnDropHandle::new(task) })
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

async fn serve(listener: TcpListener, proxy: Arc<Proxy>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        // An error of accept concerns one connection.
        let Ok((client, _)) = listener.accept().await else { continue };
        let proxy = proxy.clone();
        connections.spawn(async move {
            if let Err(error) = pass_on(client, &proxy).await {
                tracing::debug!(%proxy, error, "a connection through the proxy failed");
            }
            drop(permit);
        });
    }
}

async fn pass_on(mut client: TcpStream, proxy: &Proxy) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let mut offer = [0; 2];
    client.read_exact(&mut offer).await.map_err(text)?;
    let mut methods = vec![0; usize::from(offer[1])];
    client.read_exact(&mut methods).await.map_err(text)?;
    let opened = tokio::time::timeout(CONNECT_LIMIT, open(proxy)).await;
    let mut upstream = opened.map_err(|_| "the proxy did not answer in time".to_owned())??;
    client.write_all(&[5, 0]).await.map_err(text)?;
    copy_bidirectional(&mut client, &mut upstream).await.map_err(text)?;
    Ok(())
}

/// A connection to the proxy that is logged in.
async fn open(proxy: &Proxy) -> Result<Box<dyn Stream>, String> {
    let mut stream = connect(proxy, &Trust::public()).await.map_err(|error| error.to_string())?;
    let logged_in = socks::log_in(&mut stream, proxy.credentials.as_ref()).await;
    logged_in.map_err(|error| format!("{error:?}"))?;
    Ok(stream)
}
