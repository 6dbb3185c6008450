//! The client side of SOCKS version 5 (RFC 1928), with user and password (RFC 1929).

use std::io;
use std::net::IpAddr;

use laneway_runtime::config::Secret;
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connect::Stream;
use super::{Proxy, ProxyError};

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const PASSWORD: u8 = 2;

/// Why a proxy does not connect.
#[derive(Debug)]
pub(super) enum SocksError {
    /// It wants other credentials.
    Credentials,
    /// It does not speak the protocol, or closed the connection.
    Protocol(String),
    /// It does not reach the target.
    Target(&'static str),
}

impl From<io::Error> for SocksError {
    fn from(error: io::Error) -> SocksError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SocksError::Protocol("it closed the connection".to_owned()),
            _ => SocksError::Protocol(error.to_string()),
        }
    }
}

/// The error of a test of the proxy.
pub(super) fn failed(error: SocksError, proxy: &Proxy, target: &Url) -> ProxyError {
    let proxy = proxy.to_string();
    match error {
        SocksError::Credentials => ProxyError::Credentials { proxy },
        SocksError::Protocol(reason) => ProxyError::Protocol { proxy, reason },
        SocksError::Target(reason) => {
            ProxyError::Target { proxy, target: target.to_string(), reason: reason.to_owned() }
        }
    }
}

/// Agrees on a method, and logs in if there are credentials.
pub(super) async fn log_in(
    stream: &mut Box<dyn Stream>,
    credentials: Option<&(String, Secret)>,
) -> Result<(), SocksError> {
    let methods: &[u8] = match credentials {
        Some(_) => &[VERSION, 2, NO_LOGIN, PASSWORD],
        None => &[VERSION, 1, NO_LOGIN],
    };
    stream.write_all(methods).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match (chosen, credentials) {
        ([VERSION, NO_LOGIN], _) => Ok(()),
        ([VERSION, PASSWORD], Some((user, password))) => {
            let mut message = vec![1, user.len() as u8];
            message.extend_from_slice(user.as_bytes());
            message.push(password.reveal().len() as u8);
            message.extend_from_slice(password.reveal().as_bytes());
            stream.write_all(&message).await?;
            let mut answer = [0; 2];
            match stream.read_exact(&mut answer).await {
                Ok(_) if answer[1] == 0 => Ok(()),
                // Proxies may close the connection instead of an answer.
                Ok(_) => Err(SocksError::Credentials),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(SocksError::Credentials),
                Err(error) => Err(error.into()),
            }
        }
        ([VERSION, _], _) => Err(SocksError::Credentials),
        ([version, _], _) => {
            Err(SocksError::Protocol(format!("its first byte is {version} instead of {VERSION}")))
        }
    }
}

/// Has the proxy connect to a host. The proxy resolves names.
pub(super) async fn connect(stream: &mut Box<dyn Stream>, host: &str, port: u16) -> Result<(), SocksError> {
    let mut request = vec![VERSION, 1, 0];
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend_from_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend_from_slice(&address.octets());
        }
        Err(_) => {
            let len =
                u8::try_from(host.len()).map_err(|_| SocksError::Target("the host name is too long"))?;
            request.extend_from_slice(&[3, len]);
            request.extend_from_slice(host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer[0] != VERSION {
        return Err(SocksError::Protocol(format!(
            "its answer begins with {} instead of {VERSION}",
            answer[0]
        )));
    }
    if answer[1] != 0 {
        return Err(SocksError::Target(reason_of(answer[1])));
    }
    // The address from which the proxy connects, and its port.
    let len = match answer[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        kind => return Err(SocksError::Protocol(format!("it names an address of the unknown kind {kind}"))),
    };
    let mut address = vec![0; len + 2];
    stream.read_exact(&mut address).await?;
    Ok(())
}

fn reason_of(code: u8) -> &'static str {
    match code {
        2 => "its rules do not allow the connection",
        3 => "the network is unreachable",
        4 => "the host is unreachable",
        5 => "the connection was rejected by the target",
        6 => "the time to live expired",
        7 => "it does not support the command",
        8 => "it does not support this kind of address",
        _ => "it gives no reason",
    }
}
