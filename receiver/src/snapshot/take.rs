//! Takes a snapshot in as it arrives.

use std::io::{self, Write};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use sampler_domain::{Id, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_service::security::{Grant, Reach};
use tokio::time::{Instant, timeout_at};

use super::instance::{self, Instance, Unfit};
use super::instances::{Gathering, Snapshot, Twice};
use super::pieces::{Form, Piece, Pieces, TooLong};
use super::time_for;
use crate::admission::ServingPermit;
use crate::fields::{self, Fields};
use crate::json::{self, Json};
use crate::{Receiver, body, problems};

/// Bytes that may arrive without a permit: those of a head, and of what little comes with it.
const HEAD_MAX: usize = 16 << 10;

/// Compressed bytes that are unpacked at a time: up to a thousand times as many.
const UNPACKED_AT_A_TIME: usize = 1 << 10;

/// Wrong fields that are named.
const ERRORS_MAX: usize = 100;

/// Stands for the resource of the snapshot while that is still to come.
const UNNAMED: &str = "the resource of the snapshot";

/// A snapshot that arrives.
struct Taking<'a> {
    receiver: &'a Receiver,
    grant: &'a Grant,
    form: Form,
    head: Option<(Id, Timestamp)>,
    /// Whether the grant lets read the resource, as far as that is known.
    is_allowed: bool,
    /// Whether the resource is known.
    is_named: bool,
    gathering: Gathering,
    /// Instances so far, also those that are wrong.
    count: usize,
    errors: Vec<FieldError>,
    /// The resource that the first instance names which names one, and where that is.
    named: Option<(usize, Id)>,
    /// The latest moment since when an instance runs, and where that is.
    latest: Option<(Timestamp, usize)>,
}

/// Reads the body of a request as a snapshot, which takes a permit as soon as its resource is known.
///
/// # Errors
/// 503 where others hold the permit for too long, 415 for another media type or coding, 413 for too much, 408 for too slow, 400 for what is no JSON
/// or has wrong fields, 403 for a resource that the grant does not let read.
pub(crate) async fn take(
    receiver: &Receiver,
    grant: &Grant,
    request: Request<Body>,
) -> Result<(Snapshot, ServingPermit), Problem> {
    let form = match body::media_type(request.headers(), &[body::JSON, body::NDJSON])? {
        body::NDJSON => Form::Lines,
        _ => Form::Json,
    };
    let is_compressed = body::is_gzip(request.headers())?;
    let limits = &receiver.options.limits;
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.snapshot_payload as u64) {
        return Err(body::too_large(limits.snapshot_payload));
    }
    let mut arriving = Arriving::new(receiver, grant, form);
    let mut unpacking = is_compressed.then(|| MultiGzDecoder::new(Vec::new()));
    let mut body = TimedBody::new(request.into_body(), limits.body_timeout);
    let mut permit = None;
    while let Some(data) = body.next(arriving.taking.is_allowed).await? {
        if body.arrived > arriving.max {
            return Err(body::too_large(arriving.max));
        }
        match &mut unpacking {
            None => arriving.push(&data)?,
            Some(decoder) => arriving.unpack(&data, decoder)?,
        }
        let has_begun = arriving.taking.is_named || arriving.unpacked > HEAD_MAX;
        if has_begun && permit.is_none() {
            permit = Some(body.admit(receiver, grant).await?);
        }
    }
    if let Some(decoder) = unpacking {
        let bytes = decoder.finish().map_err(|_| not_unpacked())?;
        arriving.push(&bytes)?;
    }
    let permit = match permit {
        Some(permit) => permit,
        None => receiver.admit_snapshot(grant).await?,
    };
    Ok((arriving.finish()?, permit))
}

/// A body that must arrive within `first` and a second for each MB.
struct TimedBody {
    body: Body,
    /// When it began to arrive, and later by as long as it waited for its permit.
    began: Instant,
    first: Duration,
    /// Bytes so far.
    arrived: usize,
}

impl TimedBody {
    fn new(body: Body, first: Duration) -> Self {
        Self {
            body,
            began: Instant::now(),
            first,
            arrived: 0,
        }
    }

    /// The next bytes; `None` at the end of the body. Where it is not known yet whether the body is
    /// `allowed` at all, only the first time counts, however much comes.
    async fn next(&mut self, allowed: bool) -> Result<Option<Bytes>, Problem> {
        loop {
            let earned = if allowed { self.arrived } else { 0 };
            let deadline = self.began + self.first + time_for(earned);
            let frame = timeout_at(deadline, self.body.frame()).await;
            let Some(frame) = frame.map_err(|_| too_slow())? else {
                return Ok(None);
            };
            // Trailers are skipped.
            let Ok(data) = frame.map_err(|_| cut_short())?.into_data() else {
                continue;
            };
            self.arrived += data.len();
            return Ok(Some(data));
        }
    }

