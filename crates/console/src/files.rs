//! The stylesheet, the script and the icon. Each address has a hash of the content, so that a browser
//! may keep the file for ever.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// A hash of all files of this release.
pub(crate) static RELEASE: LazyLock<String> = LazyLock::new(|| {
    let all = digest(&SHA256, [STYLE, SCRIPT, ICON].concat().as_bytes());
    URL_SAFE_NO_PAD.encode(all)
});

/// `GET /console/assets/{release}/{name}`. The address of another release answers with this one's
/// content, which is not kept.
pub(crate) async fn serve(Path((release, name)): Path<(String, String)>) -> Response {
    let (kind, content) = match name.as_str() {
        "console.css" => ("text/css; charset=utf-8", STYLE),
        "console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let caching = if release == *RELEASE {
        "public, max-age=31536000, immutable"
    } else {
        "no-store"
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, caching)], content).into_response()
}
