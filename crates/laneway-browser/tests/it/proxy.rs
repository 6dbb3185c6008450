//! Tests of proxies, and Chromium behind them.

use std::time::Duration;

use laneway_browser::Proxy;
use laneway_browser::proxy::{ProxyError, ProxyReport, Trust, test_with};
use reqwest::Url;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::fake_proxy::{FakeProxy, Kind};
use crate::world::{PATIENCE, World};

const TARGET: &str = "http://site.test/ip?x=1";

fn proxy(scheme: &str, port: u16, credentials: Option<(&str, &str)>) -> Proxy {
    let (user, password) = credentials.unzip();
    let host = if scheme == "https" { "localhost" } else { "127.0.0.1" };
    Proxy::new(scheme, host, port, user, password).unwrap()
}

async fn test(
    fake: &FakeProxy,
    scheme: &str,
    credentials: Option<(&str, &str)>,
    target: &str,
) -> Result<ProxyReport, ProxyError> {
    let trust = Trust::public().and(fake.authority.as_bytes()).unwrap();
    let target = Url::parse(target).unwrap();
    test_with(&proxy(scheme, fake.port, credentials), &target, PATIENCE, &trust).await
}

#[tokio::test]
async fn proxies_of_every_scheme_are_tested() {
    for (kind, scheme) in [(Kind::Http, "http"), (Kind::Https, "https"), (Kind::Socks, "socks5")] {
        for credentials in [None, Some(("ada", "s3cret ä"))] {
            let fake = FakeProxy::start(kind, credentials).await;
            let report = test(&fake, scheme, credentials, TARGET).await.unwrap();
            assert_eq!(
                (report.status, report.address),
                (200, Some("203.0.113.7".parse().unwrap())),
                "{scheme}"
            );
            assert!(report.connect <= report.total);
            let request = fake.requests().pop().unwrap();
            let line = if scheme == "socks5" { "GET /ip?x=1 " } else { "GET http://site.test/ip?x=1 " };
            assert!(request.starts_with(line) && request.contains("Host: site.test\r\n"), "{request}");
        }
    }
}

#[tokio::test]
async fn wrong_credentials_are_permanent() {
    for (kind, scheme) in [(Kind::Http, "http"), (Kind::Https, "https"), (Kind::Socks, "socks5")] {
        let fake = FakeProxy::start(kind, Some(("ada", "right"))).await;
        for credentials in [Some(("ada", "hunter2")), None] {
            for target in [TARGET, "https://site.test/"] {
                let error = test(&fake, scheme, credentials, target).await.unwrap_err();
                assert_eq!(
                    (error.code(), error.retryable()),
                    ("proxy_credentials", false),
                    "{scheme} {error}"
                );
                assert!(!error.to_string().contains("hunter2"));
            }
        }
    }
}

#[tokio::test]
async fn timeouts_are_retryable_and_other_errors_are_not() {
    let silent = FakeProxy::start(Kind::Silent, None).await;
    for scheme in ["http", "https", "socks5"] {
        let proxy = proxy(scheme, silent.port, None);
        let target = Url::parse(TARGET).unwrap();
        let error =
            test_with(&proxy, &target, Duration::from_millis(100), &Trust::public()).await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), ("proxy_timed_out", true), "{scheme} {error}");
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gone =
        laneway_browser::proxy::test(&proxy("http", closed, None), &Url::parse(TARGET).unwrap(), PATIENCE)
            .await;
    let gone = gone.unwrap_err();
    assert_eq!((gone.code(), gone.retryable()), ("proxy_unreachable", false));
    let fake = FakeProxy::start(Kind::Http, None).await;
    let error = test(&fake, "http", None, "https://unreachable.test/").await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("proxy_target", false), "{error}");
    let socks = FakeProxy::start(Kind::Socks, None).await;
    let error = test(&socks, "socks5", None, "http://unreachable.test/").await.unwrap_err();
    assert!(error.to_string().ends_with("the host is unreachable"), "{error}");
    // A proxy of another scheme, and a certificate of an unknown authority.
    let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = proxy("socks5", web.local_addr().unwrap().port(), None);
    let target = Url::parse(TARGET).unwrap();
    let answer = async {
        let (mut stream, _) = web.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let trust = Trust::public();
    let (error, _stream) = tokio::join!(test_with(&other, &target, PATIENCE, &trust), answer);
    let error = error.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("proxy_protocol", false), "{error}");
    let tls = FakeProxy::start(Kind::Https, None).await;
    let unknown =
        test_with(&proxy("https", tls.port, None), &Url::parse(TARGET).unwrap(), PATIENCE, &Trust::public())
            .await;
    assert_eq!(unknown.unwrap_err().code(), "proxy_protocol");
    let error = test(&fake, "http", None, "ftp://site.test/").await.unwrap_err();
    assert_eq!(error.code(), "bad_target");
}

