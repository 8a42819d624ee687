//! What a token allows.

use std::collections::BTreeSet;

use sampler_domain::ClientId;
use sampler_oauth::Claims;

use super::authenticator::forbidden;
use crate::problem::Problem;

/// The scope that allows everything.
const EVERYTHING: &str = "abacus.sampler.write";

/// What surrounds the resource in a scope that is for it alone.
const RESOURCE: (&str, &str) = ("abacus.sampler.", ".write");

/// What a request may write, and who sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    client: Option<ClientId>,
    scope: Scope,
}

/// What the scopes of a token allow.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// Events and mappings of any resource.
    Everything,
    /// Those of these resources alone.
    Resources(BTreeSet<String>),
}

impl Grant {
    /// Everything, for anybody: where no tokens are needed.
    pub(super) fn without_token() -> Self {
        Self {
            client: None,
            scope: Scope::Everything,
        }
    }

    /// What the scopes of a token allow; none where that is nothing.
    pub fn of_claims(claims: &Claims) -> Option<Self> {
        let client = claims.client.clone();
        if claims.scopes.contains(EVERYTHING) {
            let scope = Scope::Everything;
            return Some(Self { client, scope });
        }
        let (before, after) = RESOURCE;
        let resource = |scope: &String| {
            let resource = scope.strip_prefix(before)?.strip_suffix(after)?;
            (!resource.is_empty()).then(|| resource.to_owned())
        };
        let resources: BTreeSet<_> = claims.scopes.iter().filter_map(resource).collect();
        let scope = Scope::Resources(resources);
        (!scope.is_empty()).then_some(Self { client, scope })
    }

    /// The client that sends the request; none where no tokens are needed, or the token names
    /// nobody.
    pub fn client(&self) -> Option<&ClientId> {
        self.client.as_ref()
    }

    /// Allows something that names `resource`, or no resource at all.
    ///
    /// # Errors
    /// 403 where the grant is not enough for it.
    pub fn require(&self, resource: Option<&str>) -> Result<(), Problem> {
        if self.allows(resource) {
            return Ok(());
        }
        Err(forbidden(
            "The token is for other resources than the one that the body names. Nothing was kept.",
        ))
    }

    /// Requires the scope for everything, whatever resource it is about.
    ///
    /// # Errors
    /// 403 where the grant is for single resources.
    pub fn require_everything(&self) -> Result<(), Problem> {
        match &self.scope {
            Scope::Everything => Ok(()),
            Scope::Resources(_) => Err(forbidden(
                "This needs the scope abacus.sampler.write. A scope for one resource is not enough.",
            )),
        }
    }

    /// Whether it is enough for something that names `resource`, or no resource at all.
    pub fn allows(&self, resource: Option<&str>) -> bool {
        match &self.scope {
            Scope::Everything => true,
            Scope::Resources(resources) => resource.is_some_and(|it| resources.contains(it)),
        }
    }
}

impl Scope {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Resources(resources) if resources.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scopes: &[&str]) -> Option<Grant> {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        Grant::of_claims(&Claims {
            client: None,
            scopes,
        })
    }

    #[test]
    fn a_scope_is_for_everything_or_for_one_resource() {
        let everything = of(&["abacus.sampler.write", "abacus.sampler.a.write"]).unwrap();
        assert!(everything.allows(Some("b")) && everything.allows(None));
        assert_eq!(everything.client(), None);
        let some = of(&["abacus.sampler.a.write", "abacus.sampler.b.c.write"]).unwrap();
        assert!(some.allows(Some("a")) && some.allows(Some("b.c")));
        for other in [Some("b"), Some("A"), Some("a "), Some(""), Some("c"), None] {
            assert!(!some.allows(other), "{other:?}");
        }
    }

    #[test]
    fn what_is_nearly_a_scope_is_none() {
        for scope in [
            "abacus.sampler.read",
            "abacus.sampler.writer",
            "abacus.sampler..write",
            "abacus.sampler.write ",
            "Abacus.sampler.write",
            "xabacus.sampler.write",
            "abacus.usage.write",
            "abacus.usage.postgres.write",
            "abacus.samplerwrite",
            "abacus.sampler.*.write ",
            "openid abacus.sampler.write",
            "",
        ] {
            assert_eq!(of(&[scope]), None, "{scope:?}");
        }
        assert_eq!(of(&[]), None);
        assert!(
            !of(&["abacus.sampler.*.write"])
                .unwrap()
                .allows(Some("postgres"))
        );
    }
}
