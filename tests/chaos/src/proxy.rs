//! A TCP proxy for one server, whose links can be cut, held up, delayed, or robbed of answers.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How much is passed on at once.
const CHUNK: usize = 64 * 1024;
/// What every program of ours says in its first message: its own name begins so.
const PROGRAM_MARK: &[u8] = b"sampler-";

/// How a link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Everything passes.
    #[default]
    Fair,
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing passes; what waits continues when the link is fair again.
    Held,
    /// Requests pass; at the first byte of an answer the connection is closed.
    WithoutReplies,
}

/// How the links of a server are, by who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// For the programs under test.
    pub programs: Link,
    /// For everybody else: the other servers of the set.
    pub others: Link,
}

impl Conditions {
    /// Only the programs' links are like that.
    pub fn of_programs(programs: Link) -> Self {
        let others = Link::default();
        Self { programs, others }
    }

    fn of(self, caller: Caller) -> Link {
        match caller {
            Caller::Program => self.programs,
            Caller::Other => self.others,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Caller {
    Program,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

/// A running proxy. It goes when this value goes, and its connections with it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    conditions: watch::Sender<Conditions>,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of a port of this machine.
    pub async fn start(upstream: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.context("listening as a proxy")?;
        let port = listener.local_addr().context("the proxy's address")?.port();
        let (conditions, seen) = watch::channel(Conditions::default());
        let serving = tokio::spawn(serve(listener, upstream, seen));
        Ok(Self {
            port,
            conditions,
            serving,
        })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes how the links are.
    pub fn set(&self, conditions: Conditions) {
        self.conditions.send_replace(conditions);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, upstream: u16, seen: watch::Receiver<Conditions>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => _ = connections.spawn(connection(stream, upstream, seen.clone())),
            // Out of file descriptors, most likely: let some connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection. The first message says who calls, so the server is only dialled then.
async fn connection(caller: TcpStream, upstream: u16, seen: watch::Receiver<Conditions>) {
    let _ = caller.set_nodelay(true);
    let (mut requests, answers) = caller.into_split();
    let mut first = vec![0; CHUNK];
    let Ok(count @ 1..) = requests.read(&mut first).await else {
        return;
    };
    first.truncate(count);
    let caller = if contains(&first, PROGRAM_MARK) {
        Caller::Program
    } else {
        Caller::Other
    };
    let mut link = Flow {
        caller,
        direction: Direction::Request,
        seen: seen.clone(),
    };
    if !link.passes().await {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
        return;
    };
    let _ = server.set_nodelay(true);
    let (replies, mut to_server) = server.into_split();
    if to_server.write_all(&first).await.is_err() {
        return;
    }
    let back = Flow {
        caller,
        direction: Direction::Reply,
        seen: seen.clone(),
    };
    let mut seen = seen;
    let cut = async {
        seen.wait_for(|conditions| conditions.of(caller) == Link::Cut)
            .await
            .is_ok()
    };
    // Whatever ends first ends both ways.
    tokio::select! {
        () = pump(requests, to_server, link) => {}
        () = pump(replies, answers, back) => {}
        _ = cut => {}
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut flow: Flow) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if !flow.passes().await || to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

/// One direction of a connection.
struct Flow {
    caller: Caller,
    direction: Direction,
    seen: watch::Receiver<Conditions>,
}

impl Flow {
    /// Waits until a chunk may go on; false if the connection is to be closed instead.
    async fn passes(&mut self) -> bool {
        loop {
            let link = self.seen.borrow_and_update().of(self.caller);
            match link {
                Link::Fair => return true,
                Link::Cut => return false,
                Link::WithoutReplies => return self.direction == Direction::Request,
                Link::Held => {
                    if self.seen.changed().await.is_err() {
                        return false;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says what it hears.
    async fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        port
    }

    async fn say(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
        stream.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    async fn connected(proxy: &Proxy, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .unwrap();
        assert_eq!(say(&mut stream, text).await.unwrap(), text);
        stream
    }

    #[tokio::test]
    async fn programs_are_told_from_others() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut program = connected(&proxy, "I am sampler-worker").await;
        let mut other = connected(&proxy, "I am a server").await;
        proxy.set(Conditions::of_programs(Link::Cut));
        assert!(say(&mut program, "still there?").await.is_err());
        assert_eq!(
            say(&mut other, "still there?").await.unwrap(),
            "still there?"
        );
        proxy.set(Conditions {
            programs: Link::Fair,
            others: Link::WithoutReplies,
        });
        connected(&proxy, "sampler-receiver, again").await;
        assert!(say(&mut other, "and now?").await.is_err());
    }
}
