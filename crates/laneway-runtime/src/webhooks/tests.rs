//! The guard: what it rejects, what it lets pass, and that it asks once and in time.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_core::Name;

use super::guard::{Guard, GuardError, Resolver, Resolving, redacted};

/// Answers from a table; a name that is not in it does not resolve. A name with several answers gives one after the
/// other, and the last one from then on.
#[derive(Default)]
struct Table {
    answers: Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>,
    asked: AtomicUsize,
}

impl Table {
    fn of(names: &[(&str, &[&[&str]])]) -> Arc<Table> {
        let parse = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
        let answers = names
            .iter()
            .map(|(name, answers)| ((*name).to_owned(), answers.iter().rev().map(parse).collect()));
        Arc::new(Table { answers: Mutex::new(answers.collect()), asked: AtomicUsize::new(0) })
    }
}

impl Resolver for Table {
    fn resolve(&self, host: &str) -> Resolving {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.get_mut(host) {
            Some(left) if left.len() > 1 => left.pop(),
            Some(left) => left.last().cloned(),
            None => None,
        };
        Box::pin(async { answer.ok_or_else(|| io::Error::other("no such name")) })
    }
}

fn names() -> Arc<Table> {
    Table::of(&[
        ("public.example", &[&["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "93.184.216.34"]]),
        ("private.example", &[&["10.0.0.8"]]),
        ("mixed.example", &[&["93.184.216.34", "10.0.0.8"]]),
        ("mixed2.example", &[&["10.0.0.8", "93.184.216.34"]]),
        ("empty.example", &[&[]]),
        ("xn--bcher-kva.example", &[&["93.184.216.34"]]),
    ])
}

#[tokio::test]
async fn pt_w3_pt_w4_pt_w5_pt_w6_pt_w12_what_may_not_be_called_is_rejected_in_these_words() {
    use GuardError::{Credentials, Invalid, NoHost, NotAllowed, Scheme, Unresolved};
    let guard = Guard::new(names(), &[]);
    let long = format!("https://public.example/{}", "a".repeat(2_048));
    let rejected = [
        ("", Invalid, "invalid callback URL"),
        ("https://public.example/\nx", Invalid, "invalid callback URL"),
        ("http://[::1", Invalid, "invalid callback URL"),
        ("http://a b/", Invalid, "invalid callback URL"),
        ("http:public.example", Invalid, "invalid callback URL"),
        ("://public.example", Invalid, "invalid callback URL"),
        (&long, Invalid, "invalid callback URL"),
        ("file:///etc/passwd", Scheme, "callback URL must use http or https"),
        ("ftp://public.example/x", Scheme, "callback URL must use http or https"),
        ("gopher://public.example/", Scheme, "callback URL must use http or https"),
        ("javascript:alert(1)", Scheme, "callback URL must use http or https"),
        ("public.example/hook", Scheme, "callback URL must use http or https"),
        ("http://", NoHost, "callback URL host is required"),
        ("http:///hook", NoHost, "callback URL host is required"),
        ("https://?x", NoHost, "callback URL host is required"),
        ("http://:80/", NoHost, "callback URL host is required"),
        ("http://user@public.example/", Credentials, "callback URL credentials are not allowed"),
        ("http://:pw@public.example/", Credentials, "callback URL credentials are not allowed"),
        ("http://localhost/", NotAllowed, "callback URL host is not allowed"),
        ("http://nowhere.example/", Unresolved, "could not resolve callback host"),
        ("http://empty.example/", Unresolved, "could not resolve callback host"),
    ];
    for (url, error, text) in rejected {
        assert_eq!(guard.check(url).await, Err(error), "{url}");
        assert_eq!(error.to_string(), text);
    }
    let not_allowed = [
        "http://LOCALHOST/",
        "http://localhost./",
        "http://LocalHost.:8080/x",
        "http://api.localhost/",
        "https://a.b.localhost./",
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://0/",
        "http://127.0.0.1:9000/",
        "http://169.254.169.254/latest/meta-data",
        "http://2852039166/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://198.18.0.1/",
        "http://198.19.255.255/",
        "http://169.254.0.1/",
        "http://10.0.0.8/",
        "http://172.31.0.1/",
        "http://0.0.0.0/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001::1]/",
        "http://[::127.0.0.1]/",
        "http://[0:0:0:0:0:ffff:10.0.0.8]/",
        "http://①②⑦.0.0.1/",
        "http://127。0。0。1/",
        "http://private.example/",
        "http://PRIVATE.example./",
        "http://mixed.example/",
        "http://mixed2.example/",
    ];
    for url in not_allowed {
        assert_eq!(guard.check(url).await, Err(NotAllowed), "{url}");
    }
}

#[tokio::test]
async fn pt_w12_public_addresses_pass_once_each_in_their_order() {
    let guard = Guard::new(names(), &[]);
    let checked = guard.check("https://public.example:8443/a?b=c").await.unwrap();
    let addresses = ["93.184.216.34:8443", "[2606:2800:220:1:248:1893:25c8:1946]:8443"];
    assert_eq!(checked.addresses, addresses.map(|text| text.parse().unwrap()));
    assert_eq!(
        (checked.host.as_str(), checked.url.as_str()),
        ("public.example", "https://public.example:8443/a?b=c")
    );
    for (url, address) in [
        ("http://8.8.8.8/", "8.8.8.8:80"),
        ("https://1.1.1.1/", "1.1.1.1:443"),
        ("http://[2001:4860:4860::8888]/", "[2001:4860:4860::8888]:80"),
        ("http://[::ffff:8.8.8.8]/", "[::ffff:8.8.8.8]:80"),
        ("http://bücher.example/", "93.184.216.34:80"),
        ("HTTP://PUBLIC.EXAMPLE/", "93.184.216.34:80"),
    ] {
        assert_eq!(guard.check(url).await.unwrap().addresses[0], address.parse().unwrap(), "{url}");
    }
}

#[tokio::test]
async fn trusted_hosts_pass_whatever_their_addresses_and_others_do_not() {
    let trusted = ["127.0.0.1:9000", "private.example", "*.corp.example", "[::1]:7", "localhost:5"];
    let table = Table::of(&[
        ("private.example", &[&["10.0.0.8"]]),
        ("a.corp.example", &[&["10.0.0.9"]]),
        ("corp.example", &[&["10.0.0.9"]]),
        ("evilcorp.example", &[&["10.0.0.9"]]),
        ("localhost", &[&["127.0.0.1"]]),
    ]);
    let guard = Guard::new(table, &trusted);
    let passes = [
        "http://127.0.0.1:9000/x",
        "http://private.example:81/",
        "https://PRIVATE.example./",
        "http://a.corp.example/",
        "http://[::1]:7/",
        "http://localhost:5/",
    ];
    for url in passes {
        assert!(guard.check(url).await.is_ok(), "{url}");
    }
    let rejected = [
        "http://127.0.0.1:9001/",
        "http://127.0.0.1/",
        "http://127.0.0.2:9000/",
        "http://corp.example/",
        "http://evilcorp.example/",
        "http://[::1]/",
        "http://localhost/",
        "http://private.example.localhost/",
    ];
    for url in rejected {
        assert_eq!(guard.check(url).await, Err(GuardError::NotAllowed), "{url}");
    }
    assert_eq!(guard.check("ftp://private.example/").await, Err(GuardError::Scheme));
}

#[tokio::test]
async fn a_name_that_means_something_else_now_is_judged_by_what_it_means_now() {
    let table = Table::of(&[("rebind.example", &[&["93.184.216.34"], &["127.0.0.1"]])]);
    let guard = Guard::new(table, &[]);
    assert!(guard.check("http://rebind.example/").await.is_ok());
    assert_eq!(guard.check("http://rebind.example/").await, Err(GuardError::NotAllowed));
}

#[tokio::test]
async fn a_batch_asks_once_for_every_name() {
    let table = names();
    let guard = Guard::new(table.clone(), &[]);
    let batch = guard.for_batch();
    for _ in 0..50 {
        assert!(batch.check("http://public.example/").await.is_ok());
        assert_eq!(batch.check("http://nowhere.example/").await, Err(GuardError::Unresolved));
    }
    assert_eq!(table.asked.load(Ordering::SeqCst), 2);
    assert!(guard.check("http://public.example/").await.is_ok());
    assert_eq!(table.asked.load(Ordering::SeqCst), 3, "the guard itself remembers nothing");
}

struct Silent;

impl Resolver for Silent {
    fn resolve(&self, _host: &str) -> Resolving {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_name_that_takes_too_long_does_not_resolve() {
    let guard = Guard::new(Arc::new(Silent), &[]).resolve_timeout(Duration::from_millis(5));
    assert_eq!(guard.check("http://slow.example/").await, Err(GuardError::Unresolved));
}

/// Knows every name but those below `slow.example`, for which it never answers.
struct HalfSilent;

impl Resolver for HalfSilent {
    fn resolve(&self, host: &str) -> Resolving {
        match host.ends_with("slow.example") {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(Ok(vec!["93.184.216.34".parse().unwrap()]))),
        }
    }
}

/// Names of one tenant that do not resolve delay no name of another tenant.
#[tokio::test]
async fn defect_11_slow_names_of_one_tenant_leave_turns_for_others() {
    let guard = Guard::new(Arc::new(HalfSilent), &[]).resolve_timeout(Duration::from_millis(500));
    let (one, other) = (guard.on_behalf_of(&Name::fixed("a")), guard.on_behalf_of(&Name::fixed("b")));
    let slow: Vec<_> = (0..200)
        .map(|n| {
            let one = one.for_batch();
            tokio::spawn(async move { one.check(&format!("http://{n}.slow.example/")).await })
        })
        .collect();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    for n in 0..100 {
        assert!(
            other.check(&format!("http://{n}.example/")).await.is_ok(),
            "another tenant waits with name {n}"
        );
    }
    assert_eq!(one.check("http://quick.example/").await, Err(GuardError::Unresolved), "its own names wait");
    for asked in slow {
        assert_eq!(asked.await.unwrap(), Err(GuardError::Unresolved));
    }
}

#[test]
fn what_is_logged_of_an_address_holds_no_secret() {
    for (url, shown) in [
        ("https://user:pw@h.example:8443/a?token=1#f", "https://h.example:8443/a"),
        ("http://h.example", "http://h.example/"),
        ("no url", "an address that is no URL"),
    ] {
        assert_eq!(redacted(url), shown);
    }
}
