//! The header `Link` (RFC 8288).

use url::Url;

/// The base of relative addresses. Only the query of an address counts.
const BASE: &str = "http://localhost/";

/// The cursor in the address of the next page (`rel="next"`).
pub fn next_cursor_in(header: &str) -> Option<String> {
    let mut rest = header;
    loop {
        let (_, after) = rest.split_once('<')?;
        let (address, after) = after.split_once('>')?;
        let end = after.find('<').unwrap_or(after.len());
        let (parameters, next) = after.split_at(end);
        if is_next(parameters) {
            let address = Url::parse(BASE).and_then(|base| base.join(address)).ok()?;
            let mut pairs = address.query_pairs();
            return pairs
                .find(|(name, _)| name == "cursor")
                .map(|(_, cursor)| cursor.into_owned());
        }
        rest = next;
    }
}

fn is_next(parameters: &str) -> bool {
    parameters.split([';', ',']).any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else {
            return false;
        };
        let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel")
            && relations.any(|it| it.eq_ignore_ascii_case("next"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_cursor_of_the_next_page() {
        for (header, cursor) in [
            (
                "</v1/spans?cursor=a%2Bb&limit=2>; rel=\"next\"",
                Some("a+b"),
            ),
            (
                "<https://inner:1/v1/spans?a=%3Fcursor%3Db&cursor=x>; rel=next",
                Some("x"),
            ),
            (
                "</p>; rel=\"help\", </v1/spans?cursor=y>; title=\"a\"; REL=\"last next\"",
                Some("y"),
            ),
            ("<?cursor=z>; rel=\"next\"", Some("z")),
            ("</v1/spans?cursor=y>; rel=\"prev\"", None),
            ("</v1/spans>; rel=\"next\"", None),
            ("", None),
            ("<broken", None),
        ] {
            assert_eq!(next_cursor_in(header).as_deref(), cursor, "{header}");
        }
    }
}
