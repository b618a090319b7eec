//! A proxy between a store and the server that counts the statements.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Result;
use sqlx::postgres::PgConnectOptions;

/// The messages by which a client runs a statement: as text, or prepared.
const QUERY: u8 = b'Q';
const EXECUTE: u8 = b'E';

/// The URL of the proxy, and the count. The proxy ends with the program.
pub(super) fn to(url: &str) -> Result<(String, Arc<AtomicU64>)> {
    let server: PgConnectOptions = url.parse()?;
    let target = (server.get_host().to_owned(), server.get_port());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (port, count) = (listener.local_addr()?.port(), Arc::new(AtomicU64::new(0)));
    let statements = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // A client whose server is gone notices by itself.
            let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)) else { continue };
            pass_on(&client, &server, &statements);
        }
    });
    let user = server.get_username();
    let database = server.get_database().unwrap_or(user);
    // Encrypted statements could not be counted.
    Ok((format!("postgres://{user}@127.0.0.1:{port}/{database}?sslmode=disable"), count))
}

fn pass_on(client: &TcpStream, server: &TcpStream, statements: &Arc<AtomicU64>) {
    let both = || Ok::<_, io::Error>((client.try_clone()?, server.try_clone()?));
    let (Ok(there), Ok(back)) = (both(), both()) else { return };
    let statements = Arc::clone(statements);
    thread::spawn(move || ended(&there, requests(&there.0, &there.1, &statements)));
    thread::spawn(move || ended(&back, io::copy(&mut &back.1, &mut &back.0).map(drop)));
}

/// Closes both directions when one has ended.
fn ended((client, server): &(TcpStream, TcpStream), _: io::Result<()>) {
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

fn requests(mut client: &TcpStream, mut server: &TcpStream, statements: &AtomicU64) -> io::Result<()> {
    // The first message has no type byte.
    let mut kind = None;
    loop {
        let mut message: Vec<u8> = kind.into_iter().collect();
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(length.len())];
        client.read_exact(&mut body)?;
        if matches!(kind, Some(QUERY | EXECUTE)) {
            statements.fetch_add(1, Ordering::Relaxed);
        }
        message.extend(length);
        message.extend(body);
        server.write_all(&message)?;
        let mut next = [0];
        client.read_exact(&mut next)?;
        kind = Some(next[0]);
    }
}
