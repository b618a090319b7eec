//! The reason why no server could be selected. The driver's text for it contains names, so this connects once itself.

use std::io;
use std::time::Duration;

use mongodb::options::{ClientOptions, ServerAddress, Tls};
use ratchet_api::{StoreError, StoreErrorKind, why_unreachable};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time in which one server must answer.
const ANSWER: Duration = Duration::from_secs(2);

const DEFAULT_PORT: u16 = 27_017;

/// Adds to an [unavailable](StoreErrorKind::Unavailable) error which part of the address to check; other errors stay
/// as they are.
pub(crate) async fn explain(error: StoreError, connection: &ClientOptions) -> StoreError {
    if error.kind() != StoreErrorKind::Unavailable {
        return error;
    }
    let detail = match first_trouble(&connection.hosts).await {
        Some(trouble) => why_unreachable(&trouble),
        None if matches!(connection.tls, Some(Tls::Enabled(_))) => {
            "a server answers, but no TLS connection to it is made: it offers none, or its certificate is not \
             trusted; check the options for TLS in the URL"
        }
        None => {
            "a server answers, but none that takes writes: check `replicaSet` in the URL, that the set has a primary, \
             whether the server asks for TLS, and that it does not have too many connections"
        }
    };
    StoreError::new(StoreErrorKind::Unavailable, error.op(), detail)
}

/// The reason why the first server cannot be reached; `None` if any can.
async fn first_trouble(hosts: &[ServerAddress]) -> Option<io::Error> {
    let mut first = None;
    for host in hosts {
        match connect(host).await {
            Ok(()) => return None,
            Err(trouble) => first = first.or(Some(trouble)),
        }
    }
    first
}

async fn connect(host: &ServerAddress) -> io::Result<()> {
    // A Unix socket has neither port nor host name to get wrong.
    let ServerAddress::Tcp { host, port } = host else { return Ok(()) };
    let connected = timeout(ANSWER, TcpStream::connect((host.as_str(), port.unwrap_or(DEFAULT_PORT)))).await;
    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(drop)
}
