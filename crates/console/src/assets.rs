//! The stylesheet, the scripts and the icon. Each address has a hash of the content, so that a browser
//! may keep the file for ever.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::Console;

/// For a content that a browser may keep for ever: another content has another address.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// For an address of another release, which answers with this one's content.
const NOT_AT_ALL: &str = "no-store";

/// All that pages load.
pub(crate) struct Assets {
    /// The address of the stylesheet.
    pub(crate) style: String,
    pub(crate) script: String,
    /// The address of the script of the reference.
    pub(crate) reference: String,
    pub(crate) icon: String,
}

struct Asset {
    stem: &'static str,
    extension: &'static str,
    media_type: &'static str,
    content: &'static str,
}

const STYLE: Asset = Asset {
    stem: "console",
    extension: "css",
    media_type: "text/css; charset=utf-8",
    content: include_str!("../assets/console.css"),
};

const SCRIPT: Asset = Asset {
    stem: "console",
    extension: "js",
    media_type: "text/javascript; charset=utf-8",
    content: include_str!("../assets/console.js"),
};

const REFERENCE: Asset = Asset {
    stem: "reference",
    extension: "js",
    media_type: "text/javascript; charset=utf-8",
    content: include_str!("../assets/reference.js"),
};

const ICON: Asset = Asset {
    stem: "icon",
    extension: "svg",
    media_type: "image/svg+xml",
    content: include_str!("../assets/icon.svg"),
};

impl Assets {
    /// The files of this release, in this folder.
    pub(crate) fn embedded(folder: &str) -> Self {
        let [style, script, reference, icon] =
            [&STYLE, &SCRIPT, &REFERENCE, &ICON].map(|asset| format!("{folder}/{}", asset.name()));
        Self {
            style,
            script,
            reference,
            icon,
        }
    }

    pub(crate) fn serve(&self, name: &str) -> Response {
        let found = [&STYLE, &SCRIPT, &REFERENCE, &ICON]
            .into_iter()
            .find(|it| it.is_called(name));
        let Some(asset) = found else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let known = [&self.style, &self.script, &self.reference, &self.icon];
        let is_current = known
            .iter()
            .any(|address| address.ends_with(&format!("/{name}")));
        let caching = if is_current { FOR_EVER } else { NOT_AT_ALL };
        let headers = [(CONTENT_TYPE, asset.media_type), (CACHE_CONTROL, caching)];
        (headers, asset.content).into_response()
    }
}

impl Asset {
    /// `console.0a1b2c3d4e5f6071.css`.
    fn name(&self) -> String {
        let digest = digest(&SHA256, self.content.as_bytes());
        let bytes = digest.as_ref().iter().take(8);
        let hash = bytes.fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        format!("{}.{hash:016x}.{}", self.stem, self.extension)
    }

    fn is_called(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.stem);
        let hash = rest.and_then(|rest| rest.strip_suffix(self.extension));
        hash.is_some_and(|hash| hash.starts_with('.') && hash.ends_with('.'))
    }
}

/// `GET /console/assets/{name}`.
pub(crate) async fn serve(
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Response {
    console.assets.serve(&name)
}
