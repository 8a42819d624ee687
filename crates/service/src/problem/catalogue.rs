//! The catalogue of problems as a document.

use std::fmt::Write as _;

use super::kinds::ProblemType;

/// These problems in Markdown, one heading for each, named by its slug.
pub fn catalogue<'a>(kinds: impl IntoIterator<Item = &'a ProblemType>) -> String {
    let mut text = "# Errors\n\n\
        Every error is answered with a problem document (RFC 9457, `application/problem+json`). \
        Its `type` is one of the addresses below, where the program serves the same text; `detail` \
        describes this occurrence.\n"
        .to_owned();
    for kind in kinds {
        let _ = write!(text, "\n{}", section(kind));
    }
    text
}

pub(super) fn section(kind: &ProblemType) -> String {
    format!(
        "## {slug}\n\n**{title}** ({status}, `{uri}`)\n\n\
         - When: {when}\n- Resource provider: {provider}\n- Operator: {operator}\n",
        slug = kind.slug,
        title = kind.title,
        status = kind.status.as_u16(),
        uri = kind.uri(),
        when = kind.when,
        provider = kind.provider,
        operator = kind.operator,
    )
}
