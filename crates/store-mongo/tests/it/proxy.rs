//! A TCP proxy in front of one server, whose links can be cut.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running proxy. It goes when this value goes.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    cuts: watch::Sender<()>,
    serving: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = watch::channel(());
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(link(client, upstream, cut.clone()));
            }
        });
        Self {
            port,
            cuts,
            serving,
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Closes all connections that there are. New ones are served.
    pub(crate) fn cut(&self) {
        self.cuts.send_replace(());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn link(mut client: TcpStream, upstream: u16, mut cut: watch::Receiver<()>) {
    cut.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = cut.changed() => {}
    }
}
