//! Finds the known name that somebody may have meant by an unknown one.

/// The prefix of the variables that only Sampler has.
const PREFIX: &str = "SAMPLER_";

/// Two names count as similar if at most one character in this many differs.
const PER_DIFFERENCE: usize = 4;

/// The question whether one of `known` was meant by `name`, for the end of a mistake. Each known name
/// is a pair: the name that is compared, and the name that is shown.
pub(super) fn question<'a>(name: &str, known: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let distances = known.map(|(other, shown)| {
        let distance = strsim::osa_distance(without_prefix(name), without_prefix(other));
        (distance, shown)
    });
    match distances.min_by_key(|(distance, _)| *distance) {
        Some((distance, meant)) if distance * PER_DIFFERENCE <= name.len() => {
            format!("; did you mean {meant}?")
        }
        _ => String::new(),
    }
}

fn without_prefix(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
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
            let known = KNOWN.into_iter().map(|known| (known, known));
            let asked = meant.map(|meant| format!("; did you mean {meant}?"));
            assert_eq!(question(name, known), asked.unwrap_or_default(), "{name}");
        }
    }
}
