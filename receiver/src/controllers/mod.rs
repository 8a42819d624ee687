//! The handlers of the routes: a module for each noun of the API.

pub mod audit;
pub mod backlog;
pub mod batches;
pub mod cause_actions;
pub mod control;
pub mod events;
mod failures;
pub mod mappings;
pub mod span_actions;
pub mod spans;
pub mod sums;
pub mod suspended;
pub mod unconfirmed;
pub mod usages;

use axum::response::{IntoResponse, Response};
use sampler_domain::ClientId;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use tracing::info;

use crate::Receiver;
use crate::admission::{self, Client, InFlightPermit, RequestKind, ServingPermit, TurnedAway};
use crate::form::Readable;
use crate::json;
use crate::problems::MALFORMED_JSON;

/// Answers, with a line in the log for what was refused.
fn answer(
    request: &'static str,
    grant: &Grant,
    outcome: Result<impl IntoResponse, Problem>,
) -> Response {
    match outcome {
        Ok(kept) => kept.into_response(),
        Err(problem) => {
            log_refusal(request, grant, &problem);
            problem.into_response()
        }
    }
}

fn log_refusal(request: &'static str, grant: &Grant, problem: &Problem) {
    let (kind, status) = (problem.kind().slug, problem.status().as_u16());
    info!(
        request,
        client = grant.client().map(ClientId::as_str),
        problem = kind,
        status,
        detail = problem.detail(),
        "refused"
    );
}

/// An event that was read, and the permission to continue with it.
struct Admitted<T> {
    event: T,
    _permits: Vec<ServingPermit>,
}

impl Receiver {
    /// The client of a request, as far as it is known before the body is read.
    pub(crate) fn sender(&self, grant: &Grant) -> Client {
        let with_token = grant.client().map(|id| self.admission.client(id.as_str()));
        with_token.unwrap_or_else(|| self.admission.client_of_resource(""))
    }

    /// Reads a body as what `form` makes of it, and waits for the client's turn.
    ///
    /// A body that takes much memory once it is parsed waits before it is parsed. Any other is parsed and
    /// checked first, so that only valid events hold permits. The token must be for the resources of the
    /// body before any field is checked: a client that may not write to a resource learns nothing more.
    async fn admit<F: Readable>(
        &self,
        grant: &Grant,
        body: impl AsRef<[u8]>,
        form: F,
        turns: impl FnOnce(&F::Read) -> Vec<RequestKind>,
    ) -> Result<Admitted<F::Read>, Problem> {
        let sender = self.sender(grant);
        let weight = admission::weight(body.as_ref());
        let large = self
            .admission
            .acquire_large(sender, weight)
            .await
            .map_err(|reason| self.turned_away(reason))?;
        let (event, client) = self.read(grant, body.as_ref(), &form)?;
        let permits = self
            .acquire_turns(client, weight, large, &turns(&event))
            .await;
        // While the event waits, the body is charged for it: what waits takes memory as well.
        drop(body);
        Ok(Admitted {
            event,
            _permits: permits.map_err(|reason| self.turned_away(reason))?,
        })
    }

    /// Reads a body as what `form` makes of it. Returns whose turn it has to wait for.
    fn read<F: Readable>(
        &self,
        grant: &Grant,
        body: &[u8],
        form: &F,
    ) -> Result<(F::Read, Client), Problem> {
        match form.read(body) {
            Ok(read) => {
                let resources = F::resources(&read);
                for resource in &resources {
                    grant.require(Some(resource))?;
                }
                let client = match (grant.client(), resources.first()) {
                    (None, Some(resource)) => self.admission.client_of_resource(resource),
                    _ => self.sender(grant),
                };
                Ok((read, client))
            }
            Err(problem) if problem.kind() == &MALFORMED_JSON => Err(problem),
            Err(problem) => {
                let body = json::value(body)?;
                for resource in form.resources_in(&body) {
                    grant.require(resource)?;
                }
                Err(problem)
            }
        }
    }

    /// Acquires a permit for each of the turns, in their order. Those for stops come last: a request that
    /// holds one waits for nothing else, so no two requests wait for each other. A large event needs only a
    /// permit for large events.
    async fn acquire_turns(
        &self,
        client: Client,
        weight: usize,
        large: Option<ServingPermit>,
        turns: &[RequestKind],
    ) -> Result<Vec<ServingPermit>, TurnedAway> {
        if let Some(serving) = large {
            return Ok(vec![serving]);
        }
        let admission = &self.admission;
        let mut permits = Vec::with_capacity(turns.len());
        for kind in turns {
            permits.push(admission.acquire_turn(*kind, client, weight).await?);
        }
        Ok(permits)
    }

    /// Counts the request against `MAX_INFLIGHT`, where that is set.
    fn acquire_in_flight(&self, kind: RequestKind) -> Result<Option<InFlightPermit>, Problem> {
        let counted = self.admission.acquire_in_flight(kind);
        counted.map_err(|reason| self.turned_away(reason))
    }
}
