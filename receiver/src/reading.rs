//! The parts that all requests that read share: the number that is served at a time, the resources that the token
//! allows, and the form of an answer.
//!
//! A request that reads holds a permit of its own kind, so that many reads never take the database from
//! requests that write. Reads have connections of their own, with a time limit of their own.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::header::{ETAG, HeaderName, HeaderValue, LINK};
use axum::response::{IntoResponse, Response};
use sampler_api::List;
use sampler_domain::Id;
use sampler_service::problem::Problem;
use sampler_service::security::Reach;
use sampler_store::{Reading, StoreError};
use serde::Serialize;

use crate::Caller;
use crate::admission::{Kind, Turn};
use crate::failures::Task;
use crate::parameters::Parameters;

/// How many requests may read from the store at the same time. Each holds a connection.
pub const AT_ONCE: u32 = 2;

/// How long the database may work on one command of a request that reads.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);

impl Caller {
    /// Waits until the request may read. 503 where the store is not prepared, or too many read.
    pub(crate) async fn admit_reading(&self) -> Result<Turn, Problem> {
        self.receiver.require_prepared()?;
        self.receiver.turn(Kind::Read, self.client(), 1).await
    }

    /// Reads from the store, once it is the client's turn.
    pub(crate) async fn read<T, F>(
        &self,
        call: impl FnOnce(Arc<dyn Reading>) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let turn = self.admit_reading().await?;
        let read = to_its_end(turn, call(Arc::clone(&self.receiver.parts.reading))).await;
        read.map_err(|failure| self.receiver.failed(Task::Read, &failure))
    }

    /// The same for a list, of `resource` alone where one is asked for. `call` is given the resources to which
    /// the list is limited. Where the token allows reading none of them, the list is empty.
    pub(crate) async fn read_list<T, F>(
        &self,
        resource: Option<Id>,
        call: impl FnOnce(Arc<dyn Reading>, Option<Vec<Id>>) -> F,
    ) -> Result<T, Problem>
    where
        T: Default + Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let resources = self.readable(resource.as_ref());
        if resources.as_ref().is_some_and(Vec::is_empty) {
            return Ok(T::default());
        }
        self.read(|store| call(store, resources)).await
    }

    /// The resources to which reading is limited, of `resource` alone where one is asked for; none where it is not
    /// limited.
    pub(crate) fn readable(&self, resource: Option<&Id>) -> Option<Vec<Id>> {
        let Reach::Resources(readable) = self.grant.readable() else {
            return None;
        };
        let readable = readable.iter().map(Id::from_store);
        let asked = readable.filter(|id| resource.is_none_or(|resource| resource == id));
        Some(asked.collect())
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

/// A page of a list, and the address of the next one, if there is one.
pub(crate) struct Paged<T> {
    items: Vec<T>,
    next: Option<String>,
}

impl Parameters {
    /// The page of a list, behind whose position there are more.
    pub(crate) fn page<T>(
        &self,
        items: impl Iterator<Item = T>,
        position: Option<impl Serialize>,
    ) -> Paged<T> {
        Paged {
            items: items.collect(),
            next: position.map(|position| self.next_page(&position)),
        }
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
pub(crate) type Tagged<T> = ([(HeaderName, HeaderValue); 1], Json<T>);

/// One thing with the tag of its version, which each change increases. So what was changed and set back counts
/// as changed.
pub(crate) fn tagged<T>(thing: T, version: i64) -> Tagged<T> {
    ([(ETAG, version_tag(version))], Json(thing))
}

pub(crate) fn version_tag(version: i64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits")
}
