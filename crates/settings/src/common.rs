//! The settings by which any program starts.

use sampler_service::platform::Identity;
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{HttpSettings, LogSettings, Reader, TraceSettings};

use crate::DatabaseSettings;

/// Where a program listens, its database, its log and its credentials.
#[derive(Clone, Debug)]
pub struct CommonSettings {
    pub http: HttpSettings,
    pub database: DatabaseSettings,
    pub log: LogSettings,
    pub traces: TraceSettings,
    /// The credentials, and the checks of callers.
    pub security: SecuritySettings,
}

impl CommonSettings {
    /// Notes where the program listens, and which database it uses.
    pub fn note(&self, reader: &mut Reader) {
        let http = &self.http;
        let is_on_platform = Identity::of_this_process().is_on_platform();
        let interface = http.interface(!self.security.secured, is_on_platform);
        let apart = match http.metrics_port {
            Some(port) => format!("; metrics also on port {port}"),
            None => String::new(),
        };
        let (port, source) = (http.port, reader.source("http.port"));
        reader.note(
            "listens on",
            format!("{interface}, port {port}{source}{apart}"),
        );
        self.database.note(reader);
    }
}
