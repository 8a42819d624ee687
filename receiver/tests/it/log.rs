//! A log that can be read.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use sampler_service::telemetry::{self, LogFormat, LogOptions};
use serde_json::Value;
use tracing::Subscriber;

/// What is written to it.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Writes to it at every level.
    pub(crate) fn subscriber(&self) -> impl Subscriber + Send + Sync + use<> {
        let options = LogOptions {
            format: LogFormat::Json,
            level: "trace".to_owned(),
        };
        let writer = self.clone();
        telemetry::subscriber(&options, None, move || writer.clone()).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.text();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["message"] == message)
            .collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
