//! Can the router that runs here serve?
//!
//! For who asks again and again and ends what does not answer well, such as Docker: an image that holds nothing but this
//! program has no other that could ask.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use paddler_core::config::{Config, Mode, Registry, Value};
use serde_json::json;

use crate::args::look::Health;
use crate::{Failure, print, settings};

/// How long each step may take. A probe is given some seconds as a rule, and this is to say what is wrong before that.
const STEP: Duration = Duration::from_secs(2);

/// Asks the management listener, and fails unless the router is ready.
pub(crate) fn health(args: &Health) -> Result<(), Failure> {
    let address = reached_at(listener(args)?);
    let answer = ask(address).map_err(|error| format!("{address} (management) does not answer: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if !head.starts_with("HTTP/1.1 ") {
        return Err(format!("{address} (management) does not speak HTTP in clear").into());
    }
    if head.starts_with("HTTP/1.1 200") {
        return print(body.as_bytes());
    }
    Err(format!("{address}: {}", body.trim()).into())
}

/// Where the router is told to listen, by the same flags, environment and file.
fn listener(args: &Health) -> Result<SocketAddr, Failure> {
    let mut config = Config::default();
    if let Some(file) = &args.config {
        let text = settings::text(file, "the config")?;
        let (read, faults) = settings::read(file, &text, Mode::Gateway);
        if let Some(faults) = faults {
            return Err(faults.into());
        }
        config = read;
    }
    if let Some(address) = &args.management {
        let flag = Value::from_json(&json!({"management": address}))?;
        config = config.overlay(&flag, "--management", &Registry::new())?;
    }
    if config.tls.is_some_and(|tls| tls.management) {
        return Err(
            "the management listener speaks TLS: ask its /readyz with a program that has its CA".into(),
        );
    }
    let off = "management is off, so nobody can be asked: give it an address on loopback";
    config.management.ok_or_else(|| off.into())
}

/// Who listens on every address is reached on this machine's own.
fn reached_at(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    const LONGEST: u64 = 64 * 1024;
    let mut stream = TcpStream::connect_timeout(&address, STEP)?;
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
