//! What a request can write into the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Request;
use axum::routing::get;
use sampler_service::http::Site;
use sampler_service::telemetry::{self, LogFormat, LogOptions};
use tracing::subscriber::set_default;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

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

/// Asks for a hundred failures, with the ids that a router gives.
async fn ask(site: &Site, client: &str) {
    let request = Request::get(format!("/{client}"))
        .header("x-vcap-request-id", "r-1")
        .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    site.answer(request.body(Body::empty()).unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn lines_of_requests_have_their_ids_and_are_limited_by_client() {
    let failing = async |Path(client): Path<String>| (0..100).for_each(|_| fail(&client));
    let site = Site::new(Router::new().route("/{client}", get(failing)));
    for format in [LogFormat::Json, LogFormat::Text] {
        let (log, level) = (Log::default(), "info".to_owned());
        let writer = log.clone();
        let settings = LogOptions { format, level };
        let subscriber = telemetry::subscriber(&settings, None, move || writer.clone()).unwrap();
        let logging = set_default(subscriber);
        for client in ["one", "other"] {
            ask(&site, client).await;
        }
        assert_eq!(log.count("a request failed"), 40);
        assert_eq!((log.count("r-1"), log.count(TRACE)), (40, 40));
        tokio::time::advance(Duration::from_mins(1)).await;
        ask(&site, "one").await;
        assert_eq!(log.count("a request failed"), 60);
        // The program's own lines have limits of their own.
        (0..100).for_each(|_| fail("one"));
        assert_eq!(log.count("a request failed"), 160);
        assert_eq!(log.count("r-1"), 60);
        drop(logging);
    }
}
