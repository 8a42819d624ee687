//! What each request comes to, and what it is answered: a module for each noun.

pub mod audit;
pub mod events;
mod failures;
pub mod mappings;
pub mod span_acts;
pub mod spans;
pub mod suspended;
pub mod usages;

use axum::response::{IntoResponse, Response};
use sampler_domain::{ClientId, Target};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use tracing::info;

use crate::Receiver;
use crate::admission::fair_queue::Client;
use crate::admission::{self, InFlightPermit, RequestKind, ServingPermit, ShardRange};
use crate::json::{self, Json};

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
    /// By whom requests of this grant are told apart before their bodies are read.
    pub(crate) fn sender(&self, grant: &Grant) -> Client {
        let with_token = grant.client().map(|id| self.admission.client(id.as_str()));
        with_token.unwrap_or_else(|| self.admission.client_of_resource(""))
    }

    /// Reads a body as what `read` makes of it, and waits for the client's turn.
    ///
    /// Whether the token is for the body's resource is checked before all else in it: a client that
    /// may not write to the resource is told nothing more. A body that takes much memory once it is
    /// parsed waits before that; any other is parsed and checked first, so that a permit is held by
    /// valid events alone.
    async fn admit<T>(
        &self,
        grant: &Grant,
        body: impl AsRef<[u8]>,
        read: impl FnOnce(Json<'_>) -> Result<T, Problem>,
        turn: impl FnOnce(&T) -> (RequestKind, ShardRange),
    ) -> Result<Admitted<T>, Problem> {
        let sender = self.sender(grant);
        let weight = admission::weight(body.as_ref());
        let large = self.admission.acquire_large(sender, weight).await;
        let large = large.map_err(|reason| self.turned_away(reason))?;
        let json = json::parse(body.as_ref())?;
        let resource = json.get("resource_id").and_then(Json::as_str);
        grant.require(resource)?;
        let client = match (grant.client(), resource) {
            (None, Some(resource)) => self.admission.client_of_resource(resource),
            _ => sender,
        };
        let event = read(json)?;
        drop(body);
        let (admission, (kind, range)) = (&self.admission, turn(&event));
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
