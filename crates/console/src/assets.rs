//! The stylesheet, the script and the icon. Each address has a hash of the content, so that a browser
//! may keep the file for ever.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::Console;

/// The name, the media type and the content of each file.
const FILES: [(&str, &str, &str); 3] = [
    (
        "console.css",
        "text/css; charset=utf-8",
        include_str!("../assets/console.css"),
    ),
    (
        "console.js",
        "text/javascript; charset=utf-8",
        include_str!("../assets/console.js"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_str!("../assets/icon.svg"),
    ),
];

/// A hash of all files of this release, in hexadecimal.
pub(crate) struct Assets(String);

impl Assets {
    pub(crate) fn embedded() -> Self {
        let mut context = Context::new(&SHA256);
        for (_, _, content) in FILES {
            context.update(content.as_bytes());
        }
        let digest = context.finish();
        let bytes = digest.as_ref().iter().take(8);
        let hash = bytes.fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        Self(format!("{hash:016x}"))
    }

    /// The last segment of the address of a file.
    pub(crate) fn address(&self, name: &str) -> String {
        format!("{}-{name}", self.0)
    }
}

/// `GET /console/assets/{name}`. The address of another release answers with this one's content, which
/// is not kept.
pub(crate) async fn serve(
    State(console): State<Arc<Console>>,
    Path(address): Path<String>,
) -> Response {
    let (hash, name) = address.split_once('-').unwrap_or_default();
    let Some((_, kind, content)) = FILES.into_iter().find(|(known, ..)| *known == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let caching = if hash == console.assets.0 {
        "public, max-age=31536000, immutable"
    } else {
        "no-store"
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, caching)], content).into_response()
}
