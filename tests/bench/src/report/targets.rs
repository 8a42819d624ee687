//! The targets, each a ratio against what was measured in the same run, or a figure.

use crate::data::{Data, FairnessRun, Ledger, Receiver, Run, Sampled, System, find};
use crate::event::Mix;

use super::batches::targets_of_batches;
use super::reading::targets_of_reading;
use super::{grouped, rounded, workers};

/// What is allowed between two figures that are to be alike: the same thing measured twice differs
/// by as much.
const NOISE: f64 = 1.05;
/// The most memory of a program, MB.
const MEMORY_MAX: f64 = 64.0;
/// Connections of a flood.
const FLOOD: u64 = 300;

/// A target and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// What is wanted.
    pub(crate) wanted: String,
    /// What there is.
    pub(crate) found: String,
    /// Whether that is enough.
    pub(crate) reached: bool,
}

/// All targets that the figures say something about.
pub(crate) fn targets(data: &Data) -> Vec<Target> {
    let mut targets = Vec::new();
    if let Some(part) = &data.receiver {
        targets.extend(of_receiver(&part.figures));
    }
    if let Some(part) = &data.fairness {
        targets.extend(of_fairness(&part.figures.runs));
    }
    if let Some(part) = &data.batches {
        targets.extend(targets_of_batches(&part.figures));
    }
    if let Some(part) = &data.reading {
        targets.extend(targets_of_reading(&part.figures.runs));
    }
    if let Some(part) = &data.worker {
        targets.extend(of_worker(&part.figures.rates));
    }
    if let Some(part) = &data.ledger {
        targets.extend(of_ledger(&part.figures));
    }
    targets.extend(memory(data));
    targets
}

fn of_receiver(figures: &Receiver) -> Vec<Target> {
    let mut targets = vec![
        times(figures, Mix::Starts, 4.0),
        of_ceiling(figures),
        times(figures, Mix::Stops, 3.0),
    ];
    for target in [slowest, lone] {
        targets.extend([Mix::Starts, Mix::Stops].map(|mix| target(figures, mix)));
    }
    targets.into_iter().flatten().collect()
}

/// What is wanted of a flood over 300 connections, and over ten times as many, with default settings.
fn of_fairness(runs: &[FairnessRun]) -> Vec<Target> {
    let runs: Vec<_> = runs.iter().filter(|run| run.limit.is_none()).collect();
    let best = runs.iter().map(|run| run.kept_per_second);
    let best = best.fold(0.0, f64::max);
    let of_load = |load: &&&FairnessRun| [FLOOD, 10 * FLOOD].contains(&load.connections);
    let of_run = |run: &&FairnessRun| {
        let wanted = |what| {
            format!(
                "beside a flood over {} connections, {what}",
                run.connections
            )
        };
        let share = 100.0 * run.kept_per_second / best;
        [
            Target {
                wanted: wanted("at least 99.9 % of a quiet client's events kept"),
                found: format!("{} %", rounded(run.quiet_kept_share)),
                reached: run.quiet_kept_share >= 99.9,
            },
            Target {
                wanted: wanted("99 of 100 of them answered within 250 ms"),
                found: format!("{} ms", rounded(run.quiet_p99_ms)),
                reached: run.quiet_p99_ms <= 250.0,
            },
            Target {
                wanted: wanted("at least 80 % of the best rate kept in all"),
                found: format!(
                    "{} of {} a second: {} %",
                    grouped(run.kept_per_second),
                    grouped(best),
                    rounded(share)
                ),
                reached: share >= 80.0,
            },
        ]
    };
    runs.iter().filter(of_load).flat_map(of_run).collect()
}

fn name(mix: Mix) -> &'static str {
    match mix {
        Mix::Starts => "starts",
        Mix::Stops => "stops",
        Mix::Both => "events",
    }
}

/// A figure of Sampler, and of one write per event behind HTTP.
fn beside(
    runs: &[Run],
    mix: Mix,
    connections: usize,
    figure: impl Fn(&Run) -> f64,
) -> Option<[f64; 2]> {
    let of = |system| find(runs, system, mix, connections).map(&figure);
    Some([of(System::Sampler)?, of(System::OneWriteHttp)?])
}

/// The target relative to the rate of one write per event, with 256 connections.
fn times(figures: &Receiver, mix: Mix, factor: f64) -> Option<Target> {
    let [ours, http] = beside(&figures.closed, mix, 256, |run| run.per_second)?;
    Some(Target {
        wanted: format!(
            "{} a second with 256 connections at least {factor} times those of one write per event",
            name(mix)
        ),
        found: format!(
            "{} against {}: {} times",
            rounded(ours),
            rounded(http),
            rounded(ours / http),
        ),
        reached: ours >= factor * http,
    })
}

