//! Asks a server, in its own protocol, whether it is there and what it is.
//!
//! The three clients here know just enough of each protocol to log in without a password, read the
//! version and run one statement. They exist so that `xtask` builds in seconds and needs no client
//! programs on the machine; anything more is the drivers' business.

pub(crate) mod bson;
pub(crate) mod mongodb;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod url;

use std::{
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};

pub(crate) use self::url::ServerUrl;

/// Long enough for a busy two-core machine, short enough that `up` never seems to hang.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What a server said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The version, in the server's own words.
    pub(crate) version: String,
    /// What could not be checked, if anything.
    pub(crate) note: Option<String>,
}

impl Answer {
    fn new(version: impl Into<String>) -> Self {
        Self { version: version.into(), note: None }
    }

    fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

fn connect(url: &ServerUrl) -> Result<TcpStream> {
    let place = format!("{}:{}", url.host, url.port);
    let addresses: Vec<_> = (url.host.as_str(), url.port)
        .to_socket_addrs()
        .with_context(|| format!("cannot look up {place}"))?
        .collect();
    let mut last = anyhow!("{place} has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(err) => last = anyhow!(err).context(format!("nobody answers at {place}")),
        }
    }
    Err(last)
}

/// Takes `n` bytes off the front of a message, or says that it was cut short.
fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n).context("the message was cut short")?;
    *bytes = tail;
    Ok(head)
}

/// Takes a zero-terminated text off the front of a message.
fn take_cstr(bytes: &mut &[u8]) -> Result<String> {
    let end = bytes.iter().position(|b| *b == 0).context("a text in the message has no end")?;
    let text = String::from_utf8_lossy(take(bytes, end)?).into_owned();
    take(bytes, 1)?;
    Ok(text)
}
