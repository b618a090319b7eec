//! The protocol of MySQL and MariaDB: log in without a password, read the version, run a statement.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use anyhow::{Context, Result, bail};

use super::{Answer, ServerUrl, connect, take, take_cstr};

const LONG_PASSWORD: u32 = 0x1;
const CONNECT_WITH_DB: u32 = 0x8;
const PROTOCOL_41: u32 = 0x200;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const UTF8MB4: u8 = 45;
const QUERY: u8 = 3;

/// Error number of a database that does not exist.
pub(crate) const NO_SUCH_DATABASE: u16 = 1049;

/// An error that the server reported.
#[derive(Debug)]
pub(crate) struct ServerError {
    pub(crate) code: u16,
    message: String,
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (error {})", self.message, self.code)
    }
}

impl std::error::Error for ServerError {}

/// Logs in to the URL's database and reads the version.
pub(crate) fn probe(url: &ServerUrl) -> Result<Answer> {
    let mut session = Session::greet(url)?;
    let answer = Answer::new(session.version.clone());
    if url.has_password {
        return Ok(answer.with_note("has a password: the login was not checked"));
    }
    session.log_in(url.user.as_deref().unwrap_or("root"), url.database.as_deref())?;
    Ok(answer)
}

/// Runs one statement that returns no rows, outside of any database.
pub(crate) fn execute(url: &ServerUrl, sql: &str) -> Result<()> {
    let mut session = Session::greet(url)?;
    session.log_in(url.user.as_deref().unwrap_or("root"), None)?;
    session.sequence = 0;
    session.send(&[&[QUERY], sql.as_bytes()].concat())?;
    let reply = session.packet()?;
    check(&reply)
}

struct Session {
    stream: TcpStream,
    sequence: u8,
    version: String,
    plugin: String,
}

impl Session {
    fn greet(url: &ServerUrl) -> Result<Self> {
        let mut session =
            Self { stream: connect(url)?, sequence: 0, version: String::new(), plugin: String::new() };
        let greeting = session.packet()?;
        check(&greeting)?;
        (session.version, session.plugin) = read_greeting(&greeting)?;
        Ok(session)
    }

    fn log_in(&mut self, user: &str, database: Option<&str>) -> Result<()> {
        let response = login(user, database, &self.plugin);
        self.send(&response)?;
        loop {
            let reply = self.packet()?;
            match reply.as_slice() {
                [0x00, ..] => return Ok(()),
                // "Use another method": with no password every method's first answer is empty.
                [0xfe, ..] => self.send(&[])?,
                [0x01, 0x03, ..] => {}
                [0x01, ..] => bail!("the server asks `{user}` for a password"),
                other => check(other)?,
            }
        }
    }

    fn send(&mut self, body: &[u8]) -> Result<()> {
        let [a, b, c, _] = u32::try_from(body.len())?.to_le_bytes();
        self.stream.write_all(&[&[a, b, c, self.sequence], body].concat())?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    fn packet(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).context("the server does not answer as MySQL does")?;
        let [a, b, c, sequence] = head;
        let mut body = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.stream.read_exact(&mut body)?;
        self.sequence = sequence.wrapping_add(1);
        Ok(body)
    }
}

/// The version and the login method that the server proposes.
fn read_greeting(mut bytes: &[u8]) -> Result<(String, String)> {
    if take(&mut bytes, 1)? != [10] {
        bail!("this is not a MySQL or MariaDB server");
    }
    let version = take_cstr(&mut bytes)?;
    // Thread id, salt, filler, abilities, charset, status, abilities, salt length, reserved.
    take(&mut bytes, 4 + 8 + 1 + 2 + 1 + 2 + 2)?;
    let salt = usize::from(take(&mut bytes, 1)?[0]);
    take(&mut bytes, 10)?;
    take(&mut bytes, salt.saturating_sub(8).max(13))?;
    let plugin = take_cstr(&mut bytes).unwrap_or_default();
    // MariaDB 10 puts an old MySQL version in front of its own for the sake of old replicas.
    let version = version.strip_prefix("5.5.5-").map_or(version.clone(), str::to_owned);
    Ok((version, plugin))
}

fn login(user: &str, database: Option<&str>, plugin: &str) -> Vec<u8> {
    let mut abilities = LONG_PASSWORD | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
    if database.is_some() {
        abilities |= CONNECT_WITH_DB;
    }
    let mut body = abilities.to_le_bytes().to_vec();
    body.extend(0x0100_0000_u32.to_le_bytes());
    body.push(UTF8MB4);
    body.extend([0; 23]);
    body.extend(user.as_bytes());
    body.extend([0, 0]); // end of the name, then an empty password
    for text in database.into_iter().chain([plugin]) {
        body.extend(text.as_bytes());
        body.push(0);
    }
    body
}

fn check(packet: &[u8]) -> Result<()> {
    let mut bytes = packet;
    match bytes.first() {
        Some(0xff) => {
            take(&mut bytes, 1)?;
            let code = u16::from_le_bytes(take(&mut bytes, 2)?.try_into()?);
            if bytes.first() == Some(&b'#') {
                take(&mut bytes, 6)?;
            }
            let message = String::from_utf8_lossy(bytes).into_owned();
            Err(ServerError { code, message }.into())
        }
        Some(_) => Ok(()),
        None => bail!("the server sent an empty answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(version: &str) -> Vec<u8> {
        let mut bytes = vec![10];
        bytes.extend(version.as_bytes());
        bytes.push(0);
        bytes.extend([7; 4 + 8]);
        bytes.push(0);
        bytes.extend([0; 2 + 1 + 2 + 2]);
        bytes.push(21);
        bytes.extend([0; 10]);
        bytes.extend([9; 12]);
        bytes.push(0);
        bytes.extend(b"caching_sha2_password\0");
        bytes
    }

    #[test]
    fn the_greeting_tells_version_and_method() {
        let (version, plugin) = read_greeting(&greeting("9.7.4")).unwrap();
        assert_eq!((version.as_str(), plugin.as_str()), ("9.7.4", "caching_sha2_password"));
    }

    #[test]
    fn mariadbs_compatibility_prefix_is_dropped() {
        let (version, _) = read_greeting(&greeting("5.5.5-10.11.14-MariaDB")).unwrap();
        assert_eq!(version, "10.11.14-MariaDB");
    }

    #[test]
    fn another_protocol_is_not_mistaken_for_a_greeting() {
        assert!(read_greeting(b"HTTP/1.1 400 Bad Request\r\n").is_err());
        assert!(read_greeting(&[10]).is_err());
    }

    #[test]
    fn an_error_packet_keeps_its_number_and_text() {
        let error = check(b"\xff\x19\x04#42000Unknown database 'x'").unwrap_err();
        let error = error.downcast_ref::<ServerError>().unwrap();
        assert_eq!(error.code, NO_SUCH_DATABASE);
        assert_eq!(error.to_string(), "Unknown database 'x' (error 1049)");
    }

    #[test]
    fn a_login_names_its_database_only_if_there_is_one() {
        let with = login("root", Some("ratchet"), "p");
        assert!(with.ends_with(b"root\0\0ratchet\0p\0"));
        assert!(login("root", None, "p").ends_with(b"root\0\0p\0"));
    }
}
