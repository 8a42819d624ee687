use tokio::io::{AsyncWriteExt, DuplexStream};

use super::*;
use crate::http::connections::Connections;

/// As TLS: it takes all that is written, keeps it, and sends it when it is flushed.
struct Keeping {
    stream: DuplexStream,
    kept: Vec<u8>,
}

impl AsyncRead for Keeping {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Keeping {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.kept.is_empty() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(context, &this.kept))?;
            this.kept.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What TLS keeps is a part of the answer, too: the connection is not parked with it, and the client
/// has no more time for it.
#[tokio::test(start_paused = true)]
async fn what_the_stream_keeps_of_an_answer_has_a_limit_as_well() {
    let connection = Connections::new(1, 0).open().await;
    let limits = Limits::default();
    let wire = Wire::new(limits, &connection);
    let (_client, stream) = tokio::io::duplex(1);
    let mut stream = wire.over(Keeping {
        stream,
        kept: Vec::new(),
    });
    stream.write_all(b"hello").await.unwrap();
    let began = Instant::now();
    let parked = async {
        std::future::poll_fn(|context| wire.poll_waited(began, context)).await;
        unreachable!("it is parked");
    };
    let flushed = tokio::time::timeout(limits.write * 2, async {
        tokio::select! { biased; flushed = stream.flush() => flushed, () = parked => Ok(()) }
    });
    let error = flushed.await.expect("a limit").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed(), limits.write);
    assert_eq!(connection.activity.phase(), Phase::Writing);
}
