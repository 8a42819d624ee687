//! The name that was meant by one that is unknown.

/// The prefix of the variables that only Sampler has.
const PREFIX: &str = "SAMPLER_";

/// Two names count as similar if at most one character in this many differs.
const PER_DIFFERENCE: usize = 4;

/// The question whether one of `known` was meant by `name`, for the end of a mistake.
pub(super) fn question<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match closest(name, known) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => String::new(),
    }
}

/// The one of `known` that differs least from `name`.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    let distances = known.map(|known| {
        let other = known.strip_prefix(PREFIX).unwrap_or(known);
        (strsim::osa_distance(bare, other), known)
    });
    let (distance, closest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance * PER_DIFFERENCE <= name.len()).then_some(closest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = [
        "SAMPLER_DIMENSION",
        "SAMPLER_DIMENSION_OVERRIDES",
        "SAMPLER_LEDGER_RETENTION",
        "PORT",
    ];

    #[test]
    fn finds_what_was_meant() {
        for (name, meant) in [
            ("SAMPLER_DIMENSON", Some("SAMPLER_DIMENSION")),
            ("SAMPLER_DIEMNSION", Some("SAMPLER_DIMENSION")),
            (
                "SAMPLER_LEDGER_RETENTION_HOURS",
                Some("SAMPLER_LEDGER_RETENTION"),
            ),
            ("SAMPLER_PORT", Some("PORT")),
            ("SAMPLER_OF_NOBODY", None),
            ("SAMPLER_X", None),
        ] {
            assert_eq!(closest(name, KNOWN.into_iter()), meant, "{name}");
        }
    }
}