    /// Waits for the permit. The client's time does not count meanwhile.
    async fn admit(
        &mut self,
        receiver: &Receiver,
        grant: &Grant,
    ) -> Result<ServingPermit, Problem> {
        let asked = Instant::now();
        let permit = receiver.admit_snapshot(grant).await?;
        self.began += asked.elapsed();
        Ok(permit)
    }
}

/// The reason why the division of a body ends.
struct Refused(Problem);

/// A body that is taken apart.
struct Arriving<'a> {
    taking: Taking<'a>,
    pieces: Pieces,
    unpacked: usize,
    max: usize,
}

impl<'a> Arriving<'a> {
    fn new(receiver: &'a Receiver, grant: &'a Grant, form: Form) -> Self {
        let limits = &receiver.options.limits;
        let taking = Taking {
            receiver,
            grant,
            form,
            head: None,
            is_allowed: *grant.readable() == Reach::Everything,
            is_named: false,
            gathering: Gathering::new(),
            count: 0,
            errors: Vec::new(),
            named: None,
            latest: None,
        };
        Self {
            taking,
            pieces: Pieces::new(form, limits.payload),
            unpacked: 0,
            max: limits.snapshot_payload,
        }
    }

    /// Takes compressed bytes.
    fn unpack(
        &mut self,
        data: &[u8],
        decoder: &mut MultiGzDecoder<Vec<u8>>,
    ) -> Result<(), Problem> {
        for part in data.chunks(UNPACKED_AT_A_TIME) {
            decoder.write_all(part).map_err(|_| not_unpacked())?;
            let bytes = std::mem::take(decoder.get_mut());
            self.push(&bytes)?;
        }
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.unpacked += bytes.len();
        if self.unpacked > self.max {
            return Err(body::too_large(self.max));
        }
        let taking = &mut self.taking;
        let pushed = self
            .pieces
            .push(bytes, |piece| Ok::<(), Refused>(taking.take(&piece)?));
        pushed.map_err(|Refused(problem)| problem)
    }

    fn finish(mut self) -> Result<Snapshot, Problem> {
        let taking = &mut self.taking;
        self.pieces.finish(|piece| taking.take(&piece))?;
        self.taking.finish()
    }
}

