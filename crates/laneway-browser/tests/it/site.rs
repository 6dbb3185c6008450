//! A small HTTP server on loopback.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

#[derive(Default)]
struct Inside {
    /// Answers by path, as they are sent.
    answers: Mutex<HashMap<String, String>>,
    /// The heads of requests.
    requests: Mutex<Vec<String>>,
}

/// The server. It ends when it is dropped.
pub struct Site {
    pub address: SocketAddr,
    inside: Arc<Inside>,
    _task: AbortOnDropHandle<()>,
}

impl Site {
    pub async fn start() -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::<Inside>::default();
        let serving = inside.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, serving.clone()));
            }
        });
        Site { address, inside, _task: AbortOnDropHandle::new(task) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Serves a page with this body. Returns its address.
    pub fn page(&self, body: &str) -> String {
        let path = format!("/page{}", self.inside.answers.lock().unwrap().len());
        self.put(
            &path,
            "200 OK",
            "Content-Type: text/html; charset=utf-8\r\n",
            &format!("<!doctype html><title>Test</title><body>{body}"),
        );
        self.url(&path)
    }

    pub fn put(&self, path: &str, status: &str, headers: &str, body: &str) {
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        self.inside.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    /// A path whose answer never comes.
    pub fn put_silent(&self, path: &str) {
        self.inside.answers.lock().unwrap().insert(path.to_owned(), String::new());
    }

    pub fn requests(&self) -> Vec<String> {
        self.inside.requests.lock().unwrap().clone()
    }
}

/// Reads the head of a request.
pub async fn read_head(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

async fn answer(mut stream: TcpStream, inside: Arc<Inside>) -> Option<()> {
    let head = read_head(&mut stream).await?;
    let path = head.split(' ').nth(1)?.to_owned();
    inside.requests.lock().unwrap().push(head);
    let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnone";
    let answer = inside.answers.lock().unwrap().get(&path).cloned().unwrap_or_else(|| not_found.to_owned());
    if answer.is_empty() {
        std::future::pending::<()>().await;
    }
    stream.write_all(answer.as_bytes()).await.ok()?;
    // The rest of the connection, so that the answer is not lost in a reset.
    let _ = stream.shutdown().await;
    Some(())
}
