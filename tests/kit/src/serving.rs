//! Serving HTTP on a port of this machine, for stand-ins that can go away and come back.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Begins to serve.
type Begin = Box<dyn Fn(TcpListener) -> JoinHandle<()> + Send + Sync>;

/// A port that is served. That ends when this value goes.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    begin: Begin,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Serving {
    /// Answers all requests on the runtime that is running. Where there is no answer, the connection is
    /// closed without one.
    pub(crate) fn start<H, F, B, E>(
        listener: TcpListener,
        connections: http1::Builder,
        answer: H,
    ) -> Result<Self>
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let address = listener.local_addr().context("the address")?;
        let serve = move |stream: TcpStream| {
            let _ = stream.set_nodelay(true);
            let service = service_fn(answer.clone());
            let connection = connections.serve_connection(TokioIo::new(stream), service);
            // An error is a client that has gone, or a connection that is to be lost on purpose.
            async move { drop(connection.await) }
        };
        let begin: Begin = Box::new(move |listener| tokio::spawn(accept(listener, serve.clone())));
        let task = Mutex::new(Some(begin(listener)));
        Ok(Self {
            address,
            begin,
            task,
        })
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes all connections, and refuses new ones until [`Serving::come_back`].
    pub(crate) async fn go_away(&self) {
        if let Some(task) = self.replace(None) {
            task.abort();
            let _ = task.await;
        }
    }

    /// Serves again after [`Serving::go_away`], on the same port.
    pub(crate) async fn come_back(&self) -> Result<()> {
        self.go_away().await;
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.context("taking the port again")?;
        self.replace(Some((self.begin)(listener)));
        Ok(())
    }

    fn replace(&self, task: Option<JoinHandle<()>>) -> Option<JoinHandle<()>> {
        let mut serving = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut serving, task)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = self.replace(None) {
            task.abort();
        }
    }
}

/// Serves until it is aborted, and all connections with it.
async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = connections.spawn(serve(stream)),
            // Out of file descriptors, most likely: let some connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}