fn of_ceiling(figures: &Receiver) -> Option<Target> {
    let ours = find(&figures.closed, System::Sampler, Mix::Starts, 256)?.per_second;
    let ceiling = figures.ceiling(Mix::Starts)?.per_second;
    let share = 100.0 * ours / ceiling;
    Some(Target {
        wanted: "starts a second with 256 connections at least 60 % of what the server takes in \
                 batches without HTTP"
            .to_owned(),
        found: format!(
            "{} of {}: {} %",
            rounded(ours),
            rounded(ceiling),
            rounded(share)
        ),
        reached: share >= 60.0,
    })
}

fn slowest(figures: &Receiver, mix: Mix) -> Option<Target> {
    let [ours, http] = beside(&figures.closed, mix, 64, |run| run.p99_ms)?;
    Some(Target {
        wanted: format!(
            "99 of 100 {} with 64 connections answered sooner than with one write per event",
            name(mix)
        ),
        found: format!("{} ms against {} ms", rounded(ours), rounded(http)),
        reached: ours < http,
    })
}

/// Where the server's log is read, as it is in any set with more than one member.
fn lone(figures: &Receiver, mix: Mix) -> Option<Target> {
    let [ours, http] = beside(&figures.followed, mix, 1, |run| run.p50_ms)?;
    let [unread_ours, unread_http] = beside(&figures.closed, mix, 1, |run| run.p50_ms)?;
    Some(Target {
        wanted: format!(
            "one lone connection waits no longer for its {} than with one write per event \
             (median; 5 % is noise)",
            name(mix)
        ),
        found: format!(
            "{} ms against {} ms ({} ms against {} ms where nobody reads the server's log)",
            rounded(ours),
            rounded(http),
            rounded(unread_ours),
            rounded(unread_http),
        ),
        reached: ours <= http * NOISE,
    })
}

fn of_worker(rates: &[Sampled]) -> Vec<Target> {
    let at_once = rates.iter().filter(|run| run.answer_ms == 0);
    let best = at_once.max_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let Some(best) = best else { return Vec::new() };
    let with = format!("with {}", workers(best.workers));
    vec![
        Target {
            wanted: "5,000 intervals a second where Abacus answers at once".to_owned(),
            found: format!("{} {with}", rounded(best.per_second)),
            reached: best.per_second >= 5_000.0,
        },
        Target {
            wanted: "under load, at most one command to the database for 20 intervals".to_owned(),
            found: format!("{} for 20 {with}", rounded(best.commands_each * 20.0)),
            reached: best.commands_each * 20.0 <= 1.0,
        },
    ]
}

fn of_ledger(figures: &Ledger) -> Vec<Target> {
    let (with, without) = (&figures.with, &figures.without);
    let share = 100.0 * with.per_second / without.per_second;
    let midnight = figures.midnight.as_ref().map(|[with, without]| {
        let times = with.seconds / without.seconds;
        Target {
            wanted: "a midnight takes at most 1.25 times as long as without the ledger".to_owned(),
            found: format!(
                "{} s against {} s for {} spans: {} times",
                rounded(with.seconds),
                rounded(without.seconds),
                grouped(with.spans as f64),
                rounded(times)
            ),
            reached: times <= 1.25,
        }
    });
    let mut targets = vec![
        Target {
            wanted: "intervals a second at least 80 % of those without the ledger".to_owned(),
            found: format!(
                "{} of {}: {} %",
                rounded(with.per_second),
                rounded(without.per_second),
                rounded(share)
            ),
            reached: share >= 80.0,
        },
        Target {
            wanted: "with the ledger, at most one command to the database for 10 intervals"
                .to_owned(),
            found: format!("{} for 10", rounded(with.commands_each * 10.0)),
            reached: with.commands_each * 10.0 <= 1.0,
        },
        Target {
            wanted: format!(
                "99 of 100 pages of a span with {} entries read within 50 ms",
                grouped(figures.of_span as f64)
            ),
            found: format!("{} ms", rounded(figures.page.p99_ms)),
            reached: figures.page.p99_ms <= 50.0,
        },
    ];
    targets.extend(midnight);
    targets
}

