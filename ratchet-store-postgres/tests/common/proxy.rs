//! A proxy between a store and the server that cuts connections at the worst moments.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;

use sqlx::postgres::PgConnectOptions;

/// The moment at which the next active connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cut {
    Never,
    /// As soon as the client sends a request: the server never receives it.
    BeforeRequest,
    /// Once the server has committed: the client never receives the answer.
    AfterCommit,
    /// Not at all, but the client receives neither the answer to a commit nor anything later.
    SilentAfterCommit,
}

/// A proxy on a port of its own. It ends with the test program.
pub(crate) struct Proxy {
    pub(crate) url: String,
    cut: Arc<AtomicU8>,
    /// Connections with a smaller number are silent.
    silent: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy that passes everything on to the server of this URL.
    pub(crate) fn to(url: &str) -> Self {
        let server: PgConnectOptions = url.parse().expect("a URL");
        let target = (server.get_host().to_owned(), server.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a port").port();
        let cut = Arc::new(AtomicU8::new(Cut::Never as u8));
        let (silent, opened) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (order, silence, count) = (Arc::clone(&cut), Arc::clone(&silent), Arc::clone(&opened));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((target.0.as_str(), target.1)).expect("the server answers");
                let mute = Mute { number: count.fetch_add(1, Ordering::SeqCst), below: Arc::clone(&silence) };
                pass_on(&client, &server, &order, &mute);
            }
        });
        let user = server.get_username();
        let database = server.get_database().unwrap_or(user);
        // Encrypted traffic cannot be cut at the right place.
        Self {
            url: format!("postgres://{user}@127.0.0.1:{port}/{database}?sslmode=disable"),
            cut,
            silent,
            opened,
        }
    }

    /// Silences the connections that are open now without closing them, like a cable that was pulled.
    pub(crate) fn silence(&self) {
        self.silent.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Cuts one connection, once.
    pub(crate) fn cut(&self, when: Cut) {
        self.cut.store(when as u8, Ordering::SeqCst);
    }
}

/// Whether a connection is silent.
#[derive(Clone)]
struct Mute {
    number: usize,
    below: Arc<AtomicUsize>,
}

impl Mute {
    fn is_on(&self) -> bool {
        self.number < self.below.load(Ordering::SeqCst)
    }
}

fn pass_on(client: &TcpStream, server: &TcpStream, order: &Arc<AtomicU8>, mute: &Mute) {
    let both = || (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
    let ((from, to), cut, off) = (both(), Arc::clone(order), mute.clone());
    thread::spawn(move || ended(&from, &to, requests(&from, &to, &cut, &off)));
    let ((to, from), cut, off) = (both(), Arc::clone(order), mute.clone());
    thread::spawn(move || ended(&to, &from, answers(&from, &to, &cut, &off)));
}

/// Closes both sides: however one direction ended, the other one has nothing to do any more.
fn ended(client: &TcpStream, server: &TcpStream, _: io::Result<()>) {
    // A side that is closed already is fine too.
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// Takes the order to cut, which is carried out once; returns whether it was given.
fn take(order: &AtomicU8, cut: Cut) -> bool {
    let never = Cut::Never as u8;
    order.compare_exchange(cut as u8, never, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

fn requests(mut client: &TcpStream, mut server: &TcpStream, order: &AtomicU8, mute: &Mute) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = client.read(&mut buffer)?;
        if length == 0 || take(order, Cut::BeforeRequest) {
            return Ok(());
        }
        if !mute.is_on() {
            server.write_all(&buffer[..length])?;
        }
    }
}

/// Passes on the server's messages in groups, as far as each `ReadyForQuery`. A group that tells of a finished command
/// while no transaction is open means that something is committed.
fn answers(mut server: &TcpStream, mut client: &TcpStream, order: &AtomicU8, mute: &Mute) -> io::Result<()> {
    const COMMAND_COMPLETE: u8 = b'C';
    const READY: u8 = b'Z';
    const NOTICE: u8 = b'A';
    const NO_TRANSACTION: &[u8] = b"I";
    let (mut group, mut complete, mut silent) = (Vec::new(), false, false);
    loop {
        let mut head = [0; 5];
        server.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        server.read_exact(&mut body)?;
        group.extend(head);
        group.extend(&body);
        complete |= kind == COMMAND_COMPLETE;
        // A notice stands for itself, between two answers.
        if kind == READY || (kind == NOTICE && group.len() == head.len() + body.len()) {
            let committed = kind == READY && complete && body == NO_TRANSACTION;
            if committed && take(order, Cut::AfterCommit) {
                return Ok(());
            }
            silent |= committed && take(order, Cut::SilentAfterCommit);
            if !silent && !mute.is_on() {
                client.write_all(&group)?;
            }
            (group, complete) = (Vec::new(), false);
        }
    }
}
