//! Snapshots: what really runs, compared with the spans.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use sampler_api as api;
use sampler_domain::{Id, Span, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::SpanQuery;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::answer;
use crate::Receiver;
use crate::admission::ServingPermit;
use crate::openapi::problem_answers;
use crate::reading::{Parameters, to_its_end};
use crate::snapshot::{self, Compared, Comparison};

/// How long a proposed start can still be applied, at least, ms; where the slack is short, half of it.
const TIME_TO_APPLY: i64 = 24 * 60 * 60 * 1_000;

/// Spans that are read at a time, at the most.
const PAGE: usize = 10_000;

/// How often a snapshot that has arrived asks for its turn to read, each time for as long as others may
/// wait.
const TURNS: usize = 5;

/// Bytes of the answer that are made at a time, and how many such pieces may wait to be sent.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 2;

#[utoipa::path(
    post, path = "/v1/snapshots", operation_id = "compare_snapshot", tag = "Events",
    summary = "Compare what really runs with the spans",
    description = "Changes nothing: the answer proposes events that would make both agree. As NDJSON, the head is the first line, and each further line an instance. As JSON, a snapshot has at most 16 MB.",
    request_body(content(
        (api::Snapshot = "application/json"),
        (String = "application/x-ndjson"),
    )),
    responses(
        (status = 200, description = "The differences, and the proposed events.", body = api::SnapshotReport),
        problem_answers::OfSnapshot,
    ),
)]
pub async fn compare(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let compared = async {
        receiver.require_readable()?;
        Parameters::of(request.uri()).finish()?;
        // Only one is in memory at a time, until it is answered.
        let (snapshot, permit) = snapshot::take(&receiver, &grant, request).await?;
        let compared = receiver.compare_with_spans(&grant, snapshot).await?;
        Ok(in_pieces(
            compared,
            permit,
            receiver.settings.limits.body_timeout,
        ))
    };
    answer("snapshot", &grant, compared.await)
}

impl Receiver {
    /// Waits until a snapshot may arrive.
    ///
    /// # Errors
    /// 503 where others take too long.
    pub(crate) async fn admit_snapshot(&self, grant: &Grant) -> Result<ServingPermit, Problem> {
        let permit = self.admission.snapshot(self.sender(grant)).await;
        permit.map_err(|_| self.overloaded("Another snapshot is being compared."))
    }

    async fn compare_with_spans(
        &self,
        grant: &Grant,
        snapshot: snapshot::Snapshot,
    ) -> Result<Compared, Problem> {
        let limits = self.snapshots.clone();
        let deadline = Instant::now() + limits.compare_time;
        let resource = snapshot.resource.clone();
        // The spans that ran at that time, or start later.
        let time = (Some(snapshot.at), None);
        let mut comparison = Comparison::new(snapshot, limits);
        self.each_span(grant, &resource, time, deadline, |span| {
            comparison.add(span).map_err(not_written)
        })
        .await?;
        let mut compared = comparison
            .finish(self.earliest_start())
            .map_err(not_written)?;
        if let Some((from, to)) = compared.before() {
            let time = (Some(from), Some(to));
            self.each_span(grant, &resource, time, deadline, |span| {
                compared.add_before(&span);
                Ok(())
            })
            .await?;
        }
        Ok(compared)
    }

    /// Starts that are dated no earlier can still be applied tomorrow.
    fn earliest_start(&self) -> Timestamp {
        let now = self.parts.clock.now();
        let slack = self.slack.past;
        now.plus(TIME_TO_APPLY.min(slack / 2) - slack)
    }

    /// Reads all spans of a resource that ran in this time. Each page waits for its turn, so that others
    /// come between.
    async fn each_span(
        &self,
        grant: &Grant,
        resource: &Id,
        (from, to): (Option<Timestamp>, Option<Timestamp>),
        deadline: Instant,
        mut add: impl FnMut(Span) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut query = SpanQuery {
            from,
            to,
            limit: PAGE,
            ..SpanQuery::default()
        };
        query.target.set("resource_id", resource.clone());
        while Instant::now() < deadline {
            let permits = self.turn_to_compare(grant).await?;
            let (store, asked) = (Arc::clone(&self.parts.reading), query.clone());
            let page = to_its_end(permits, async move { store.spans(&asked).await })
                .await
                .map_err(|failure| self.not_read(&failure))?;
            for record in page.spans {
                add(record.span)?;
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(());
            }
        }
        Err(self.overloaded("The spans of the resource could not be read in time."))
    }

    /// A large body has arrived, so it waits longer for its turn than others do.
    async fn turn_to_compare(&self, grant: &Grant) -> Result<[ServingPermit; 2], Problem> {
        for _ in 1..TURNS {
            if let Ok(permits) = self.admit_sums(grant).await {
                return Ok(permits);
            }
        }
        self.admit_sums(grant).await
    }
}

/// Memory takes all that is written.
#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn not_written(error: io::Error) -> Problem {
    debug_assert!(false, "{error}");
    Problem::internal()
}

/// The answer, made as the client takes it: within `first` and a second for each MB, as the body came. It may be as large as the snapshot.
fn in_pieces(compared: Compared, permit: ServingPermit, first: Duration) -> Response {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let mut pieces = Pieces {
        sender,
        buffer: Vec::with_capacity(CHUNK),
        deadline: Instant::now() + first,
        runtime: Handle::current(),
    };
    tokio::task::spawn_blocking(move || {
        // If it is not written to its end, the client notices what is missing.
        let _ = snapshot::write_report(&compared, &mut pieces).and_then(|()| pieces.end());
        drop((compared, permit));
    });
    let pieces = stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(piece)) => Some((Ok(piece), Some(receiver))),
            Some(None) => None,
            None => Some((Err(io::Error::from(io::ErrorKind::TimedOut)), None)),
        }
    });
    (
        [(CONTENT_TYPE, "application/json")],
        Body::from_stream(pieces),
    )
        .into_response()
}

struct Pieces {
    /// None comes behind the last piece. Where it does not, the answer is not whole.
    sender: mpsc::Sender<Option<Bytes>>,
    buffer: Vec<u8>,
    /// When what was made so far must be taken. A client that takes little by little keeps others waiting.
    deadline: Instant,
    runtime: Handle,
}

impl Pieces {
    fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        self.send(None)
    }

    /// Waits until the client takes what was made before, but not for longer than the deadline.
    fn send(&mut self, piece: Option<Bytes>) -> io::Result<()> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = piece.as_ref().map_or(0, Bytes::len);
        let sending = async { timeout_at(self.deadline, self.sender.send(piece)).await };
        let sent = self.runtime.block_on(sending)?;
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.deadline += snapshot::time_for(length);
        Ok(())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.send(Some(piece.into()))
    }
}
