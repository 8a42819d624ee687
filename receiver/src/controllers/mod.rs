//! What each request comes to, and what it is answered: a module for each noun.

pub mod events;
mod failures;
pub mod mappings;
pub mod spans;
pub mod sums;
pub mod usages;

use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use sampler_domain::{ClientId, Target};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use tracing::info;

use crate::admission::{self, InFlightPermit, RequestKind, ServingPermit, ShardRange};
use crate::json::{self, Json};
use crate::{Receiver, body};

/// Answers, with a line in the log for what was refused, unless there were too many of them.
fn answer(
    receiver: &Receiver,
    request: &'static str,
    grant: &Grant,
    outcome: Result<impl IntoResponse, Problem>,
) -> Response {
    match outcome {
        Ok(kept) => kept.into_response(),
        Err(problem) => {
            let (kind, status) = (problem.kind().slug, problem.status().as_u16());
            if let Some(suppressed) = receiver.refusals.admit(grant.client(), kind) {
                info!(
                    request,
                    client = grant.client().map(ClientId::as_str),
                    problem = kind,
                    status,
                    detail = problem.detail(),
                    suppressed,
                    "refused"
                );
            }
            problem.into_response()
        }
    }
}

/// An event that was read, and the permission to go on with it.
struct Admitted<T> {
    event: T,
    _permit: ServingPermit,
}

impl Receiver {
    /// Reads the body as what `read` makes of it, and waits for the client's turn.
    ///
    /// Whether the token is for the body's resource is checked before all else in it: a client that
    /// may not write to the resource is told nothing more. A body that takes much memory once it is
    /// parsed waits before that; any other is parsed and checked first, so that a permit is held by
    /// valid events alone.
    async fn admit<T>(
        &self,
        kind: RequestKind,
        grant: &Grant,
        request: Request<Body>,
        read: impl FnOnce(Json<'_>) -> Result<T, Problem>,
        range: impl FnOnce(&T) -> ShardRange,
    ) -> Result<Admitted<T>, Problem> {
        let with_token = grant.client().map(|id| self.admission.client(id.as_str()));
        let unknown = self.admission.client_of_resource("");
        let sender = with_token.unwrap_or(unknown);
        let body = body::read(request, self, sender).await?;
        let weight = admission::weight(&body.bytes);
        let large = self.admission.acquire_large(sender, weight).await;
        let large = large.map_err(|reason| self.turned_away(reason))?;
        let json = json::parse(&body.bytes)?;
        let resource = json.get("resource_id").and_then(Json::as_str);
        grant.require(resource)?;
        let of_resource = resource.map(|id| self.admission.client_of_resource(id));
        let client = with_token.or(of_resource).unwrap_or(unknown);
        let event = read(json)?;
        drop(body);
        let (admission, range) = (&self.admission, range(&event));
        let permit = match large {
            Some(parsed) => {
                let serving = admission.acquire_large_turn(parsed, kind, range, client, weight);
                serving.await
            }
            None => admission.acquire_turn(kind, range, client, weight).await,
        };
        Ok(Admitted {
            event,
            _permit: permit.map_err(|reason| self.turned_away(reason))?,
        })
    }

    /// The range of the collection that the target is in.
    fn range(&self, target: &Target) -> ShardRange {
        ShardRange(self.parts.events.range_of(target))
    }

    /// Counts the request against `MAX_INFLIGHT`, where that is set.
    fn acquire_in_flight(&self, kind: RequestKind) -> Result<Option<InFlightPermit>, Problem> {
        let counted = self.admission.acquire_in_flight(kind);
        counted.map_err(|reason| self.turned_away(reason))
    }
}
