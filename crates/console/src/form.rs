//! The body that a form of a page sends.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use url::form_urlencoded;

use crate::api::Query;
use crate::page::{Frame, message};
use crate::session::Session;
use crate::{Console, PATH, parameters};

/// The longest form, in bytes: a reason of 1,000 characters that are encoded, and some fields.
const BYTES_MAX: usize = 32 << 10;

/// A form that a page of this session has made.
pub(crate) struct Form {
    pub(crate) session: Session,
    pub(crate) headers: HeaderMap,
    fields: Query,
}

impl Form {
    /// Reads a form.
    ///
    /// # Errors
    /// 403 where a page of this session has not made it, and 413 where it is too long.
    pub(crate) async fn read(console: &Arc<Console>, request: Request) -> Result<Self, Response> {
        let (head, body): (Parts, Body) = request.into_parts();
        let Some(session) = head.extensions.get::<Session>() else {
            return Err(Redirect::to(PATH).into_response());
        };
        let Ok(body) = Limited::new(body, BYTES_MAX).collect().await else {
            let detail = "The form is too long, or did not arrive. Nothing was done.";
            let frame = Frame::outside(console);
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(message(frame, status, "Not done", detail, None));
        };
        let fields = form_urlencoded::parse(&body.to_bytes())
            .into_owned()
            .collect();
        if !session.is_own_form(parameters::value(&fields, "csrf")) {
            let detail = "The form does not come from a page of this session. Nothing was done.";
            let link = Some((PATH, "Open the console"));
            let frame = Frame::outside(console);
            return Err(message(
                frame,
                StatusCode::FORBIDDEN,
                "Not done",
                detail,
                link,
            ));
        }
        Ok(Self {
            session: session.clone(),
            headers: head.headers,
            fields,
        })
    }

    /// The value of a field; empty where it is not there.
    pub(crate) fn value(&self, name: &str) -> &str {
        parameters::value(&self.fields, name)
    }
}
