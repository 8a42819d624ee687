//! An HTTP/1.1 client that does no more than a load generator must: it writes requests that are
//! made already, and of the answer it reads the status and where it ends.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use sampler_testkit::build::Kind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Sender;
use crate::event::{Event, Requests, Times, batch_line, batch_request};
use crate::template::Template;

/// Answers of events are short, and those of a batch some 80 bytes for each; longer ones are not waited
/// for.
const ANSWER_MAX: usize = 128 * 1024;
/// What an event that is kept is answered.
const CREATED: u16 = 201;
/// What a batch is answered.
const OK: u16 = 200;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects to an address like `127.0.0.1:80`.
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).context("a socket option")?;
        Ok(Self {
            stream,
            answer: Vec::with_capacity(1024),
        })
    }

    /// Sends a request and reads the answer to its end; says its status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await.context("sending")?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await;
            ensure!(
                read.context("reading the answer")? > 0,
                "the connection was closed"
            );
            if let Some(answer) = parse(&self.answer)? {
                return Ok(answer);
            }
            ensure!(
                self.answer.len() < ANSWER_MAX,
                "an answer that does not end"
            );
        }
    }

    /// What the last answer was, for people.
    fn last_answer(&self) -> String {
        String::from_utf8_lossy(&self.answer).into_owned()
    }
}

/// The status, if the answer is there to its end.
fn parse(answer: &[u8]) -> Result<Option<u16>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end]).context("the head of an answer")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("no status: {head}"))?;
    let mut length = 0;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            bail!("no header: {line}")
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().context("the length of an answer")?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            bail!("an answer in pieces, which are not understood here");
        }
    }
    Ok((answer.len() >= end + 4 + length).then_some(status))
}

/// Sends events over one connection.
#[derive(Debug)]
pub(crate) struct HttpSender {
    connection: Connection,
    requests: Arc<Requests>,
    times: Times,
    request: Vec<u8>,
}

impl HttpSender {
    /// This many senders, each with its own connection.
    pub(crate) async fn open(address: &str, count: usize, times: Times) -> Result<Vec<Self>> {
        let requests = Arc::new(Requests::new(address));
        let mut senders = Vec::with_capacity(count);
        for _ in 0..count {
            senders.push(Self {
                connection: Connection::open(address).await?,
                requests: Arc::clone(&requests),
                times,
                request: Vec::with_capacity(1024),
            });
        }
        Ok(senders)
    }
}

impl Sender for HttpSender {
    async fn send(&mut self, events: &[Event]) -> Result<()> {
        for event in events {
            self.request.clear();
            let values = self.times.values(event.number);
            self.requests
                .of(event.kind)
                .fill(&values, &mut self.request);
            let status = self.connection.exchange(&self.request).await?;
            ensure!(
                status == CREATED,
                "{event:?} was answered\n{}",
                self.connection.last_answer()
            );
        }
        Ok(())
    }
}

/// Sends batches of starts over one connection.
#[derive(Debug)]
pub(crate) struct BatchSender {
    connection: Connection,
    address: String,
    batch: usize,
    line: Arc<Template>,
    times: Times,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl BatchSender {
    /// This many senders, each with its own connection, of batches of so many events.
    pub(crate) async fn open(
        address: &str,
        count: usize,
        batch: usize,
        times: Times,
    ) -> Result<Vec<Self>> {
        let line = Arc::new(batch_line());
        let mut senders = Vec::with_capacity(count);
        for _ in 0..count {
            senders.push(Self {
                connection: Connection::open(address).await?,
                address: address.to_owned(),
                batch,
                line: Arc::clone(&line),
                times,
                body: Vec::new(),
                request: Vec::new(),
            });
        }
        Ok(senders)
    }
}

impl Sender for BatchSender {
    fn batch(&self) -> usize {
        self.batch
    }

    async fn send(&mut self, events: &[Event]) -> Result<()> {
        self.body.clear();
        for event in events {
            ensure!(event.kind == Kind::Start, "batches are of starts");
            self.line
                .fill(&self.times.values(event.number), &mut self.body);
        }
        self.request.clear();
        batch_request(&self.address, &self.body, &mut self.request);
        let status = self.connection.exchange(&self.request).await?;
        let answer = self.connection.last_answer();
        let all = format!(r#"{{"accepted":{},"replayed":0,"#, events.len());
        ensure!(
            status == OK && answer.contains(&all),
            "a batch was answered\n{answer}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_it_says() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\ndate: x\r\n\r\nabc";
        for length in 0..answer.len() {
            assert_eq!(parse(&answer[..length]).unwrap(), None, "{length}");
        }
        assert_eq!(parse(answer).unwrap(), Some(201));
        assert_eq!(parse(b"HTTP/1.1 204 No\r\n\r\n").unwrap(), Some(204));
    }

    #[test]
    fn what_is_not_understood_is_not_taken_for_something_else() {
        assert!(parse(b"HTTP/1.1\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
