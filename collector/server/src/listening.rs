//! An HTTP server on a socket of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running server.
#[derive(Debug)]
pub(crate) struct Listening {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

impl Listening {
    /// Listens and serves; port 0 takes a free one.
    pub(crate) async fn start(address: SocketAddr, router: Router) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let listener = listener.tap_io(|stream| {
            // Answers are small; what is slower works all the same.
            let _ = stream.set_nodelay(true);
        });
        let (stop, mut stopped) = watch::channel(false);
        let until_stopped = async move { drop(stopped.wait_for(|stop| *stop).await) };
        let served = axum::serve(listener, router).with_graceful_shutdown(until_stopped);
        Ok(Self {
            address,
            stop,
            task: tokio::spawn(served.into_future()),
        })
    }

    /// The address, with the port that was taken.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers what is in flight, for so long, and ends all connections.
    pub(crate) async fn stop(mut self, patience: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(patience, &mut self.task)
            .await
            .is_err()
        {
            self.task.abort();
        }
    }
}
