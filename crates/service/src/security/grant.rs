//! The rights that a token gives.

use std::collections::BTreeSet;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use sampler_domain::ClientId;

use super::{Authenticator, forbidden};
use crate::http::request::note_client;
use crate::oauth::Claims;
use crate::problem::Problem;

/// The prefix of all scopes of Sampler.
const PREFIX: &str = "abacus.sampler.";

/// The right that a scope gives, by its last word.
const WRITE: &str = "write";
const READ: &str = "read";
/// Operators' actions. It allows reading everything, but not writing events.
const ADMIN: &str = "admin";

/// The rights of the token of a request, and the client that sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    client: Option<ClientId>,
    user: Option<ClientId>,
    write: Reach,
    read: Reach,
    is_admin: bool,
}

/// For which resources something is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Everything,
    /// For these alone; there may be none.
    Resources(BTreeSet<String>),
}

/// A handler that takes a [`Grant`] needs a token. Only the headers are read before the token is verified. A
/// request that comes from within the program, for somebody who has signed in, brings the grant with it: no
/// client can send one.
impl<S> FromRequestParts<S> for Grant
where
    S: Send + Sync,
    Authenticator: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let grant = if let Some(grant) = parts.extensions.remove::<Self>() {
            grant
        } else {
            let authenticator = Authenticator::from_ref(state);
            authenticator.grant(&parts.headers).await?
        };
        note_client(grant.client());
        Ok(grant)
    }
}

impl Grant {
    /// Everything, for anybody: where no tokens are needed.
    pub fn without_token() -> Self {
        Self {
            client: None,
            user: None,
            write: Reach::Everything,
            read: Reach::Everything,
            is_admin: true,
        }
    }

    /// The rights of the scopes of a token; `None` if they give none.
    pub fn of_claims(claims: &Claims) -> Option<Self> {
        let mut grant = Self {
            client: claims.client.clone(),
            user: claims.user.clone(),
            write: Reach::NOTHING,
            read: Reach::NOTHING,
            is_admin: false,
        };
        let scopes = claims.scopes.iter();
        for scope in scopes.filter_map(|scope| scope.strip_prefix(PREFIX)) {
            grant.add(scope);
        }
        // Whatever is allowed, something may be read.
        (!grant.read.is_empty()).then_some(grant)
    }

    /// Adds the rights of what follows the prefix of a scope: a word, or a resource and a word. What may be written may
    /// be read.
    fn add(&mut self, scope: &str) {
        match (scope, scope.rsplit_once('.')) {
            (READ, _) => self.read = Reach::Everything,
            (WRITE, _) => {
                self.write = Reach::Everything;
                self.read = Reach::Everything;
            }
            (ADMIN, _) => {
                self.is_admin = true;
                self.read = Reach::Everything;
            }
            (_, Some((resource, READ))) => self.read.add(resource),
            (_, Some((resource, WRITE))) => {
                self.write.add(resource);
                self.read.add(resource);
            }
            _ => {}
        }
    }

    /// The client that sends the request; none where no tokens are needed, or the token names
    /// nobody.
    pub fn client(&self) -> Option<&ClientId> {
        self.client.as_ref()
    }

    /// The user in whose name the client sends the request, or else the client.
    pub fn who(&self) -> Option<&ClientId> {
        self.user.as_ref().or(self.client.as_ref())
    }

    pub fn readable(&self) -> &Reach {
        &self.read
    }

    /// Requires that the token allows writing for at least one resource. Which one is needed is
    /// known only once the body is read.
    pub fn require_write(&self) -> Result<(), Problem> {
        let detail = "The token has neither the scope abacus.sampler.write nor the scope to write for a resource.";
        require(!self.write.is_empty(), detail)
    }

    /// Requires the right to write what names `resource`, or no resource at all.
    pub fn require(&self, resource: Option<&str>) -> Result<(), Problem> {
        let detail =
            "The token is for other resources than the one that the body names. Nothing was kept.";
        require(self.allows(resource), detail)
    }

    /// Requires a scope to read everything, whatever resource it is about.
    pub fn require_read_everything(&self) -> Result<(), Problem> {
        let detail =
            "This needs the scope abacus.sampler.read. A scope for one resource is not enough.";
        require(self.read == Reach::Everything, detail)
    }

