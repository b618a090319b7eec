//! A TCP proxy that can be cut and redirected: open connections are dropped, and new ones refused while it is cut.

use std::net::Ipv4Addr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy that forwards connections to one server at a time.
pub(crate) struct Proxy {
    port: u16,
    way: watch::Sender<Way>,
}

/// The target of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    host: String,
    port: u16,
    cut: bool,
}

impl Proxy {
    /// Starts forwarding.
    pub(crate) async fn to(host: &str, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let way = watch::Sender::new(Way { host: host.to_owned(), port, cut: false });
        let proxy = Self { port: listener.local_addr()?.port(), way: way.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, way.subscribe()));
            }
        });
        Ok(proxy)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cut(&self) {
        self.way.send_modify(|way| way.cut = true);
    }

    pub(crate) fn mend(&self) {
        self.way.send_modify(|way| way.cut = false);
    }

    /// Redirects connections to another port of the same host.
    pub(crate) fn lead_to(&self, port: u16) {
        self.way.send_modify(|way| way.port = port);
    }
}

/// Forwards until one side ends or the target changes. Connections that arrive while it is cut are closed.
async fn forward(mut client: TcpStream, mut way: watch::Receiver<Way>) {
    let begun = way.borrow_and_update().clone();
    if begun.cut {
        return;
    }
    let both = async {
        let mut server = TcpStream::connect((begun.host.as_str(), begun.port)).await?;
        // A statement waits for its reply, so buffering gains nothing.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = both => {}
        _ = way.wait_for(|way| *way != begun) => {}
    }
}
