//! The end of a connection whose last answer came before the body of its request.
//!
//! A client that still sends when its connection is closed gets no answer: the system answers its bytes
//! with a reset, and the answer that the client has not read yet is lost. So its bytes are read for a
//! while, and dropped.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// How long a client may continue to send.
const TIME: Duration = Duration::from_secs(2);

/// How many bytes it may send: no less than the largest body that is usual.
const BYTES: u64 = 4 << 20;

/// How many are read at a time.
const AT_A_TIME: usize = 8 << 10;

/// Reads and forgets what still comes, until the client has closed its side too or has sent enough.
pub(super) async fn linger(stream: impl AsyncRead + Unpin) {
    let forgetting = async {
        let (mut rest, mut buffer) = (stream.take(BYTES), vec![0; AT_A_TIME]);
        while rest.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    };
    // Its time is over: it has the answer by now, or does not want it.
    let _ = timeout(TIME, forgetting).await;
}