/// The greatest peaks of all runs.
fn memory(data: &Data) -> Vec<Target> {
    let receiver = data.receiver.iter().flat_map(|part| {
        let runs = [
            &part.figures.closed,
            &part.figures.open,
            &part.figures.followed,
        ];
        let ours = runs
            .into_iter()
            .flatten()
            .filter(|run| run.system == System::Sampler);
        ours.filter_map(|run| run.memory_mb)
    });
    let worker = data.worker.iter().map(|part| &part.figures);
    let worker = worker.flat_map(|worker| worker.rates.iter().chain([&worker.catch_up]));
    let midnight = data.midnight.iter().map(|part| &part.figures.sampled);
    let peaks = [
        ("receiver", receiver.reduce(f64::max)),
        (
            "worker",
            worker
                .chain(midnight)
                .map(|run| run.memory_mb)
                .reduce(f64::max),
        ),
    ];
    let target = |(program, peak): (&str, Option<f64>)| {
        let peak = peak?;
        Some(Target {
            wanted: format!("a {program} stays under {MEMORY_MAX} MB at full load"),
            found: format!("{} MB at its peak", rounded(peak)),
            reached: peak < MEMORY_MAX,
        })
    };
    peaks.into_iter().filter_map(target).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(system: System, mix: Mix, connections: usize, per_second: f64) -> Run {
        Run {
            system,
            mix,
            connections,
            offered_per_second: None,
            per_second,
            p50_ms: 1000.0 / per_second,
            p99_ms: 3000.0 / per_second,
            p999_ms: 5000.0 / per_second,
            longest_ms: 9000.0 / per_second,
            server_us: 100.0,
            program_us: Some(50.0),
            generator_us: 10.0,
            generator_share: 5.0,
            others_share: 1.0,
            memory_mb: Some(30.0),
        }
    }

    pub(crate) fn sampled(workers: usize, answer_ms: u64, per_second: f64) -> Sampled {
        Sampled {
            workers,
            answer_ms,
            spans: 1_000,
            intervals: 10_000,
            seconds: 10_000.0 / per_second,
            per_second,
            commands_each: 0.04,
            reads_each: 0.01,
            server_us: 100.0,
            worker_us: 80.0,
            stand_in_us: 20.0,
            others_share: 1.0,
            memory_mb: 65.0,
        }
    }

    fn receiver(ours: f64, http: f64) -> Receiver {
        let mut closed = vec![run(System::Ceiling, Mix::Starts, 4, 30_000.0)];
        for mix in [Mix::Starts, Mix::Stops] {
            for connections in [1, 64, 256] {
                closed.push(run(System::Sampler, mix, connections, ours));
                closed.push(run(System::OneWriteHttp, mix, connections, http));
                closed.push(run(System::OneWrite, mix, connections, http));
            }
        }
        Receiver {
            followed: closed.clone(),
            closed,
            open: Vec::new(),
        }
    }

    #[test]
    fn ratios_decide() {
        let reached = |ours, http| {
            let targets = of_receiver(&receiver(ours, http)).into_iter();
            targets.map(|target| target.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(18_000.0, 4_500.0), [true; 7]);
        let (starts, stops) = (false, true);
        let too_few = [starts, starts, stops, true, true, true, true];
        assert_eq!(reached(17_000.0, 4_500.0), too_few);
        assert_eq!(reached(1_000.0, 4_500.0), [false; 7]);
    }

    #[test]
    fn a_lone_connection_is_looked_at_where_the_log_is_read() {
        let mut figures = receiver(900.0, 1_000.0);
        figures.followed = receiver(990.0, 1_000.0).closed;
        let lone = lone(&figures, Mix::Starts).unwrap();
        assert!(lone.reached, "{lone:?}");
        let found = "1.01 ms against 1.00 ms (1.11 ms against 1.00 ms where nobody reads";
        assert!(lone.found.starts_with(found), "{lone:?}");
    }

    #[test]
    fn a_flood_costs_the_quiet_client_nothing_and_all_little() {
        let run = |connections, kept_per_second, quiet_kept_share, quiet_p99_ms| FairnessRun {
            limit: None,
            connections,
            kept_per_second,
            quiet_kept_share,
            quiet_p50_ms: 10.0,
            quiet_p99_ms,
            flood_kept_share: 100.0,
            memory_mb: 30.0,
        };
        let reached = |last| {
            let runs = [
                run(30, 10_000.0, 50.0, 900.0),
                run(3_000, 8_000.0, 99.9, 250.0),
                last,
            ];
            let targets = of_fairness(&runs).into_iter();
            targets.map(|target| target.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(run(300, 9_000.0, 100.0, 90.0)), [true; 6]);
        let worse = [true, true, true, false, false, false];
        assert_eq!(reached(run(300, 7_999.0, 99.8, 251.0)), worse);
        let before = FairnessRun {
            limit: Some(200),
            ..run(300, 1.0, 1.0, 1.0)
        };
        assert_eq!(reached(before), [true; 3]);
    }

    #[test]
    fn what_was_not_measured_is_no_target() {
        assert_eq!(targets(&Data::default()), []);
        assert_eq!(of_receiver(&Receiver::default()), []);
        assert_eq!(of_worker(&[sampled(1, 20, 9_000.0)]), []);
    }

    #[test]
    fn the_best_run_of_the_workers_counts() {
        let targets = of_worker(&[sampled(1, 0, 4_000.0), sampled(2, 0, 6_000.0)]);
        assert!(targets[0].reached && targets[0].found.contains("2 workers"));
        assert!(targets[1].reached, "{targets:?}");
    }
}
