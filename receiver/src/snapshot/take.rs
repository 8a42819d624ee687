//! Takes a snapshot in.
//!
//! NDJSON may be long, so each line is taken as it arrives. JSON is short, and is read whole.

use std::io::{self, Write};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, header};
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use sampler_domain::{Id, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_service::security::{Grant, Reach};
use tokio::time::{Instant, timeout_at};

use super::instance::{self, Instance, Unfit};
use super::instances::{Gathering, Snapshot, Twice};
use super::time_for;
use crate::admission::ServingPermit;
use crate::fields::{self, Fields};
use crate::json::{self, Json, Values};
use crate::{Receiver, body, problems};

/// Bytes that may arrive without a permit: those of a head, and of what little comes with it.
const HEAD_MAX: usize = 16 << 10;

/// Bytes that are taken at a time. Each may be a thousand once it is unpacked.
const PART: usize = 1 << 10;

/// The same without a permit: what they are unpacked to is in memory while the snapshot waits.
const PART_WITHOUT_PERMIT: usize = 16;

/// The longest snapshot in JSON, which is in memory as a whole.
const JSON_MAX: usize = 16 << 20;

/// Wrong fields that are named.
const ERRORS_MAX: usize = 100;

/// Instances that are taken before others get a turn on this thread.
const INSTANCES_AT_A_TIME: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnapshotFormat {
    /// One object.
    Json,
    /// A head, and an instance on each further line.
    Lines,
}

/// Reads the body of a request as a snapshot, which takes a permit as soon as its resource is known.
///
/// # Errors
/// 503 where others hold the permit for too long, 415 for another media type or coding, 413 for too
/// much, 408 for too slow, 400 for what is not JSON or has wrong fields, 403 for a resource that the
/// grant does not allow reading.
pub(crate) async fn take(
    receiver: &Receiver,
    grant: &Grant,
    request: Request<Body>,
) -> Result<(Snapshot, ServingPermit), Problem> {
    let mut arriving = Arriving::new(receiver, grant, request.headers())?;
    let mut body = TimedBody::new(request.into_body(), receiver.settings.limits.body_timeout);
    let mut permit = None;
    while let Some(data) = body.next(arriving.taking.is_allowed()).await? {
        arriving.check(body.arrived)?;
        let mut rest = &data[..];
        while !rest.is_empty() {
            let most = permit.as_ref().map_or(PART_WITHOUT_PERMIT, |_| PART);
            let (part, later) = rest.split_at(most.min(rest.len()));
            arriving.take(part)?;
            rest = later;
            if permit.is_none() && arriving.has_begun() {
                permit = Some(body.admit(receiver, grant).await?);
            }
        }
    }
    arriving.end()?;
    let permit = match permit {
        Some(permit) => permit,
        None => receiver.admit_snapshot(grant).await?,
    };
    Ok((arriving.finish().await?, permit))
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
            let Some(frame) = frame.map_err(|_| body::too_slow())? else {
                return Ok(None);
            };
            // Trailers are skipped.
            let Ok(data) = frame.map_err(|_| body::cut_short())?.into_data() else {
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

/// A body that arrives.
struct Arriving<'a> {
    taking: Taking<'a>,
    form: SnapshotFormat,
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    /// The line that has begun; of JSON, all that has arrived.
    text: Vec<u8>,
    unpacked: usize,
    /// The longest body.
    max: usize,
    /// The longest head, and the longest instance.
    part_max: usize,
}

impl<'a> Arriving<'a> {
    fn new(receiver: &'a Receiver, grant: &'a Grant, headers: &HeaderMap) -> Result<Self, Problem> {
        let limits = &receiver.settings.limits;
        let (form, max) = match body::media_type(headers, &[body::JSON, body::NDJSON])? {
            body::NDJSON => (SnapshotFormat::Lines, limits.snapshot_payload),
            _ => (SnapshotFormat::Json, limits.snapshot_payload.min(JSON_MAX)),
        };
        let is_compressed = body::is_gzip(headers)?;
        let arriving = Self {
            taking: Taking::new(receiver, grant),
            form,
            decoder: is_compressed.then(|| MultiGzDecoder::new(Vec::new())),
            text: Vec::new(),
            unpacked: 0,
            max,
            part_max: limits.payload,
        };
        let length = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        arriving.check(length.unwrap_or(0))?;
        Ok(arriving)
    }

    /// Refuses a body of more bytes than are allowed.
    fn check(&self, length: usize) -> Result<(), Problem> {
        if length <= self.max {
            return Ok(());
        }
        Err(match self.form {
            SnapshotFormat::Json if self.max == JSON_MAX => too_large_for_json(),
            _ => body::too_large(self.max),
        })
    }

    /// Whether it is known which resource the snapshot is of, or more has come than that takes.
    fn has_begun(&self) -> bool {
        self.taking.head.is_some() || self.unpacked > HEAD_MAX
    }

    fn take(&mut self, part: &[u8]) -> Result<(), Problem> {
        let Some(decoder) = &mut self.decoder else {
            return self.push(part);
        };
        decoder.write_all(part).map_err(|_| body::not_unpacked())?;
        let bytes = std::mem::take(decoder.get_mut());
        self.push(&bytes)
    }

    /// All bytes have come.
    fn end(&mut self) -> Result<(), Problem> {
        let Some(decoder) = self.decoder.take() else {
            return Ok(());
        };
        let bytes = decoder.finish().map_err(|_| body::not_unpacked())?;
        self.push(&bytes)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.unpacked += bytes.len();
        self.check(self.unpacked)?;
        if self.form == SnapshotFormat::Json {
            self.text.extend_from_slice(bytes);
            return Ok(());
        }
        let mut lines = bytes.split(|byte| *byte == b'\n');
        // The last one continues.
        let last = lines.next_back().unwrap_or_default();
        for line in lines {
            self.extend_line(line)?;
            self.end_line()?;
        }
        self.extend_line(last)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        check_part(self.text.len() + bytes.len(), self.part_max)?;
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Problem> {
        match self.text.trim_ascii() {
            b"" => {}
            head if self.taking.head.is_none() => self.taking.take_head(head, self.form)?,
            instance => self.taking.take_instance(instance)?,
        }
        self.text.clear();
        Ok(())
    }

    async fn finish(mut self) -> Result<Snapshot, Problem> {
        match self.form {
            SnapshotFormat::Json => self.take_object().await?,
            SnapshotFormat::Lines => {
                self.end_line()?;
                if self.taking.head.is_none() {
                    self.taking.take_head(b"", self.form)?;
                }
            }
        }
        // What has arrived takes no memory any more.
        drop(self.text);
        self.taking.finish()
    }

    /// Takes the head first, wherever the instances are in the object.
    async fn take_object(&mut self) -> Result<(), Problem> {
        let (head, instances) = divide(&self.text)?;
        check_part(head.len(), self.part_max)?;
        self.taking.take_head(&head, self.form)?;
        let mut values = Values::of(instances);
        values.passes(b'[');
        while values.has_next(self.taking.count == 0, b']')? {
            let instance = values.value()?;
            check_part(instance.len(), self.part_max)?;
            self.taking.take_instance(instance)?;
            if self.taking.count.is_multiple_of(INSTANCES_AT_A_TIME) {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

/// Divides a snapshot in JSON: without its instances, and their list. Checks that the body is JSON, but
/// not its members.
fn divide(body: &[u8]) -> Result<(Vec<u8>, &[u8]), Problem> {
    let mut values = Values::of(body);
    if !values.passes(b'{') {
        return Ok((body.to_vec(), b"[]"));
    }
    let (mut head, mut taken, mut instances) = (Vec::new(), 0, &b"[]"[..]);
    let mut is_first = true;
    while values.has_next(is_first, b'}')? {
        is_first = false;
        let name = values.name()?;
        let value = values.value()?;
        if name == "instances" && value.starts_with(b"[") {
            instances = value;
            head.extend(&body[taken..values.at() - value.len()]);
            head.extend(b"[]");
            taken = values.at();
        }
    }
    values.end()?;
    head.extend(&body[taken..]);
    Ok((head, instances))
}

/// A snapshot that is arriving.
struct Taking<'a> {
    receiver: &'a Receiver,
    grant: &'a Grant,
    /// The resource and the time that it is of.
    head: Option<(Id, Timestamp)>,
    gathering: Gathering,
    /// Instances so far, with those that are wrong.
    count: usize,
    errors: Vec<FieldError>,
}

impl<'a> Taking<'a> {
    fn new(receiver: &'a Receiver, grant: &'a Grant) -> Self {
        Self {
            receiver,
            grant,
            head: None,
            gathering: Gathering::new(),
            count: 0,
            errors: Vec::new(),
        }
    }

    /// Whether the grant allows reading the resource, as far as the resource is known.
    fn is_allowed(&self) -> bool {
        self.head.is_some() || *self.grant.readable() == Reach::Everything
    }

    fn take_head(&mut self, bytes: &[u8], form: SnapshotFormat) -> Result<(), Problem> {
        let mut fields = Fields::of(json::parse(bytes)?).map_err(invalid)?;
        let resource = fields.required("resource_id", fields::id);
        if let Some(resource) = &resource {
            self.grant.require_read(resource.as_str())?;
        }
        let at = fields.required("at", |value| self.at(value));
        if form == SnapshotFormat::Json {
            fields.required("instances", fields::list);
        }
        fields.finish().map_err(invalid)?;
        self.head = resource.zip(at);
        Ok(())
    }

    /// A time whose events can still be kept.
    fn at(&self, value: Json<'_>) -> Result<Timestamp, String> {
        let at = fields::timestamp(value)?;
        let ago = self.receiver.parts.clock.now().since(at);
        if ago < 0 {
            return Err("It is in the future.".to_owned());
        }
        if ago > self.receiver.slack.past {
            return Err("Events this old are no longer accepted.".to_owned());
        }
        Ok(at)
    }

    fn take_instance(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let index = self.count;
        let most = self.receiver.snapshots.instances;
        if index == most {
            return Err(too_many(most));
        }
        self.count += 1;
        let resource = self.head.as_ref().map_or("", |head| head.0.as_str());
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
        let Some((resource, at)) = &self.head else {
            return Err(Problem::internal());
        };
        if instance.target.resource_id != *resource {
            let detail = "It must be the resource of the snapshot.";
            let field = pointer(index).field("resource_id");
            return self.complain(vec![FieldError::new(field, detail)]);
        }
        if instance.since > Some(*at) {
            let detail = "It is after the time of the snapshot.";
            let field = pointer(index).field("since");
            return self.complain(vec![FieldError::new(field, detail)]);
        }
        self.gathering.add(index, instance).map_err(not_kept)?;
        if self.gathering.memory() > self.receiver.snapshots.instances_memory {
            return Err(too_different(self.count));
        }
        Ok(())
    }

    /// Names what is wrong. Continues while there is room to name more.
    fn complain(&mut self, errors: Vec<FieldError>) -> Result<(), Problem> {
        self.errors.extend(errors);
        if self.errors.len() < ERRORS_MAX {
            return Ok(());
        }
        Err(invalid(std::mem::take(&mut self.errors)))
    }

    fn finish(mut self) -> Result<Snapshot, Problem> {
        let Some((resource, at)) = self.head.take() else {
            return Err(Problem::internal());
        };
        match self.gathering.finish(ERRORS_MAX).map_err(not_kept)? {
            Ok(instances) if self.errors.is_empty() => Ok(Snapshot {
                resource,
                at,
                instances,
            }),
            Ok(_) => Err(invalid(self.errors)),
            Err(twice) => {
                self.errors.extend(twice.into_iter().map(|Twice(index)| {
                    let index = usize::try_from(index).unwrap_or(usize::MAX);
                    FieldError::new(pointer(index), "The same target is in the list already.")
                }));
                Err(invalid(self.errors))
            }
        }
    }
}

fn pointer(index: usize) -> Pointer {
    Pointer::root().field("instances").index(index)
}

fn check_part(length: usize, most: usize) -> Result<(), Problem> {
    if length <= most {
        return Ok(());
    }
    let detail = "The head or an instance is larger than an event may be.";
    Err(Problem::new(&problems::PAYLOAD_TOO_LARGE, detail))
}

fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Problem {
    let detail = "The body is JSON, but not a valid snapshot.";
    Problem::new(&problems::INVALID_SNAPSHOT, detail).errors(errors)
}

fn too_large_for_json() -> Problem {
    let detail = format!(
        "A snapshot in JSON has at most {JSON_MAX} bytes, compressed or decompressed. Send a larger one as {}.",
        body::NDJSON
    );
    Problem::new(&problems::PAYLOAD_TOO_LARGE, detail)
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

#[expect(clippy::needless_pass_by_value, reason = "it is mapped with")]
fn not_kept(error: io::Error) -> Problem {
    debug_assert!(false, "memory takes all that is written: {error}");
    Problem::internal()
}
