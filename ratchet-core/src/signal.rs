//! The signals by which the operating system asks a process to end.

use std::io;

/// Completes when the process is asked to end: by SIGTERM, as service managers and Kubernetes do, or by SIGINT, which is
/// Ctrl-C. From the first call on neither ends the process by itself any more.
///
/// # Errors
/// If the process cannot listen to signals.
pub async fn shutdown_signal() -> io::Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}

/// The requests to end, one after another.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(windows)]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: tokio::signal::windows::ctrl_c()? })
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(windows)]
    pub(crate) async fn next(&mut self) {
        let _ = self.interrupt.recv().await;
    }
}
