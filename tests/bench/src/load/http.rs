//! An HTTP/1.1 client that does no more than a load generator must: it writes requests that are
//! made already, and of the answer it reads the status and where it ends.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Answers of events are short, and those of a batch some 80 bytes for each; longer ones are not waited
/// for.
const ANSWER_MAX: usize = 128 * 1024;

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
    pub(crate) fn last_answer(&self) -> String {
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
}
