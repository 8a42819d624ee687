//! `GET /problems/{name}`: the meaning of a type of problem, and its remedies. Each error answer
//! has a `Link` to it (`rel="help"`).

use std::sync::Arc;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};

use super::catalogue::section;
use super::{Problem, ProblemType, kinds};

const MARKDOWN: HeaderValue = HeaderValue::from_static("text/markdown; charset=utf-8");

/// Makes a page of a type, for programs that have pages.
pub type Page = Arc<dyn Fn(&'static ProblemType) -> Response + Send + Sync>;

/// The form that a client prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelpForm {
    Json,
    Html,
    Markdown,
}

/// The value of `Link` for an answer with a problem of this type.
pub(super) fn link(kind: &ProblemType) -> HeaderValue {
    let link = format!("<{}>; rel=\"help\"", kind.uri());
    HeaderValue::try_from(link).expect("a slug is of plain letters")
}

/// Serves these types: as a page, where the program has pages and the client wants one, as JSON, or
/// as Markdown. They are public.
pub fn routes(all: Vec<&'static ProblemType>, page: Option<Page>) -> Router {
    let serve = async move |Path(name): Path<String>, headers: HeaderMap| {
        let kind = all.iter().find(|kind| kind.slug == name);
        let Some(kind) = kind else {
            let detail = "There is no problem type with this name.";
            return Problem::new(&kinds::NOT_FOUND, detail).into_response();
        };
        let mut response = match (preferred(&headers, page.is_some()), &page) {
            (HelpForm::Html, Some(page)) => page(kind),
            (HelpForm::Markdown, _) => ([(CONTENT_TYPE, MARKDOWN)], section(kind)).into_response(),
            _ => Json(document(kind)).into_response(),
        };
        let accept = HeaderValue::from_static("accept");
        response.headers_mut().insert(VARY, accept);
        response
    };
    Router::new().route("/problems/{name}", get(serve))
}

fn document(kind: &ProblemType) -> sampler_api::ProblemType {
    sampler_api::ProblemType {
        r#type: kind.uri(),
        urn: kind.urn(),
        title: kind.title.to_owned(),
        status: kind.status.as_u16(),
        when: kind.when.to_owned(),
        provider: kind.provider.to_owned(),
        operator: kind.operator.to_owned(),
    }
}

/// Whether a client prefers a page to JSON, as browsers do.
pub fn prefers_page(headers: &HeaderMap) -> bool {
    preferred(headers, true) == HelpForm::Html
}

/// The form that `Accept` rates highest; JSON where it does not matter.
fn preferred(headers: &HeaderMap, has_pages: bool) -> HelpForm {
    let forms = [
        (HelpForm::Json, "application", "json"),
        (HelpForm::Html, "text", "html"),
        (HelpForm::Markdown, "text", "markdown"),
    ];
    let accept: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut best = (HelpForm::Json, 0);
    for (form, r#type, subtype) in forms {
        let quality = quality(&accept, r#type, subtype);
        if quality > best.1 && (has_pages || form != HelpForm::Html) {
            best = (form, quality);
        }
    }
    best.0
}

/// How much a media type is wanted, in thousandths: as its most specific range says.
fn quality(accept: &[&str], r#type: &str, subtype: &str) -> u32 {
    let mut found = (0, 0);
    for range in accept {
        let mut parts = range.split(';').map(str::trim);
        let Some((of_type, of_subtype)) = parts.next().and_then(|name| name.split_once('/')) else {
            continue;
        };
        let is_type = of_type.eq_ignore_ascii_case(r#type);
        let is_subtype = of_subtype.eq_ignore_ascii_case(subtype);
        let specificity = match (of_type, of_subtype) {
            ("*", "*") => 1,
            (_, "*") if is_type => 2,
            _ if is_type && is_subtype => 3,
            _ => continue,
        };
        let weight = parts
            .find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")))
            .map_or(Some(1.0), |text| text.parse::<f64>().ok());
        if specificity > found.0 {
            found = (specificity, thousandths(weight.unwrap_or(0.0)));
        }
    }
    found.1
}

fn thousandths(weight: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "held between 0 and 1"
    )]
    let thousandths = (weight.clamp(0.0, 1.0) * 1_000.0) as u32;
    thousandths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> HelpForm {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().unwrap());
        }
        preferred(&headers, true)
    }

    #[test]
    fn the_form_is_what_the_client_would_rather_have() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, expected) in [
            ("", HelpForm::Json),
            ("*/*", HelpForm::Json),
            (browser, HelpForm::Html),
            ("text/markdown", HelpForm::Markdown),
            ("text/*", HelpForm::Html),
            ("text/html;q=0.2, text/markdown; q=0.9", HelpForm::Markdown),
            ("application/json, text/html", HelpForm::Json),
            ("text/html;q=0, */*;q=0.1", HelpForm::Json),
            ("TEXT/HTML", HelpForm::Html),
            ("image/png", HelpForm::Json),
            ("text/html;q=x, /, nonsense", HelpForm::Json),
        ] {
            assert_eq!(form(accept), expected, "{accept}");
        }
    }
}
