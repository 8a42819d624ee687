//! The provisioning service, which takes mappings of plans.

use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use sampler_domain::{Id, Timestamp};
use sampler_service::oauth::TlsError;
use url::Url;

use crate::answer::parse_retry_after;
use crate::http::{ClientOptions, UpstreamClient, header, join};

/// The plans of Abacus for a plan of a resource. No name may be `.` or `..`, because names are
/// segments of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub resource_id: Id,
    pub plan_id: Id,
    /// The plan by which its usage is metered.
    pub metering_plan: Id,
    pub rating_plan: Id,
    pub pricing_plan: Id,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// At least one of the three parts is new.
    Made,
    /// All three parts existed already, perhaps with other plans: they are never changed.
    Existed,
    /// The service asks to wait.
    Busy { after: Option<Duration> },
    /// The service failed or gave no answer. Parts may exist by now; repeating the call is safe.
    Failed { error: String },
}

/// The meaning of the answer to one part: new (true) or existing (false).
///
/// # Errors
/// The outcome of the whole mapping, if the part is neither.
pub fn part_outcome(
    status: u16,
    retry_after: Option<&str>,
    now: Timestamp,
) -> Result<bool, Mapped> {
    match status {
        200..=299 => Ok(true),
        409 => Ok(false),
        429 => Err(Mapped::Busy {
            after: retry_after.and_then(|text| parse_retry_after(text, now)),
        }),
        _ => Err(Mapped::Failed {
            error: format!("provisioning answered {status}"),
        }),
    }
}

/// The provisioning service over HTTP.
#[derive(Clone, Debug)]
pub struct Provisioning {
    client: UpstreamClient,
    url: Url,
}

impl Provisioning {
    /// Prepares a client; connections are made when they are needed, and kept.
    pub fn new(options: &ClientOptions) -> Result<Self, TlsError> {
        Ok(Self {
            client: UpstreamClient::new(options)?,
            url: options.url.clone(),
        })
    }

    /// Makes the three parts of a mapping, metering, rating and pricing, in this order.
    pub async fn map(&self, mapping: &Mapping, now: Timestamp) -> Mapped {
        let parts = [
            ("metering", &mapping.metering_plan),
            ("rating", &mapping.rating_plan),
            ("pricing", &mapping.pricing_plan),
        ];
        let mut made = false;
        for (part, plan) in parts {
            match self.map_part(mapping, part, plan, now).await {
                Ok(new) => made |= new,
                Err(end) => return end,
            }
        }
        if made { Mapped::Made } else { Mapped::Existed }
    }

    async fn map_part(
        &self,
        mapping: &Mapping,
        part: &str,
        plan: &Id,
        now: Timestamp,
    ) -> Result<bool, Mapped> {
        let (resource, of_resource) = (mapping.resource_id.as_str(), mapping.plan_id.as_str());
        let segments = [
            "v1",
            "provisioning",
            "mappings",
            part,
            "resources",
            resource,
            "plans",
            of_resource,
            plan.as_str(),
        ];
        let request = self.client.post(join(&self.url, &segments));
        let answer = self.client.send(request).await;
        let response = answer.map_err(|error| Mapped::Failed { error: error.text })?;
        let retry_after = header(&response, &RETRY_AFTER);
        part_outcome(response.status().as_u16(), retry_after, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_a_part() {
        let now = Timestamp::MIN;
        assert_eq!(part_outcome(200, None, now), Ok(true));
        assert_eq!(part_outcome(409, None, now), Ok(false));
        let after = Some(Duration::from_secs(3));
        assert_eq!(
            part_outcome(429, Some("3"), now),
            Err(Mapped::Busy { after })
        );
        for status in [400, 401, 404, 500, 503] {
            assert!(
                matches!(part_outcome(status, None, now), Err(Mapped::Failed { .. })),
                "{status}"
            );
        }
    }
}
