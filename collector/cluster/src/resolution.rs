//! Addresses of workers.

use std::net::SocketAddr;

use tokio::net::lookup_host;
use url::{Host, Url};

use crate::error::ClusterError;

/// Address of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerAddress {
    /// Address in messages.
    pub(crate) name: String,
    pub(crate) url: Url,
    /// Name that the certificate must have; `None` without TLS.
    pub(crate) tls_name: Option<String>,
}

/// Parses the addresses of workers: `HOST:PORT` or `https://HOST:PORT` each. Resolves a single one:
/// [`each`] address of its host is a worker, as in a headless service of Kubernetes.
pub(crate) async fn resolve(asked: &[String]) -> Result<Vec<WorkerAddress>, ClusterError> {
    let workers = asked.iter().map(|text| parse(text));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let [one] = &*workers else {
        return Ok(workers);
    };
    let (Some(Host::Domain(host)), Some(port)) = (one.url.host(), one.url.port_or_known_default())
    else {
        return Ok(workers);
    };
    let found = lookup_host((host, port)).await;
    let found = found.map_err(|error| bad(&one.name, error.to_string()))?;
    Ok(each(one, found))
}

/// Returns a worker for each address of the host of `one`. A loopback host is one worker, although
/// it has an address of each family.
fn each(one: &WorkerAddress, found: impl Iterator<Item = SocketAddr>) -> Vec<WorkerAddress> {
    let mut found: Vec<SocketAddr> = found.collect();
    found.sort();
    found.dedup();
    if found.len() < 2 || found.iter().all(|address| address.ip().is_loopback()) {
        return vec![one.clone()];
    }
    let worker = |address: SocketAddr| {
        let mut url = one.url.clone();
        // The URL has a host, so setting the host does not fail.
        let _ = url.set_ip_host(address.ip());
        WorkerAddress {
            name: address.to_string(),
            url,
            tls_name: one.tls_name.clone(),
        }
    };
    found.into_iter().map(worker).collect()
}

fn parse(text: &str) -> Result<WorkerAddress, ClusterError> {
    let with_scheme = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let url = Url::parse(&with_scheme).map_err(|error| bad(text, error.to_string()))?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.username() == "";
    if !matches!(url.scheme(), "http" | "https") || !is_bare {
        return Err(bad(text, "expected HOST:PORT or https://HOST:PORT".into()));
    }
    // `Url` omits the usual port of the scheme.
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(bad(text, "it has no host and port".into()));
    };
    if !text.ends_with(&format!(":{port}")) {
        return Err(bad(text, "it has no port: expected HOST:PORT".into()));
    }
    let is_tls = url.scheme() == "https";
    Ok(WorkerAddress {
        name: format!("{host}:{port}"),
        tls_name: is_tls.then(|| host.trim_matches(['[', ']']).to_owned()),
        url,
    })
}

fn bad(address: &str, reason: String) -> ClusterError {
    ClusterError::Address {
        address: address.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port() {
        let check = |text: &str, name: &str, tls_name: Option<&str>| {
            let worker = parse(text).unwrap();
            assert_eq!(
                (&*worker.name, worker.tls_name.as_deref()),
                (name, tls_name)
            );
        };
        check("a:4330", "a:4330", None);
        check("10.0.0.1:80", "10.0.0.1:80", None);
        check("[::1]:4330", "[::1]:4330", None);
        check("http://a.b:4330", "a.b:4330", None);
        check("https://a.b:443", "a.b:443", Some("a.b"));
        check("https://[::1]:4330", "[::1]:4330", Some("::1"));
        for text in [
            "",
            "a",
            ":1",
            "a:",
            "a:70000",
            "a:1/b",
            "ftp://a:1",
            "https://a",
            "u@a:1",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_name_may_be_of_several_workers() {
        let one = parse("https://workers:4330").unwrap();
        let of = |texts: &[&str]| {
            let found = texts.iter().map(|text| text.parse().unwrap());
            let workers = each(&one, found).into_iter();
            workers
                .map(|of| (of.url.to_string(), of.tls_name.unwrap()))
                .collect::<Vec<_>>()
        };
        let name = || "workers".to_owned();
        let whole = vec![("https://workers:4330/".to_owned(), name())];
        assert_eq!(of(&["10.0.0.1:4330"]), whole);
        assert_eq!(of(&["127.0.0.1:4330", "[::1]:4330"]), whole);
        let two = [
            ("https://10.0.0.1:4330/".to_owned(), name()),
            ("https://[fd00::2]:4330/".to_owned(), name()),
        ];
        let found = of(&["[fd00::2]:4330", "10.0.0.1:4330", "10.0.0.1:4330"]);
        assert_eq!(found, two);
    }
}
