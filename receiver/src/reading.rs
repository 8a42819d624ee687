//! The parts that all requests that read share: the number that is served at a time, the resources that the token
//! allows, and the form of an answer.
//!
//! A request that reads holds a permit of its own kind, so that many reads never take the database from
//! requests that write. Reads have connections of their own, with a time limit of their own.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::HeaderValue;
use axum::http::header::{ETAG, LINK};
use axum::response::{IntoResponse, Response};
use sampler_api::List;
use sampler_domain::Id;
use sampler_service::problem::Problem;
use sampler_service::security::{Grant, Reach};
use sampler_store::{Reading, StoreError, TargetFilter};
use serde::Serialize;

use crate::Receiver;
use crate::admission::{Kind, Turn};
use crate::events::client;
use crate::failures::Task;
use crate::parameters::Next;

/// How many requests may read from the store at the same time. Each holds a connection.
pub const AT_ONCE: u32 = 2;

/// How long the database may work on one command of a request that reads.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);

impl Receiver {
    /// Waits until a request may read.
    ///
    /// # Errors
    /// 503 where the store is not prepared, or too many read.
    pub(crate) async fn admit_reading(&self, grant: &Grant) -> Result<Turn, Problem> {
        self.require_prepared()?;
        self.turn(Kind::Read, client(grant, ""), 1).await
    }

    /// Reads from the store, once it is the client's turn.
    ///
    /// # Errors
    /// 503 where there is no turn in time, or the store does not answer.
    pub(crate) async fn read_store<T, F>(
        &self,
        grant: &Grant,
        call: impl FnOnce(Arc<dyn Reading>) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let turn = self.admit_reading(grant).await?;
        let read = to_its_end(turn, call(Arc::clone(&self.parts.reading))).await;
        read.map_err(|failure| self.failed(Task::Read, &failure))
    }
}

/// Completes a call of the store, and holds its permits until then. The database continues a call
/// whose client has gone: without this, a client that leaves and comes again would have it work on any
/// number of them.
pub(crate) async fn to_its_end<T, F>(permits: impl Send + 'static, call: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let made = tokio::spawn(async move {
        let outcome = call.await;
        drop(permits);
        outcome
    });
    made.await
        .unwrap_or_else(|ended| Err(StoreError::Unknown(Box::new(ended))))
}

/// The resources to which reading is limited; none where it is not.
pub(crate) fn readable_resources(grant: &Grant) -> Option<Vec<Id>> {
    match grant.readable() {
        Reach::Everything => None,
        Reach::Resources(resources) => Some(resources.iter().map(Id::from_store).collect()),
    }
}

/// Limits a query for `target` to resources that the grant allows reading. Returns whether any is left.
pub(crate) fn restrict(
    resources: &mut Option<Vec<Id>>,
    target: &TargetFilter,
    grant: &Grant,
) -> bool {
    let Some(mut readable) = readable_resources(grant) else {
        return true;
    };
    if let Some(resource) = target.get("resource_id") {
        readable.retain(|id| id == resource);
    }
    let is_any_left = !readable.is_empty();
    *resources = Some(readable);
    is_any_left
}

/// A page of a list, and the address of the next one, if there is one.
pub(crate) struct Paged<T> {
    items: Vec<T>,
    next: Option<String>,
}

impl<T> Paged<T> {
    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }

    /// A page, behind whose position there are more.
    pub(crate) fn new(items: Vec<T>, next: &Next, position: Option<&impl Serialize>) -> Self {
        let next = position.map(|position| next.page(position));
        Self { items, next }
    }
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let mut response = Json(List { items: self.items }).into_response();
        if let Some(next) = self.next {
            let link = HeaderValue::try_from(format!("<{next}>; rel=\"next\""));
            let link = link.expect("a percent-encoded text is plain ASCII");
            response.headers_mut().insert(LINK, link);
        }
        response
    }
}

/// One thing with its entity tag.
pub(crate) type Tagged<T> = ([(axum::http::HeaderName, HeaderValue); 1], Json<T>);

/// One thing with the tag of its version, which each change increases. So what was changed and set back counts
/// as changed.
pub(crate) fn tagged<T>(thing: T, version: i64) -> Tagged<T> {
    ([(ETAG, version_tag(version))], Json(thing))
}

pub(crate) fn version_tag(version: i64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits")
}
