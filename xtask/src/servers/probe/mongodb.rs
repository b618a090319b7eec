//! MongoDB's OP_MSG: hello, the version, and the commands that set up a one-member replica set.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};

use super::{
    Answer, ServerUrl,
    bson::{Document, Reply},
    connect, take,
};

const OP_MSG: u32 = 2013;
const HEADER: usize = 16;
const LARGEST_MESSAGE: usize = 48 << 20;

/// Reads the version; never needs a login.
pub(crate) fn probe(url: &ServerUrl) -> Result<Answer> {
    if url.scheme == "mongodb+srv" {
        return Ok(Answer::new("unknown").with_note("a mongodb+srv address was not checked"));
    }
    run(url, Document::new().int("hello", 1))?;
    let reply = run(url, Document::new().int("buildInfo", 1))?;
    Ok(Answer::new(reply.text("version").unwrap_or("unknown")))
}

/// Whether the server takes writes now.
pub(crate) fn is_primary(url: &ServerUrl) -> Result<bool> {
    Ok(run(url, Document::new().int("hello", 1))?.is_true("isWritablePrimary"))
}

/// Makes the server the only member of the replica set `name`.
///
/// A server whose data already belongs to the set is told its address anew, because the port may
/// have changed since it last ran.
pub(crate) fn form_replica_set(url: &ServerUrl, name: &str, durable: bool) -> Result<()> {
    let member = Document::new().int("_id", 0).text("host", &format!("{}:{}", url.host, url.port));
    let config = |version: i32| {
        Document::new()
            .text("_id", name)
            .int("version", version)
            .bool("writeConcernMajorityJournalDefault", durable)
            .array("members", std::slice::from_ref(&member))
    };
    let hello = run(url, Document::new().int("hello", 1))?;
    let told = match hello.text("setName") {
        Some(_) => return Ok(()),
        None => run(url, Document::new().document("replSetInitiate", &config(1))),
    };
    match told {
        Err(err) if err.downcast_ref::<CommandError>().is_some_and(CommandError::is_initialised) => {
            let again = Document::new().document("replSetReconfig", &config(1)).bool("force", true);
            run(url, again).map(drop)
        }
        other => other.map(drop),
    }
}

/// A command that the server refused.
#[derive(Debug)]
struct CommandError {
    code: i64,
    message: String,
}

impl CommandError {
    fn is_initialised(&self) -> bool {
        const ALREADY_INITIALIZED: i64 = 23;
        self.code == ALREADY_INITIALIZED
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for CommandError {}

fn run(url: &ServerUrl, command: Document) -> Result<Reply> {
    let mut stream = connect(url)?;
    stream.write_all(&message(&command.text("$db", "admin")))?;
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).context("the server does not answer as MongoDB does")?;
    let mut fields = head.as_slice();
    let length = u32::from_le_bytes(take(&mut fields, 4)?.try_into()?) as usize;
    take(&mut fields, 8)?;
    if u32::from_le_bytes(take(&mut fields, 4)?.try_into()?) != OP_MSG
        || !(HEADER + 5..LARGEST_MESSAGE).contains(&length)
    {
        bail!("this is not a MongoDB server");
    }
    let mut body = vec![0; length - HEADER];
    stream.read_exact(&mut body)?;
    let mut body = body.as_slice();
    take(&mut body, 5)?; // flags, and the kind of the only section
    verdict(Reply::parse(body)?)
}

fn verdict(reply: Reply) -> Result<Reply> {
    if reply.number("ok") == Some(1.0) {
        return Ok(reply);
    }
    let code = reply.number("code").unwrap_or_default() as i64;
    let message = reply.text("errmsg").unwrap_or("the command failed").to_owned();
    Err(CommandError { code, message }.into())
}

fn message(command: &Document) -> Vec<u8> {
    let document = command.to_bytes();
    let length = u32::try_from(HEADER + 5 + document.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    for number in [length, 1, 0, OP_MSG, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.push(0);
    bytes.extend(document);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_its_own_length() {
        let bytes = message(&Document::new().int("hello", 1));
        assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len());
        assert_eq!(u32::from_le_bytes(bytes[12..16].try_into().unwrap()), OP_MSG);
        assert_eq!(&bytes[16..21], &[0; 5]);
    }

    #[test]
    fn a_refused_command_is_an_error_with_its_code() {
        let refused = Document::new().int("ok", 0).int("code", 23).text("errmsg", "already");
        let error = verdict(Reply::parse(&refused.to_bytes()).unwrap()).unwrap_err();
        let error = error.downcast_ref::<CommandError>().unwrap();
        assert!(error.is_initialised());
        assert_eq!(error.to_string(), "already (code 23)");
    }
}
