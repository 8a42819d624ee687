//! Serving HTTP on a port of this machine, for stand-ins that can go away and come back.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

/// Marks an answer in whose place the connection is closed.
#[derive(Clone, Copy)]
struct Lost;

/// No answer: the connection is closed.
pub(crate) fn lost() -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(Lost);
    response
}

/// A listener on a free port, and the URL of its root.
pub(crate) async fn listen() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.context("listening")?;
    let address = listener.local_addr().context("the address")?;
    Ok((listener, format!("http://{address}")))
}

/// A port that is served. That ends when this value goes.
pub(crate) struct Serving {
    address: SocketAddr,
    router: Router,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Serving {
    /// Answers all requests on the runtime that is running.
    pub(crate) fn start(listener: TcpListener, router: Router) -> Result<Self> {
        let address = listener.local_addr().context("the address")?;
        let task = tokio::spawn(accept(listener, router.clone()));
        Ok(Self {
            address,
            router,
            task: Mutex::new(Some(task)),
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
        self.replace(Some(tokio::spawn(accept(listener, self.router.clone()))));
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
async fn accept(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = connections.spawn(serve(stream, router.clone())),
            // Out of file descriptors, most likely: let some connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, router: Router) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = router.clone().oneshot(request);
        async move {
            let answer = answer.await.unwrap_or_else(|never| match never {});
            let is_lost = answer.extensions().get::<Lost>().is_some();
            // hyper closes the connection where the service fails.
            if is_lost {
                Err("lost on purpose")
            } else {
                Ok(answer)
            }
        }
    });
    // An error is a client that has gone, or a connection that is to be lost on purpose.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