#[test]
fn proxies_are_read_and_never_show_their_password() {
    let full = Proxy::parse("socks5://ada:p%40ss@[::1]:1080").unwrap();
    assert_eq!((full.host(), full.port(), full.user()), ("::1", 1080, Some("ada")));
    assert_eq!(
        (format!("{full}"), format!("{full:?}")),
        ("socks5://[::1]:1080".into(), "socks5://[::1]:1080".into())
    );
    assert_eq!(Proxy::parse("http://h").unwrap().to_string(), "http://h:80");
    assert_eq!(Proxy::parse("socks5://h").unwrap().to_string(), "socks5://h:1080");
    for url in ["", "h:80", "ftp://h", "http://", "http://h/path", "http://h?x", "http://:p@h", "http://h:0"]
    {
        assert!(Proxy::parse(url).is_err(), "{url}");
    }
    let error = Proxy::parse("gopher://u:hunter2@h").unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    for host in ["", "a b", "h;x", "h,x", "--flag x"] {
        assert!(Proxy::new("http", host, 80, None, None).is_err(), "{host}");
    }
}

#[tokio::test]
async fn chromium_logs_in_to_proxies() {
    for (kind, scheme) in [(Kind::Http, "http"), (Kind::Socks, "socks5")] {
        let fake = FakeProxy::start(kind, Some(("ada", "right"))).await;
        let world =
            World::with(|options| options.proxy = Some(proxy(scheme, fake.port, Some(("ada", "right")))))
                .await;
        let opened = world.act(json!({"kind": "navigate", "url": "http://site.test/a"})).await;
        assert_eq!(opened["status"], 200, "{scheme}");
        assert_eq!(world.act(json!({"kind": "text"})).await["text"], "203.0.113.7");
        assert!(fake.requests().iter().any(|request| request.contains("/a HTTP/1.1")));
        world.end().await;
    }
}

#[tokio::test]
async fn chromium_logs_in_to_proxies_over_tls() {
    for credentials in [None, Some(("ada", "right"))] {
        let fake = FakeProxy::start(Kind::Https, credentials).await;
        // The certificate of the test is of no authority that Chromium knows.
        let world = World::with_arguments("--ignore-certificate-errors", |options| {
            options.proxy = Some(proxy("https", fake.port, credentials));
        })
        .await;
        let opened = world.act(json!({"kind": "navigate", "url": "http://site.test/a"})).await;
        assert_eq!(opened["status"], 200, "{credentials:?}");
        assert_eq!(world.act(json!({"kind": "text"})).await["text"], "203.0.113.7");
        assert!(fake.requests().iter().any(|request| request.starts_with("GET http://site.test/a HTTP/1.1")));
        world.end().await;
    }
    // A certificate that cannot be checked is no proxy.
    let fake = FakeProxy::start(Kind::Https, None).await;
    let world = World::with(|options| options.proxy = Some(proxy("https", fake.port, None))).await;
    let error = world.fails(json!({"kind": "navigate", "url": "http://site.test/a"})).await;
    assert!(error.contains("net::ERR_PROXY_CERTIFICATE_INVALID"), "{error}");
    assert!(fake.requests().is_empty());
    world.end().await;
}

#[tokio::test]
async fn a_wrong_password_does_not_hang_the_page() {
    let fake = FakeProxy::start(Kind::Http, Some(("ada", "right"))).await;
    let world =
        World::with(|options| options.proxy = Some(proxy("http", fake.port, Some(("ada", "wrong"))))).await;
    match world.try_act(json!({"kind": "navigate", "url": "http://site.test/a"})).await {
        Ok(opened) => assert_eq!(opened["status"], 407, "{opened}"),
        Err(error) => assert_eq!(error.code(), "navigation_failed", "{error}"),
    }
    world.end().await;
}
