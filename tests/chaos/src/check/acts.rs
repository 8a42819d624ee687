//! The answers to the operators, and the audit trail.

use std::collections::HashMap;

use super::{Rule, Violation};
use crate::evidence::Trace;
use crate::history::{Act, ActKind, Answer, Record};

/// The statuses that the API gives to an act of that kind, beside 503.
const fn documented(kind: ActKind) -> &'static [u16] {
    match kind {
        ActKind::Skip | ActKind::Resume => &[200, 404, 409, 412],
        ActKind::ResumeCause => &[202, 404],
        ActKind::Resend => &[202, 404, 409],
        ActKind::Read => &[200, 404],
    }
}

/// Each answer is documented, and the trail holds each act that was or may have been done.
pub(super) fn check(
    records: &[Record],
    trail: &[Trace],
    is_ordered: impl Fn(i64, u64) -> bool,
    violations: &mut Vec<Violation>,
) {
    let trail: HashMap<&str, &Trace> = trail
        .iter()
        .map(|trace| (trace.reason.as_str(), trace))
        .collect();
    for record in records {
        let Record::Act(act) = record else { continue };
        if let Answer::Status { status, .. } = act.answer {
            let detail = format!("{:?} at {}: {:?}", act.kind, act.at, act.answer);
            if status == 500 {
                if !is_ordered(act.at, act.took) {
                    violations.push(Rule::NoInternalError.broken(&act.subject, detail));
                }
            } else if status != 503 && !documented(act.kind).contains(&status) {
                violations.push(Rule::DocumentedAnswer.broken(&act.subject, detail));
            }
        }
        if act.kind != ActKind::Read {
            check_trace(act, trail.get(act.reason.as_str()).copied(), violations);
        }
    }
}

/// What was done is in the trail, as `done` or at least as `asked`; what was not done is not there as
/// `done`. `unknown` is there only where the operator was told nothing for certain.
fn check_trace(act: &Act, trace: Option<&Trace>, violations: &mut Vec<Violation>) {
    let outcome = trace.map(|trace| trace.outcome.as_str());
    let is_done = act.answer.has_status(200) || act.answer.has_status(202);
    let fits = match outcome {
        Some("done") => !act.answer.is_refused(),
        Some("asked") => true,
        Some("unknown") => !is_done && !act.answer.is_refused(),
        Some("refused") | None => !is_done,
        Some(_) => false,
    };
    if !fits {
        let detail = format!("{outcome:?} is in the trail for {act:?}");
        violations.push(Rule::Trail.broken(&act.subject, detail));
    }
}
