//! The answer to a snapshot, written bit by bit: with very many differences it is as large as the
//! snapshot.

use std::io::{self, Write};

use sampler_api::{Differs, InstanceWithoutSpan, Said};
use sampler_domain::Measures;

use super::comparison::{Compared, SeenSpan};
use super::instance::Instance;
use super::proposal;

/// Writes the answer.
pub(crate) fn write(compared: &Compared, out: &mut impl Write) -> io::Result<()> {
    let snapshot = &compared.snapshot;
    let (at, checked) = (snapshot.at.as_millis(), snapshot.instances.count());
    write!(
        out,
        "{{\"at\":{at},\"checked\":{checked},\"open_without_instance\":["
    )?;
    let mut separator = Separator::default();
    for line in compared.open.read() {
        separator.write(out)?;
        out.write_all(line?.as_bytes())?;
    }
    out.write_all(b"],\"instance_without_span\":[")?;
    write_alone(compared, out)?;
    out.write_all(b"],\"differs\":[")?;
    write_differs(compared, out)?;
    let more = if compared.is_cut {
        ",\"more\":true"
    } else {
        ""
    };
    write!(out, "]{more}}}")
}

fn write_alone(compared: &Compared, out: &mut impl Write) -> io::Result<()> {
    if !compared.has_alone() {
        return Ok(());
    }
    let (snapshot, none) = (&compared.snapshot, Measures::default());
    let mut separator = Separator::default();
    for item in snapshot.instances.read(&snapshot.resource) {
        let (index, instance) = item?;
        let Some(start) = compared.start_of(index, &instance) else {
            continue;
        };
        let Instance {
            target, measures, ..
        } = &instance;
        let measures = measures.as_ref().unwrap_or(&none);
        let item = InstanceWithoutSpan {
            target: target.clone().into(),
            proposal: proposal::start(target, measures, start),
        };
        separator.write(out)?;
        serde_json::to_writer(&mut *out, &item)?;
    }
    Ok(())
}

fn write_differs(compared: &Compared, out: &mut impl Write) -> io::Result<()> {
    if compared.differs.is_empty() {
        return Ok(());
    }
    let snapshot = &compared.snapshot;
    let mut separator = Separator::default();
    for item in snapshot.instances.read(&snapshot.resource) {
        let (index, instance) = item?;
        if let Some(span) = compared.differs.get(&index) {
            separator.write(out)?;
            serde_json::to_writer(&mut *out, &differs(compared, &instance, span))?;
        }
    }
    Ok(())
}

fn differs(compared: &Compared, instance: &Instance, span: &SeenSpan) -> Differs {
    let (target, kept) = (&instance.target, &span.target.plan_id);
    let measures = instance.measures.as_ref();
    // Whatever their order and however their numbers are written.
    let digest = super::digest::of_measures;
    let other = measures.filter(|measures| digest(measures) != digest(&span.measures));
    let is_other_plan = target.plan_id != *kept;
    Differs {
        span: span.id.to_string(),
        expected: Said {
            plan_id: is_other_plan.then(|| target.plan_id.to_string()),
            measured_usage: other.map(|measures| sampler_api::measures(measures.as_slice())),
        },
        kept: Said {
            plan_id: is_other_plan.then(|| kept.to_string()),
            measured_usage: other.map(|_| sampler_api::measures(span.measures.as_slice())),
        },
        proposal: proposal::update(
            target,
            measures.unwrap_or(&span.measures),
            kept.as_str(),
            compared.snapshot.at,
        ),
    }
}

/// Stands between the items of a list.
#[derive(Default)]
struct Separator {
    is_behind: bool,
}

impl Separator {
    fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        if std::mem::replace(&mut self.is_behind, true) {
            out.write_all(b",")?;
        }
        Ok(())
    }
}
