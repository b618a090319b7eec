//! A proxy whose server falls silent: answers stop once a certain text was sent.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// A proxy before a server. From the first statement on that has the mark in it, clients get no answers.
pub(crate) struct Cut {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    silent: Arc<Notify>,
}

impl Cut {
    pub(crate) async fn before(server: (String, u16), mark: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let silent = Arc::new(Notify::new());
        let told = silent.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.expect("the server");
                tokio::spawn(connect(client, server, mark, told.clone()));
            }
        });
        Self { address, silent }
    }

    /// Waits until the server has answered the statement with the mark, and the answer was held back.
    pub(crate) async fn is_silent(&self) {
        self.silent.notified().await;
    }
}

/// Passes everything on, in both directions, until the client is gone.
async fn connect(client: TcpStream, server: TcpStream, mark: &'static str, silent: Arc<Notify>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (marked, is_marked) = watch::channel(false);
    let answers = tokio::spawn(async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if *is_marked.borrow() {
                silent.notify_one();
            } else if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    });
    let mut sent = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        sent.extend_from_slice(&buffer[..length]);
        if sent.windows(mark.len()).any(|part| part == mark.as_bytes()) {
            marked.send_replace(true);
        }
        if to_server.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    answers.abort();
}
