//! All settings of both programs. What there is to know of a setting stands here, and here alone.

use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularity, Units};
use sampler_service::oauth::{Algorithm, Audiences, CaBundle};
use sampler_service::telemetry::LogFormat;
use sampler_upstream::FindUrl;
use secrecy::SecretString;
use url::Url;

use crate::kinds::{DatabaseUri, Horizon, LedgerRetention, UpstreamKind};
use crate::table::settings;

settings! {
    /// Where a program listens, and what it tells.
    Both program: ProgramSettings {
        /// The port to listen on. With 0 the system chooses one.
        port: u16 = "PORT", PORT, "7070", worker "7071", in "0" to "65535";
        /// The name or address of the interface to listen on. The default is 0.0.0.0; or 127.0.0.1 where SECURED is
        /// false and no platform runs the program (VCAP_APPLICATION is not set).
        host: Option<String> = "HOST", TEXT;
        /// A second port, for GET /metrics alone, without a token: only those who collect metrics should reach it.
        metrics_port: Option<u16> = "SAMPLER_METRICS_PORT", PORT, in "1" to "65535";
        /// The format of log lines; auto is text on a terminal and JSON elsewhere.
        log_format: LogFormat = "LOG_FORMAT", LOG_FORMAT, "auto";
        /// The log level: off, error, warn, info, debug or trace; also per module, as in info,sampler_store=debug.
        log_level: String = "LOG_LEVEL", LEVEL, "info";
        /// The address of an OTLP collector (http/protobuf), without /v1/traces. Without it there are no traces.
        /// OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER and
        /// OTEL_TRACES_SAMPLER_ARG mean what OpenTelemetry says.
        traces: Option<Url> = "OTEL_EXPORTER_OTLP_ENDPOINT", ADDRESS;
    }

    /// How much a receiver takes in.
    Receiver limits: LimitsSettings {
        /// The maximum number of events, batches and mappings in flight. A quarter of it, rounded down, is for single
        /// stops alone. Without it the receiver divides its capacity fairly among clients.
        inflight: Option<usize> = "MAX_INFLIGHT", COUNT, in "1" to "100000";
        /// The largest body, before and after decompression.
        payload: usize = "MAX_PAYLOAD", SIZE, "500kb", in "1kb" to "4mb";
    }

    /// The database that the programs share.
    Both database: DatabaseSettings {
        /// The address of the MongoDB, with the name of the database in its path. A bound MongoDB service
        /// (VCAP_SERVICES) overrides it. Options of reads, writes, time-outs and the pool do not count: Sampler has its
        /// own.
        uri: DatabaseUri = "DB_URI", DATABASE, "mongodb://localhost:27017/sampler";
        /// The name of the bound MongoDB service to use. Needed only if several are bound.
        service: Option<String> = "SAMPLER_DB_SERVICE", TEXT;
        /// The collection that holds the spans.
        collection: String = "SPANS_COLLECTION_NAME", COLLECTION, "spans";
        /// The maximum number of connections to each server of the database.
        pool_size: usize = "SAMPLER_DB_POOL_SIZE", COUNT, "64", in "1" to "1000";
        /// How long one operation of the database may take.
        operation_timeout: Duration = "SAMPLER_DB_OPERATION_TIMEOUT", DURATION, "10s", in "100ms" to "10m";
    }

    /// Where mappings go.
    Receiver provisioning: ProvisioningSettings {
        /// The address of Abacus's provisioning service. Without it, mappings are answered 502.
        url: Option<Url> = "PROVISIONING_URL", ADDRESS;
    }

    /// The delivery of usages, to whichever upstream.
    Worker delivery: DeliverySettings {
        /// The address of Abacus's collector; /v1/metering/collected/usage is appended. Abacus needs it.
        collector_url: Option<Url> = "COLLECTOR_URL", ADDRESS;
        /// How long one post of a usage, or one lookup, may take.
        timeout: Duration = "SAMPLER_POST_TIMEOUT", DURATION, "30s", in "100ms" to "2m";
        /// The maximum number of usages in flight to the upstream; fewer while the upstream is slow or fails.
        concurrency: usize = "SAMPLER_POST_CONCURRENCY", COUNT, "128", in "1" to "10000";
        /// The longest wait after a failed post. Waits begin with 1 s and double, less a random part of up to half. It
        /// must be shorter than SAMPLER_MONTH_SLACK, unless that is 0: a usage that is retried after its month is lost.
        retry_limit: Duration = "SAMPLER_RETRY_LIMIT", DURATION, "2m", in "1s" to "1d";
    }

    /// The rules for events.
    Receiver events: EventsSettings {
        /// Whether an event with a known id, the same target, and another timestamp or other measures is answered 201,
        /// as by the original Sampler. The first event stays unchanged.
        lenient_repeats: bool = "SAMPLER_LENIENT_REPEATS", FLAG, "false";
    }

    /// When a month closes.
    Both month: MonthSettings {
        /// How long into a month the upstream accepts usages of the previous month (Abacus's SLACK).
        month_slack: Duration = "SAMPLER_MONTH_SLACK", DURATION, "10m", in "0ms" to "27d";
    }

    /// The system that takes the usages. All but the first setting are for `cloudevents` alone.
    Worker upstream: UpstreamSettings {
        /// What takes the usages: Abacus, or what takes CloudEvents over HTTP, such as OpenMeter.
        kind: UpstreamKind = "SAMPLER_UPSTREAM", UPSTREAM, "abacus";
        /// The address to which each usage is posted, exactly as it is written. It is never printed: it may hold a key.
        url: Option<Url> = "SAMPLER_UPSTREAM_URL", WHOLE_ADDRESS;
        /// The attribute source of each event: a URI reference. The upstream recognises a repeat by it and the id: if
        /// it changes, usages that are in flight or not confirmed may count twice.
        source: String = "SAMPLER_UPSTREAM_SOURCE", SOURCE, "sampler";
        /// The attribute type of each event.
        event_type: String = "SAMPLER_UPSTREAM_TYPE", TYPE, "sampler.usage";
        /// The token of posts and lookups. The default, with SECURED=true, is one of this program's own client.
        token: Option<SecretString> = "SAMPLER_UPSTREAM_TOKEN", TOKEN;
        /// How long the upstream recognises a repeat: a duration (such as 24h), or forever. It must never be longer
        /// than the upstream promises, or usages may count twice.
        horizon: Option<Horizon> = "SAMPLER_UPSTREAM_HORIZON", HORIZON;
        /// The address at which a usage is found, with {id} in it, and {source} where that is of use. It is needed
        /// where the horizon is not forever, and with SAMPLER_CONFIRM.
        find_url: Option<FindUrl> = "SAMPLER_UPSTREAM_FIND_URL", FIND_ADDRESS;
        /// How long after a post a usage may still not be found.
        settles: Duration = "SAMPLER_UPSTREAM_SETTLES", DURATION, "1m", in "0ms" to "1d";
    }

    /// How far the timestamp of an event may be from the present.
    Receiver slack: SlackSettings {
        /// How far in the past an event may be dated, at most SAMPLER_RETENTION of the workers less an hour.
        past: Duration = "SAMPLER_SLACK_PAST_INTERVAL", DURATION, "61d", in "0ms" to "366d";
        /// How far in the future an event may be dated.
        future: Duration = "SAMPLER_SLACK_FUTURE_INTERVAL", DURATION, "61d", in "0ms" to "366d";
    }

    /// The division of spans into intervals.
    Both sampling: SamplingSettings {
        /// The granularity: the length of an interval, in UTC. It is the finest window for which the upstream's reports
        /// are right. The worker's counts; the receiver's saves the worker one read of each span, and a coarser one
        /// than the worker's makes first intervals late.
        dimension: Option<Granularity> = "SAMPLER_DIMENSION", GRANULARITY, worker "day";
        /// Other granularities for some resources, or for some plans of them.
        dimension_overrides: Option<Vec<GranularityOverride>> = "SAMPLER_DIMENSION_OVERRIDES", OVERRIDES;
        /// How long an interval of an open span waits after its end for a late stop. The worker's counts; a longer one
        /// of a receiver makes the first interval late.
        stop_grace: Duration = "SAMPLER_STOP_GRACE", DURATION, "0ms", in "0ms" to "1d";
    }

    /// What requests that read show.
    Receiver reading: ReadingSettings {
        /// The units of measures, as in memory = "MB", disk = "GB". Amounts of a measure that has one are also shown by
        /// the hour: in GB where the unit is B, kB or MB, and in GiB where it is KiB or MiB.
        units: Option<Units> = "SAMPLER_UNITS", UNITS;
    }

    /// The console: pages for people.
    Receiver console: ConsoleSettings {
        /// Whether the receiver has a console, at /console. Where SECURED is true it also needs a client, a token
        /// server and SAMPLER_CONSOLE_KEY.
        enabled: bool = "SAMPLER_CONSOLE", FLAG, "true";
        /// The OAuth client that people sign in with. The default are CLIENT_ID and CLIENT_SECRET.
        client_id: Option<String> = "SAMPLER_CONSOLE_CLIENT_ID", TEXT;
        /// The secret of this client. Both are set, or neither.
        client_secret: Option<SecretString> = "SAMPLER_CONSOLE_CLIENT_SECRET", SECRET;
        /// Keys of at least 32 bytes, with commas between them, the same for all receivers. The first one encrypts the
        /// cookies of people who are signed in, each decrypts them.
        key: Option<SecretString> = "SAMPLER_CONSOLE_KEY", COOKIE_KEYS;
    }

    /// When a receiver is unhealthy.
    Receiver health: HealthSettings {
        /// How long the database may be out of reach before the receiver is unhealthy.
        threshold: Duration = "HEALTHCHECK_THRESHOLD", DURATION, "60s", in "100ms" to "1d";
    }

    /// The search for due spans, and the work on them.
    Worker processing: ProcessingSettings {
        /// The maximum number of spans in progress: more than usages in flight, as spans also wait for the database.
        concurrency: usize = "SAMPLER_PROCESS_CONCURRENCY", COUNT, "512", in "1" to "10000";
        /// The maximum number of spans that one query for due spans returns.
        batch_size: usize = "PROCESS_BATCH_SIZE", COUNT, "100", in "1" to "10000";
        /// The pause after a query that found no due span.
        interval: Duration = "PROCESS_SCHEDULE_INTERVAL", DURATION, "1s", in "10ms" to "1h";
        /// How long the processing loop may be without progress before the worker is not ready.
        threshold: Duration = "PROCESS_SPANS_MONITOR_THRESHOLD", DURATION, "60s", in "1s" to "1d";
    }

    /// The removal of complete spans.
    Worker cleanup: CleanupSettings {
        /// The maximum number of complete spans that are removed at once.
        batch_size: usize = "CLEANUP_BATCH_SIZE", COUNT, "100", in "1" to "10000";
        /// The pause after a clean-up that removed less than a batch.
        interval: Duration = "CLEANUP_SCHEDULE_INTERVAL", DURATION, "1s", in "10ms" to "1d";
        /// How long the clean-up loop may be without progress before the worker is not ready.
        threshold: Duration = "CLEANUP_SPANS_MONITOR_THRESHOLD", DURATION, "60s", in "1s" to "1d";
        /// How long complete spans, and the ids of their events, are kept after their end. Receivers take no event that
        /// is older than this, less an hour.
        retention: Duration = "SAMPLER_RETENTION", DURATION, "62d", in "1d" to "3660d";
    }

    /// How long the ledger keeps entries of usages.
    Worker ledger: LedgerSettings {
        /// How long the entry of a usage is kept, by the granularity of its target. One that is left out keeps its
        /// default. A change counts for entries that are written from then on.
        retention: LedgerRetention = "SAMPLER_LEDGER_RETENTION", LEDGER_RETENTION, "minute=400d,hour=400d,day=400d,month=800d";
    }

    /// The suspension of spans whose usages the upstream refuses, and its end.
    Worker suspension: SuspensionSettings {
        /// How many refusals of its usage suspend a span (400, 422, 451 and other answers that blame the usage, such as
        /// a 404 that names an error; never 401, 403, 429 or 5xx). The spans of one cause are kept together: those with
        /// the same status, error, resource and plan.
        after: usize = "SAMPLER_SUSPEND_AFTER", COUNT, "3", in "1" to "1000";
        /// How often one suspended span of each cause is tried again. Once it is accepted, all spans of the cause
        /// resume.
        probe_interval: Duration = "SAMPLER_PROBE_INTERVAL", DURATION, "10m", in "100ms" to "1d";
    }

    /// Whether the worker follows up what the upstream has accepted, and may still set aside.
    Worker confirm: ConfirmSettings {
        /// Whether the worker asks the upstream every five minutes for each usage that it has accepted, until the usage
        /// counts or is missing. The token needs the right to read collected usages.
        enabled: bool = "SAMPLER_CONFIRM", FLAG, "false";
        /// How long after its acceptance the worker asks for a usage that the upstream does not know, before it is
        /// missing.
        timeout: Duration = "SAMPLER_CONFIRM_TIMEOUT", DURATION, "1d", in "100ms" to "62d";
    }

    /// When sampling pauses because the database cannot keep up.
    Worker distress: DistressSettings {
        /// Sampling pauses while a write of the worker takes longer than this to reach the journals of a majority.
        commit_upper: Duration = "SAMPLER_COMMIT_UPPER", DURATION, "5s", in "10ms" to "1h";
        /// Sampling resumes once it takes less than this. It must be less than SAMPLER_COMMIT_UPPER.
        commit_lower: Duration = "SAMPLER_COMMIT_LOWER", DURATION, "1s", in "10ms" to "1h";
    }

    /// The checks of callers, and the credentials of the program itself.
    Both security: SecuritySettings {
        /// Whether requests need a token, and requests to the upstream and to Abacus carry one.
        secured: bool = "SECURED", FLAG, "false";
        /// Whether GET /healthcheck needs a token, with the scope abacus.system.read or one of Sampler. The default is
        /// the value of SECURED.
        healthcheck_secured: Option<bool> = "HEALTHCHECK_SECURED", FLAG;
        /// Whether to trust any server certificate. Not for production.
        skip_ssl_validation: bool = "SKIP_SSL_VALIDATION", FLAG, "false";
        /// The Cloud Foundry API that names the token server.
        auth_server: Option<Url> = "AUTH_SERVER", ADDRESS;
        /// The Cloud Foundry API; used if AUTH_SERVER is not set.
        api: Option<Url> = "API", ADDRESS;
        /// The OAuth client of this program, for its own requests to the upstream and to Abacus.
        client_id: Option<String> = "CLIENT_ID", TEXT;
        /// The secret of the client.
        client_secret: Option<SecretString> = "CLIENT_SECRET", SECRET;
        /// The key that checks tokens: a shared key for HS256, HS384 and HS512 (at least 32, 48 or 64 bytes), a public
        /// key as PEM for the others. Without it, the keys of the token server are fetched.
        jwt_key: Option<SecretString> = "JWTKEY", SECRET;
        /// The only algorithm that tokens may be signed with. The default is HS256 with JWTKEY, and RS256 with fetched
        /// keys. Fetched keys are never shared keys.
        jwt_algorithm: Option<Algorithm> = "JWTALGO", ALGORITHM;
        /// The token server, if it is not the UAA of a Cloud Foundry: an issuer that serves
        /// /.well-known/openid-configuration. It overrides AUTH_SERVER.
        oidc_issuer: Option<Url> = "SAMPLER_OIDC_ISSUER", ADDRESS;
        /// The issuer (iss) that tokens must name. The default is SAMPLER_OIDC_ISSUER, or what a UAA says in its
        /// /.well-known/openid-configuration.
        token_issuer: Option<String> = "SAMPLER_TOKEN_ISSUER", TEXT;
        /// The accepted audiences (aud) of tokens, separated by commas; a token needs one of them. A final * matches
        /// any longer audience. For a UAA, set abacus.sampler,abacus.sampler.* here.
        token_audience: Option<Audiences> = "SAMPLER_TOKEN_AUDIENCE", AUDIENCES;
        /// The scope that this program's client requests, in place of those of a Cloud Foundry's UAA: Entra asks for
        /// one that ends in /.default.
        client_scope: Option<String> = "SAMPLER_CLIENT_SCOPE", TEXT;
        /// The audience that this program's client requests, for token servers such as Auth0 that ask for one.
        client_audience: Option<String> = "SAMPLER_CLIENT_AUDIENCE", TEXT;
        /// A PEM file with certificate authorities to trust for HTTPS besides the system's, read at the start. For the
        /// database, use tlsCAFile in DB_URI.
        ca_file: Option<CaBundle> = "SAMPLER_CA_FILE", CERTIFICATES;
    }
}
