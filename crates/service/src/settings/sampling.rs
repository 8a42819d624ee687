//! How spans are cut into intervals, read from the group [`SAMPLING`](super::SAMPLING).

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Policy};

use super::reader::Reader;

/// Reads the group. Where nothing is set, and the table has no default, `otherwise` applies.
pub fn read_policy(reader: &mut Reader<'_>, otherwise: Granularity) -> Policy {
    let dimension = reader.parse_with("sampling.dimension", |text| {
        text.parse::<Granularity>()
            .map_err(|error| error.to_string())
    });
    let default = dimension.unwrap_or(otherwise);
    let granularities = reader
        .parse_with("sampling.dimension_overrides", |text| {
            overrides(default, text)
        })
        .unwrap_or_else(|| Granularities::all(default));
    let grace = reader.duration("sampling.stop_grace");
    Policy {
        granularities,
        grace: i64::try_from(grace.as_millis()).unwrap_or(i64::MAX),
    }
}

fn overrides(default: Granularity, text: &str) -> Result<Granularities, String> {
    let expected = r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out"#;
    let overrides: Vec<GranularityOverride> =
        serde_json::from_str(text).map_err(|error| format!("{expected}: {error}"))?;
    Granularities::new(default, overrides).map_err(|error| format!("{expected}: {error}"))
}
