//! Search for spans.

use axum::response::Response;
use sampler_api::Span;

use crate::api::{Refusal, segment};
use crate::csv;
use crate::page::render;
use crate::parameters::IDS;
use crate::show::{self, Html};
use crate::view::{Field, ListPage, Table};
use crate::visit::{Listed, Visit};

const SPANS: &str = "/v1/spans";

/// The spans that were received last, which are shown where nothing is asked for.
const LATEST: [(&str, &str); 2] = [("order", "received"), ("limit", "20")];

const STATES: [&str; 4] = ["open", "stopped", "complete", "suspended"];

const COLUMNS: &str = "Instance|Resource / plan|Start|End|State|Billed|Not billed yet";

const HEAD: &str = "span,organization_id,space_id,consumer_id,resource_id,plan_id,\
                    resource_instance_id,start,end,state,sampled_to,billed_ms,skipped_ms,\
                    unsampled_ms";

/// The page of a span, as a reference from the page whose reference to the console is `root`.
pub(crate) fn page_of(root: &str, span: &str) -> String {
    format!("{root}/spans/{}", segment(span))
}

/// `GET /console/spans`.
pub(crate) async fn list(visit: Visit) -> Result<Response, Refusal> {
    if visit.asks_for_file() {
        let spans = csv::all::<Span>(&visit, SPANS).await?;
        return Ok(csv::file(
            "spans",
            &csv::cells(HEAD),
            spans.iter().map(line),
        ));
    }
    let is_latest = visit.asks_for_time_alone();
    let listed = if is_latest {
        Listed {
            // The search is there in any case.
            items: visit.first(SPANS, &LATEST).await.ok(),
            ..Listed::default()
        }
    } else {
        visit.listed::<Span>(SPANS).await?
    };
    let mut fields: Vec<Field> = IDS.iter().map(|name| Field::new(&visit, name)).collect();
    fields.push(Field::choice(&visit, "state", "any", &STATES));
    fields.extend(["from", "to"].map(|name| Field::new(&visit, name)));
    let root = visit.frame().root;
    let page = ListPage::new(&visit, "Spans", fields, listed, |spans| {
        table(&root, &spans)
    });
    let page = ListPage {
        notes: vec![
            if is_latest {
                "These spans were received last. Search for an organization, a resource or an \
             instance; ids match exactly."
            } else {
                "Spans that run at some time between From and To."
            }
            .to_owned(),
        ],
        file: (!is_latest).then(|| visit.file()),
        ..page
    };
    Ok(render(page.status(), &page))
}

fn table(root: &str, spans: &[Span]) -> Table {
    let mut table = Table::new("Spans", "span-row", COLUMNS);
    for span in spans {
        let target = &span.target;
        let customer = [
            &*target.organization_id,
            &*target.space_id,
            &*target.consumer_id,
        ];
        table.row([
            instance(root, span).and(show::below(&show::trail(&customer))),
            show::trail(&[&target.resource_id, &target.plan_id]),
            show::at(span.start),
            show::at_or(span.end, "open"),
            show::state(&span.state),
            billed(span),
            show::length(span.proof.unsampled),
        ]);
    }
    table
}

/// The instance of a span, as a link to its page.
pub(crate) fn instance(root: &str, span: &Span) -> Html {
    let name = show::id(&span.target.resource_instance_id);
    show::link(&page_of(root, &span.id), &name)
}

fn billed(span: &Span) -> Html {
    let skipped = span.proof.skipped;
    let told = format!("skipped {}", show::in_words(skipped));
    show::length(span.proof.billed).and((skipped != 0).then(|| show::faint(&told)))
}

fn line(span: &Span) -> Vec<String> {
    let (target, proof) = (&span.target, &span.proof);
    let end = span.end.map(|end| end.to_string());
    vec![
        span.id.clone(),
        target.organization_id.clone(),
        target.space_id.clone(),
        target.consumer_id.clone(),
        target.resource_id.clone(),
        target.plan_id.clone(),
        target.resource_instance_id.clone(),
        span.start.to_string(),
        end.unwrap_or_default(),
        span.state.clone(),
        span.sampled_to.to_string(),
        proof.billed.to_string(),
        proof.skipped.to_string(),
        proof.unsampled.to_string(),
    ]
}