    /// Requires the scope for what operators do, and for what they alone may read.
    pub fn require_admin(&self) -> Result<(), Problem> {
        require(self.is_admin, "This needs the scope abacus.sampler.admin.")
    }

    /// Whether it is enough to write something that names `resource`, or no resource at all.
    pub fn allows(&self, resource: Option<&str>) -> bool {
        self.write.includes(resource)
    }
}

fn require(is_allowed: bool, detail: &str) -> Result<(), Problem> {
    is_allowed.then_some(()).ok_or_else(|| forbidden(detail))
}

impl Reach {
    const NOTHING: Self = Self::Resources(BTreeSet::new());

    /// Whether it includes what names `resource`, or no resource at all.
    pub fn includes(&self, resource: Option<&str>) -> bool {
        match self {
            Self::Everything => true,
            Self::Resources(resources) => resource.is_some_and(|it| resources.contains(it)),
        }
    }

    fn add(&mut self, resource: &str) {
        if let Self::Resources(resources) = self
            && !resource.is_empty()
        {
            resources.insert(resource.to_owned());
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Resources(resources) if resources.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use sampler_domain::Timestamp;

    use super::*;

    fn of(scopes: &[&str]) -> Option<Grant> {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        Grant::of_claims(&Claims {
            client: None,
            user: None,
            scopes,
            until: Timestamp::MIN,
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

    /// Whether resource `a`, resource `b`, and what names no resource may be written and be read.
    fn reach(grant: &Grant) -> ([bool; 3], [bool; 3]) {
        let of = |reach: &Reach| [Some("a"), Some("b"), None].map(|it| reach.includes(it));
        (of(&grant.write), of(&grant.read))
    }

    #[test]
    fn a_scope_to_write_lets_read_what_it_lets_write_and_no_more() {
        let (all, none, a) = ([true; 3], [false; 3], [true, false, false]);
        for (scopes, write, read) in [
            (&["abacus.sampler.write"][..], all, all),
            (&["abacus.sampler.read"], none, all),
            (&["abacus.sampler.admin"], none, all),
            (&["abacus.sampler.a.write"], a, a),
            (&["abacus.sampler.a.read"], none, a),
            (&["abacus.sampler.a.write", "abacus.sampler.read"], a, all),
            (
                &["abacus.sampler.a.read", "abacus.sampler.b.write"],
                [false, true, false],
                [true, true, false],
            ),
        ] {
            assert_eq!(reach(&of(scopes).unwrap()), (write, read), "{scopes:?}");
        }
        // A resource may be called as a scope ends.
        let odd = of(&["abacus.sampler.read.write"]).unwrap();
        assert_eq!(reach(&odd), (none, none));
        assert!(odd.allows(Some("read")));
        let reader = of(&["abacus.sampler.a.read"]).unwrap();
        assert!(reader.require_write().is_err());
        assert!(odd.require_write().is_ok());
    }

    #[test]
    fn acts_need_the_scope_for_them_whatever_else_is_allowed() {
        let admin = |scopes: &[&str]| of(scopes).unwrap().require_admin().is_ok();
        assert!(admin(&["abacus.sampler.admin"]));
        assert!(admin(&["abacus.sampler.a.read", "abacus.sampler.admin"]));
        assert!(!admin(&["abacus.sampler.write", "abacus.sampler.read"]));
        // A scope for a resource that is called admin is for that alone.
        assert!(!admin(&["abacus.sampler.admin.write"]));
        assert!(Grant::without_token().require_admin().is_ok());
    }

    #[test]
    fn what_is_nearly_a_scope_is_none() {
        for scope in [
            "abacus.sampler.reader",
            "abacus.sampler..read",
            "abacus.sampler.read ",
            "abacus.sampler.aread",
            "abacus.samplerread",
            "abacus.sampler.postgres.admin",
            "abacus.usage.read",
            "Abacus.sampler.write",
            "xabacus.sampler.write",
            "abacus.usage.postgres.write",
            "abacus.sampler.*.write ",
            "openid abacus.sampler.write",
            "",
        ] {
            assert_eq!(of(&[scope]), None, "{scope:?}");
        }
        assert_eq!(of(&[]), None);
        let star = of(&["abacus.sampler.*.write"]).unwrap();
        assert!(!star.allows(Some("postgres")));
    }
}
