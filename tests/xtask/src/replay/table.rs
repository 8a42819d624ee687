//! Spans as rows of a CSV file, read as the verifier reads them.

use anyhow::Result;
use sampler_verify::events::{self, Format, Reading};
use sampler_verify::quantity::{Measure, Quantity};
use serde_json::{Value, json};

use super::{Event, Kind, Target};

pub(super) fn parse(text: &str) -> Result<Vec<Event>> {
    let events = events::read(text.as_bytes(), Format::Csv, Reading::default())?;
    events.into_iter().map(event).collect()
}

fn event(read: events::Event) -> Result<Event> {
    let target = Target(read.target.ids().map(str::to_owned));
    let mut fields = target.body(read.moment);
    let kind = match read.kind {
        events::Kind::Start(measures) => {
            let measures = measures.iter().map(measure);
            fields["measured_usage"] = measures.collect::<Result<_>>()?;
            Kind::Start
        }
        events::Kind::Stop => Kind::Stop,
    };
    Ok(Event {
        kind,
        timestamp: read.moment,
        target,
        fields,
        after_sampled: false,
    })
}

fn measure(measure: &Measure) -> Result<Value> {
    let Quantity::Integer(quantity) = measure.quantity else {
        anyhow::bail!("{} is not a whole number", measure.measure);
    };
    let quantity = i64::try_from(quantity)?;
    Ok(json!({ "measure": measure.measure, "quantity": quantity }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_cluster_trace() {
        let text = "name,cpu,gpu_spec,creation_time,deletion_time,scheduled_time\n\
                    pod-1,12,,5,7,6\n\
                    pod-2,3,V100,9,9,9\n";
        let events = parse(text).unwrap();
        assert_eq!(events.len(), 4);
        let cpu = json!([{ "measure": "cpu", "quantity": 12 }]);
        assert_eq!((events[0].timestamp, events[0].measures()), (5000, &cpu));
        assert_eq!((&events[1].kind, events[1].timestamp), (&Kind::Stop, 7000));
        assert_eq!(events[1].measures(), &Value::Null);
        assert_eq!(events[2].target.instance(), "pod-2");
    }

    #[test]
    fn reads_spans_of_named_targets() {
        let text = "organization_id,space_id,consumer_id,resource_id,plan_id,\
                    resource_instance_id,start,end,memory,note\n\
                    o,s,c,r,p,1,100,200,5,x\n\
                    o,s,c,r,p,2,100,,6,7\n";
        let events = parse(text).unwrap();
        assert_eq!(events.len(), 3);
        let memory = json!([{ "measure": "memory", "quantity": 6 }]);
        assert_eq!((events[2].timestamp, events[2].measures()), (100, &memory));
        assert_eq!(events[1].target.0, ["o", "s", "c", "r", "p", "1"]);
    }

    #[test]
    fn says_what_is_missing_or_wrong() {
        let message = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(message("start,end\n1,2\n").contains("organization_id"));
        assert!(message("name,creation_time,deletion_time\na,2,1\n").contains("line 2"));
        assert!(message("name,creation_time,deletion_time\na,x,1\n").contains("whole number"));
    }
}
