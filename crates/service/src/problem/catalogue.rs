//! The catalogue of problems, as a document for those who meet one.

use std::fmt::Write as _;

use super::kinds::ProblemType;

/// All problems in Markdown, one heading for each, named by its slug.
pub fn catalogue() -> String {
    let mut text = "# Errors\n\n\
        Every error is answered with a problem document (RFC 9457, `application/problem+json`). \
        Its `type` says which of those below it is; `detail` says what is the matter this time.\n"
        .to_owned();
    for kind in ProblemType::all() {
        let entry = kind.entry();
        let _ = write!(
            text,
            "\n## {slug}\n\n**{title}** ({status}, `{uri}`)\n\n\
             - When: {when}\n- Resource provider: {provider}\n- Operator: {operator}\n",
            slug = kind.slug(),
            title = kind.title(),
            status = kind.status().as_u16(),
            uri = kind.uri(),
            when = entry.when,
            provider = entry.provider,
            operator = entry.operator,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_one_heading_for_each_kind() {
        let text = catalogue();
        let headings: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        let slugs: Vec<_> = ProblemType::all().map(ProblemType::slug).collect();
        assert_eq!(headings, slugs);
    }

    #[test]
    fn tells_what_everyone_does() {
        let expected = "\n## open-span\n\n\
            **The target has been started already** (409, `urn:sampler:problem:open-span`)\n\n\
            - When: A start for a target whose usage has started and not stopped.\n\
            - Resource provider: Stops the usage first.";
        assert!(catalogue().contains(expected), "{}", catalogue());
    }
}
