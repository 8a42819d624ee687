//! `GET /docs`: the description of the API, to read and to try. The page is Swagger UI, whose files
//! are part of the program.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use sampler_service::http::not_found;
use utoipa_swagger_ui::{Config, serve};

/// Our own files alone. Swagger UI sets styles on its elements, and has its icons in its stylesheet.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; object-src 'none'",
);

/// Serves the page. All of its addresses are relative, so that they work below any prefix.
pub(crate) fn routes() -> Router {
    let config = Config::new(["../openapi.json"])
        .deep_linking(true)
        // The default asks a server on the internet.
        .validator_url("none");
    let config = Arc::new(config);
    Router::new()
        .route("/docs", get(async || Redirect::to("docs/index.html")))
        .route(
            "/docs/{file}",
            get(async move |Path(name): Path<String>| file(&name, config).await),
        )
}

async fn file(name: &str, config: Arc<Config<'static>>) -> Response {
    let Some(file) = serve(name, config).ok().flatten() else {
        return not_found().await.into_response();
    };
    let kind = HeaderValue::try_from(file.content_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, file.bytes.into_owned()).into_response()
}