impl Taking<'_> {
    fn take(&mut self, piece: &Piece<'_>) -> Result<(), Problem> {
        match *piece {
            Piece::Beginning(bytes) => self.take_beginning(bytes),
            Piece::Head(bytes) => self.take_head(bytes),
            Piece::Instance(bytes) => self.take_instance(bytes),
        }
    }

    /// A resource that may not be read is refused before its instances come, if it is named by then.
    /// What is wrong is said once all of the head is there.
    fn take_beginning(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let closed = [bytes, b"]}"].concat();
        let head = json::parse(&closed).ok();
        let named = head
            .as_ref()
            .and_then(|head| head.get("resource_id")?.as_str());
        match named.and_then(|named| Id::new(named).ok()) {
            Some(resource) => self.allow(&resource),
            None => Ok(()),
        }
    }

    fn allow(&mut self, resource: &Id) -> Result<(), Problem> {
        self.grant.require_read(resource.as_str())?;
        (self.is_allowed, self.is_named) = (true, true);
        Ok(())
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let mut fields = Fields::of(json::parse(bytes)?).map_err(invalid)?;
        let resource = fields.required("resource_id", fields::id);
        if let Some(resource) = &resource {
            self.allow(resource)?;
        }
        let at = fields.required("at", |value| self.at(value));
        if self.form == Form::Json {
            fields.required("instances", fields::list);
        }
        // Instances are not checked on while the resource is unknown.
        fields.finish().map_err(|mut errors| {
            errors.append(&mut self.errors);
            invalid(errors)
        })?;
        self.head = resource.zip(at);
        Ok(())
    }

    /// A time whose events can still be kept.
    fn at(&self, value: Json<'_>) -> Result<Timestamp, String> {
        let at = fields::timestamp(value)?;
        let ago = self.receiver.parts.clock.now().since(at);
        if ago < 0 {
            return Err("It lies in the future.".to_owned());
        }
        if ago > self.receiver.options.slack.past {
            return Err("No event that lies so far back is accepted any more.".to_owned());
        }
        Ok(at)
    }

    fn take_instance(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let index = self.count;
        let most = self.receiver.options.snapshots.instances;
        if index == most {
            return Err(too_many(most));
        }
        self.count += 1;
        let resource = self
            .head
            .as_ref()
            .map_or(UNNAMED, |(resource, _)| resource.as_str());
        match instance::read(bytes, index, resource) {
            Ok(instance) => self.add(index, &instance),
            Err(Unfit::NoJson(problem)) => {
                let detail = format!("Instance {index} is not JSON. {}", problem.detail());
                Err(Problem::new(&problems::MALFORMED_JSON, detail))
            }
            Err(Unfit::Fields(errors)) => self.complain(errors),
        }
    }

    fn add(&mut self, index: usize, instance: &Instance) -> Result<(), Problem> {
        let pointer = |name: &str| Pointer::root().field("instances").index(index).field(name);
        let resource = &instance.target.resource_id;
        let expected = self.head.as_ref().map(|(resource, _)| resource);
        let expected = expected.or(self.named.as_ref().map(|(_, named)| named));
        let is_unnamed = resource.as_str() == UNNAMED;
        match expected {
            Some(expected) if expected != resource && !is_unnamed => {
                return self.complain(vec![wrong(pointer("resource_id"), OTHER_RESOURCE)]);
            }
            None if !is_unnamed => {
                self.allow(resource)?;
                self.named = Some((index, resource.clone()));
            }
            _ => {}
        }
        let at = self.head.as_ref().map(|(_, at)| *at);
        if instance.since > at && at.is_some() {
            return self.complain(vec![wrong(pointer("since"), SINCE_BEHIND)]);
        }
        self.latest = self.latest.max(instance.since.map(|since| (since, index)));
        self.gathering.add(index, instance).map_err(not_kept)?;
        if self.gathering.memory() > self.receiver.options.snapshots.instances_memory {
            return Err(too_different(self.count));
        }
        Ok(())
    }

    /// Names what is wrong; goes on as long as there is room to name more.
    fn complain(&mut self, errors: Vec<FieldError>) -> Result<(), Problem> {
        self.errors.extend(errors);
        if self.errors.len() < ERRORS_MAX {
            return Ok(());
        }
        Err(invalid(std::mem::take(&mut self.errors)))
    }

    fn finish(mut self) -> Result<Snapshot, Problem> {
        // A head comes with the end of the body at the latest.
        let Some((resource, at)) = self.head.take() else {
            return Err(Problem::internal());
        };
        if let Some((index, _)) = self.named.take().filter(|(_, named)| *named != resource) {
            let pointer = Pointer::root()
                .field("instances")
                .index(index)
                .field("resource_id");
            self.errors.push(wrong(pointer, OTHER_RESOURCE));
        }
        if let Some((_, index)) = self.latest.filter(|(since, _)| *since > at) {
            let pointer = Pointer::root()
                .field("instances")
                .index(index)
                .field("since");
            self.errors.push(wrong(pointer, SINCE_BEHIND));
        }
        match self.gathering.finish(ERRORS_MAX).map_err(not_kept)? {
            Ok(instances) if self.errors.is_empty() => Ok(Snapshot {
                resource,
                at,
                instances,
            }),
            Ok(_) => Err(invalid(self.errors)),
            Err(twice) => {
                let name = |Twice(index): Twice| {
                    let index = usize::try_from(index).unwrap_or(usize::MAX);
                    let pointer = Pointer::root().field("instances").index(index);
                    wrong(pointer, "The same target is in the list already.")
                };
                self.errors.extend(twice.into_iter().map(name));
                Err(invalid(self.errors))
            }
        }
    }
}

const OTHER_RESOURCE: &str = "It must be the resource of the snapshot.";
const SINCE_BEHIND: &str = "It lies behind the moment of the snapshot.";

fn wrong(pointer: Pointer, detail: &str) -> FieldError {
    FieldError::new(pointer, detail)
}

fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Problem {
    let detail = "The body is JSON, but not a valid snapshot.";
    Problem::new(&problems::INVALID_SNAPSHOT, detail).errors(errors)
}

fn too_many(most: usize) -> Problem {
    let detail = format!("The snapshot has more than {most} instances.");
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}

fn too_different(count: usize) -> Problem {
    let detail = format!(
        "The first {count} instances have so long ids and quantities that there is no room for more."
    );
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
}

fn too_slow() -> Problem {
    let detail = "The body did not arrive within the time allowed for it.";
    Problem::new(&problems::REQUEST_TIMEOUT, detail)
}

fn cut_short() -> Problem {
    Problem::new(&problems::MALFORMED_JSON, "The body was cut short.")
}

fn not_unpacked() -> Problem {
    let detail = "The body is not what its Content-Encoding says: it cannot be decompressed.";
    Problem::new(&problems::MALFORMED_JSON, detail)
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped with")]
fn not_kept(error: io::Error) -> Problem {
    debug_assert!(false, "memory takes all that is written: {error}");
    Problem::internal()
}

impl From<TooLong> for Refused {
    fn from(TooLong: TooLong) -> Self {
        let detail = "The head or an instance is larger than an event may be.";
        Self(Problem::new(&problems::PAYLOAD_TOO_LARGE, detail))
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}
