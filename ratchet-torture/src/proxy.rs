//! A way to a server that can be cut and that can lead elsewhere: what is under way is dropped, and nobody gets through
//! until it is mended.

use std::net::Ipv4Addr;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to one server at a time.
pub(crate) struct Proxy {
    port: u16,
    way: watch::Sender<Way>,
}

/// Where connections lead.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    host: String,
    port: u16,
    cut: bool,
}

impl Proxy {
    /// Begins to forward.
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

    /// Leads to another port of the same host from now on.
    pub(crate) fn lead_to(&self, port: u16) {
        self.way.send_modify(|way| way.port = port);
    }
}

/// Until one side ends, or the way is another one. Whoever comes while it is cut finds a closed door.
async fn forward(mut client: TcpStream, mut way: watch::Receiver<Way>) {
    let begun = way.borrow_and_update().clone();
    if begun.cut {
        return;
    }
    let both = async {
        let mut server = TcpStream::connect((begun.host.as_str(), begun.port)).await?;
        // A statement waits for its reply; nothing is gained by gathering.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        _ = both => {}
        _ = way.wait_for(|way| *way != begun) => {}
    }
}
