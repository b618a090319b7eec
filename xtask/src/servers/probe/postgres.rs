//! PostgreSQL's protocol, version 3: log in without a password, read the version, run a statement.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use anyhow::{Context, Result, bail};

use super::{Answer, ServerUrl, connect, take, take_cstr};

const PROTOCOL_3: i32 = 196_608;
const AUTHENTICATED: [u8; 4] = [0; 4];
const LARGEST_MESSAGE: usize = 1 << 20;
/// SQLSTATE of a database that does not exist.
pub(crate) const NO_SUCH_DATABASE: &str = "3D000";

/// An error that the server reported.
#[derive(Debug)]
pub(crate) struct ServerError {
    pub(crate) code: String,
    message: String,
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)
    }
}

impl std::error::Error for ServerError {}

/// Logs in to the URL's database and reads the version.
pub(crate) fn probe(url: &ServerUrl) -> Result<Answer> {
    let user = url.user.as_deref().unwrap_or("postgres");
    let database = url.database.as_deref().unwrap_or(user);
    Ok(Session::open(url, user, database)?.1)
}

/// Runs one statement in `database`.
pub(crate) fn execute(url: &ServerUrl, database: &str, sql: &str) -> Result<()> {
    let (session, _) = Session::open(url, url.user.as_deref().unwrap_or("postgres"), database)?;
    match session {
        Some(mut session) => session.query(sql),
        None => bail!("the server asks for a password"),
    }
}

struct Session {
    stream: TcpStream,
}

impl Session {
    /// The session is `None` when the server wants a password: the drivers can give one, we cannot.
    fn open(url: &ServerUrl, user: &str, database: &str) -> Result<(Option<Self>, Answer)> {
        let mut session = Self { stream: connect(url)? };
        session.stream.write_all(&startup(user, database))?;
        let mut version = String::from("unknown");
        loop {
            let (kind, body) = session.message()?;
            match kind {
                b'R' if body != AUTHENTICATED => {
                    let answer =
                        Answer::new(version).with_note("asks for a password: the login was not checked");
                    return Ok((None, answer));
                }
                b'S' => version = server_version(&body)?.unwrap_or(version),
                b'E' => return Err(error_of(&body)?.into()),
                b'Z' => return Ok((Some(session), Answer::new(version))),
                _ => {}
            }
        }
    }

    fn query(&mut self, sql: &str) -> Result<()> {
        let mut message = vec![b'Q'];
        message.extend(i32::try_from(sql.len() + 5)?.to_be_bytes());
        message.extend(sql.as_bytes());
        message.push(0);
        self.stream.write_all(&message)?;
        let mut failure = None;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'E' => failure = Some(error_of(&body)?),
                b'Z' => return failure.map_or(Ok(()), |err| Err(err.into())),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).context("the server does not answer as PostgreSQL does")?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
        if !(4..LARGEST_MESSAGE).contains(&length) {
            bail!("this is not a PostgreSQL server");
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }
}

fn startup(user: &str, database: &str) -> Vec<u8> {
    let mut body = PROTOCOL_3.to_be_bytes().to_vec();
    for text in ["user", user, "database", database] {
        body.extend(text.as_bytes());
        body.push(0);
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &body].concat()
}

/// The version, if this setting is it.
fn server_version(mut setting: &[u8]) -> Result<Option<String>> {
    let name = take_cstr(&mut setting)?;
    let value = take_cstr(&mut setting)?;
    Ok((name == "server_version").then_some(value))
}

fn error_of(mut body: &[u8]) -> Result<ServerError> {
    let mut error = ServerError { code: String::new(), message: String::new() };
    loop {
        match take(&mut body, 1)?[0] {
            0 => return Ok(error),
            b'C' => error.code = take_cstr(&mut body)?,
            b'M' => error.message = take_cstr(&mut body)?,
            _ => drop(take_cstr(&mut body)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_startup_message_counts_its_own_length() {
        let message = startup("ratchet", "jobs");
        assert_eq!(message.len(), 4 + 4 + "user\0ratchet\0database\0jobs\0\0".len());
        assert_eq!(u32::from_be_bytes(message[..4].try_into().unwrap()) as usize, message.len());
        assert_eq!(&message[4..8], &[0, 3, 0, 0]);
    }

    #[test]
    fn the_version_is_one_setting_among_many() {
        assert_eq!(server_version(b"server_version\x0015.18\0").unwrap().as_deref(), Some("15.18"));
        assert_eq!(server_version(b"TimeZone\0UTC\0").unwrap(), None);
    }

    #[test]
    fn an_error_keeps_its_code_and_text() {
        let error = error_of(b"SFATAL\0C3D000\0Mdatabase \"x\" does not exist\0\0").unwrap();
        assert_eq!(error.code, NO_SUCH_DATABASE);
        assert_eq!(error.to_string(), "database \"x\" does not exist (SQLSTATE 3D000)");
    }

    #[test]
    fn an_error_that_is_cut_short_is_refused() {
        assert!(error_of(b"SFATAL\0C3D0").is_err());
    }
}
