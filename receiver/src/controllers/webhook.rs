//! The handshake of webhooks (CloudEvents, "HTTP 1.1 Web Hooks for Event Delivery", section 4): a sender
//! asks whether it may send, before it does. No token is needed: the answer reveals nothing else.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::ALLOW;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use sampler_service::problem::{Problem, kinds};

use crate::Receiver;
use crate::openapi::problem_answers;

const ASKED_ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// Any rate: the receiver divides what it can do among all clients, and says `Retry-After`.
const ANY: HeaderValue = HeaderValue::from_static("*");

#[utoipa::path(
    options, path = "/v1/events", operation_id = "allow_webhook", tag = "Events",
    summary = "The handshake of CloudEvents webhooks",
    description = "Whether the origin in `WebHook-Request-Origin` may send events. `SAMPLER_WEBHOOK_ORIGINS` names those that may.",
    params(("WebHook-Request-Origin" = Option<String>, Header, description = "The origin that asks.")),
    responses(
        (status = 200, description = "It may.",
            headers(("WebHook-Allowed-Origin" = String, description = "The origin."), ("WebHook-Allowed-Rate" = String, description = "`*`: any rate."))),
        problem_answers::OfWebhook,
    ),
    security(),
)]
pub async fn allow(State(receiver): State<Arc<Receiver>>, headers: HeaderMap) -> Response {
    let origins = receiver.settings.events.webhook_origins.as_deref();
    let origin = headers
        .get(ASKED_ORIGIN)
        .filter(|origin| !origin.is_empty() && origin.to_str().is_ok());
    let (Some(origins), Some(origin)) = (origins, origin) else {
        let detail = "This address does not support the method without a handshake of webhooks.";
        let methods = [Method::POST];
        return Problem::new(&kinds::METHOD_NOT_ALLOWED, detail)
            .allow(&methods)
            .into_response();
    };
    let name = origin.to_str().unwrap_or_default();
    let mut named = origins.split(',').map(str::trim);
    if !named.any(|named| named == "*" || named.eq_ignore_ascii_case(name)) {
        let detail = "SAMPLER_WEBHOOK_ORIGINS does not name this origin.";
        return Problem::new(&kinds::FORBIDDEN, detail).into_response();
    }
    let headers = [
        (ALLOWED_ORIGIN, origin.clone()),
        (ALLOWED_RATE, ANY),
        (ALLOW, HeaderValue::from_static("POST,OPTIONS")),
    ];
    headers.into_response()
}
