//! What a request can write into the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_service::telemetry::{self, LogFormat, LogOptions};
use tracing::subscriber::set_default;

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn count(&self, part: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(part)).count()
    }
}

fn fail(client: &str) {
    tracing::warn!(code = "area.event", client, "a request failed");
}

#[tokio::test(start_paused = true)]
async fn lines_of_requests_are_limited_by_client() {
    for format in [LogFormat::Json, LogFormat::Text] {
        let (log, level) = (Log::default(), "info".to_owned());
        let writer = log.clone();
        let settings = LogOptions { format, level };
        let subscriber = telemetry::subscriber(&settings, move || writer.clone()).unwrap();
        let logging = set_default(subscriber);
        let request = tracing::error_span!("http");
        for client in ["one", "other"] {
            request.in_scope(|| (0..100).for_each(|_| fail(client)));
        }
        assert_eq!(log.count("a request failed"), 40);
        tokio::time::advance(Duration::from_mins(1)).await;
        request.in_scope(|| fail("one"));
        // The program's own lines have limits of their own.
        (0..100).for_each(|_| fail("one"));
        assert_eq!(log.count("a request failed"), 141);
        drop(logging);
    }
}
