//! The spans of a target that decide about an event, for dry runs.

use bson::{Bson, Document, doc};
use sampler_domain::{EventId, Span, Target};
use sampler_store::{Lookup, StoreError};

use crate::call::{CallError, Link};
use crate::document::{OPEN, as_uuid, moment};
use crate::resolve::readable;
use crate::{MongoStore, index};

impl MongoStore {
    /// The spans that are looked up, as a majority has them.
    pub(crate) async fn looked_up(
        &self,
        target: &Target,
        by: &Lookup,
    ) -> Result<Vec<Span>, StoreError> {
        let searches = searches(&self.link, target, by);
        let link = self.link.clone();
        let read = async move {
            let mut found = Vec::new();
            for (filter, index) in searches {
                let options = link.find_options(1, doc! {}, index);
                found.extend(link.find(filter, options).await?);
            }
            Ok::<_, CallError>(found)
        };
        let found = self.link.run(read).await?;
        found.iter().map(readable).collect()
    }
}

/// Searches for one document each, and their indexes. An index has the ends of a target in their order.
fn searches(link: &Link, target: &Target, by: &Lookup) -> Vec<(Document, &'static str)> {
    let with = |condition: Document| {
        let mut filter = link.of_target(target);
        filter.extend(condition);
        filter
    };
    match by {
        Lookup::StartedBy(id) => vec![(
            with(doc! { "start_dedup_id": one_of_forms(link, id) }),
            index::START,
        )],
        Lookup::StoppedBy(id) => {
            let condition = doc! { "end_dedup_id": one_of_forms(link, id) };
            vec![(with(condition), index::STOP)]
        }
        Lookup::NotEndedBy(by) => {
            let open = doc! { "end": Bson::Null, "target.correlation_id": OPEN };
            let next = doc! { "end": { "$gt": moment(*by) } };
            vec![(with(open), index::SPAN), (with(next), index::SPAN)]
        }
    }
}

/// An id as a text, or as the UUID binary that some drivers store for it.
fn one_of_forms(link: &Link, id: &EventId) -> Document {
    let text = Some(Bson::from(id.as_str()));
    let binary = as_uuid(id.as_str()).filter(|_| link.has_uuids());
    let forms: Vec<Bson> = [text, binary].into_iter().flatten().collect();
    doc! { "$in": forms }
}
