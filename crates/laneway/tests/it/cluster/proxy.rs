//! A TCP proxy before the database that can hold all bytes back, as a network that was cut does. What was held back arrives when the
//! network is back: also what an old owner had sent.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// A proxy.
pub struct Proxy {
    pub address: SocketAddr,
    cut: watch::Sender<bool>,
    _accepting: AbortOnDropHandle<()>,
}

/// Where the database listens.
#[derive(Clone)]
pub enum Target {
    Socket(std::path::PathBuf),
    Tcp(String),
}

impl Target {
    /// The target of a URL.
    pub fn of(url: &str) -> Target {
        let host = url.split_once("://").unwrap().1.split('/').next().unwrap();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        match host.split_once("%2F") {
            None => Target::Tcp(host.to_owned()),
            Some(_) => {
                let (dir, port) = host.rsplit_once(':').unwrap();
                Target::Socket(format!("{}/.s.PGSQL.{port}", dir.replace("%2F", "/")).into())
            }
        }
    }
}

impl Proxy {
    pub async fn start(target: Target) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(false);
        let state = cut.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(serve(near, target.clone(), state.subscribe()));
            }
        });
        Proxy { address, cut, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Holds everything back, or lets everything pass.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn serve(near: TcpStream, target: Target, mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| !cut).await.is_err() {
        return;
    }
    let (from_client, to_client) = near.into_split();
    let other = cut.clone();
    match target {
        Target::Socket(path) => {
            let Ok(far) = UnixStream::connect(path).await else { return };
            let (from_server, to_server) = far.into_split();
            tokio::join!(pass(from_client, to_server, cut), pass(from_server, to_client, other));
        }
        Target::Tcp(address) => {
            let Ok(far) = TcpStream::connect(address).await else { return };
            let (from_server, to_server) = far.into_split();
            tokio::join!(pass(from_client, to_server, cut), pass(from_server, to_client, other));
        }
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut cut: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let len = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        if cut.wait_for(|cut| !cut).await.is_err() || to.write_all(&buffer[..len]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
