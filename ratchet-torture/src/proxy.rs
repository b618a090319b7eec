//! A way to a server that can be cut: what is under way is dropped, and nobody gets through until it is mended.

use std::net::Ipv4Addr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to one server.
pub(crate) struct Proxy {
    port: u16,
    cut: watch::Sender<bool>,
}

impl Proxy {
    /// Begins to forward.
    pub(crate) async fn to(host: &str, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (cut, server) = (watch::Sender::new(false), (host.to_owned(), port));
        let proxy = Self { port: listener.local_addr()?.port(), cut: cut.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), cut.subscribe()));
            }
        });
        Ok(proxy)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }
}

/// Until one side ends, or the way is cut. Whoever comes while it is cut finds a closed door.
async fn forward(mut client: TcpStream, server: (String, u16), mut cut: watch::Receiver<bool>) {
    if *cut.borrow() {
        return;
    }
    let both = async {
        let mut server = TcpStream::connect(server).await?;
        // A statement waits for its reply; nothing is gained by gathering.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = both => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
}
