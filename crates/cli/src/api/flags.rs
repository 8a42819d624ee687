//! The parameters of the API, as the options of the command line that they are.

/// The parameters whose options have the same name, except those of one word.
const LONG: [&str; 7] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
    "group_by",
];
/// Parameters that are also words of sentences: only `state=` and `[state: ` are parameters.
const SHORT: [&str; 9] = [
    "state", "cause", "from", "to", "limit", "window", "who", "span", "until",
];

/// A sentence about a query, with options in place of parameters: `state=suspended` is `--state suspended`.
pub(super) fn in_flags(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(word_in_flags).collect();
    words.join(" ")
}

fn word_in_flags(word: &str) -> String {
    let start = word.find(|it: char| it.is_ascii_lowercase());
    let (before, rest) = word.split_at(start.unwrap_or(word.len()));
    let end = rest.find(|it: char| !(it.is_ascii_lowercase() || it == '_'));
    let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
    let is_given = after.starts_with('=') || (before == "[" && after.starts_with(':'));
    let is_parameter = LONG.contains(&name) || (is_given && SHORT.contains(&name));
    if !is_parameter {
        return word.to_owned();
    }
    let after = match after.strip_prefix('=') {
        Some(value) => format!(" {value}"),
        None => after.to_owned(),
    };
    format!("{before}--{}{after}", name.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_options() {
        let said = "The query reads too many spans. Add organization_id, resource_id or \
                    resource_instance_id, or state=suspended. [state: It needs from=5.] [to: Late.]";
        let shown = "The query reads too many spans. Add --organization-id, --resource-id or \
                     --resource-instance-id, or --state suspended. [--state: It needs --from 5.] [--to: Late.]";
        assert_eq!(in_flags(said), shown);
        let plain = "From here to the state of a window: nothing.";
        assert_eq!(in_flags(plain), plain);
    }
}
