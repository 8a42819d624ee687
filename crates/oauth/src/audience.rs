//! For whom a token must be meant.

/// The audiences (`aud`) that are taken. UAA writes one for each scope: all of it but its last part,
/// so that a token with `abacus.sampler.postgres.write` is for `abacus.sampler.postgres`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audiences(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// This one.
    Exactly(String),
    /// Those that begin with this, and go on.
    Below(String),
}

impl Audiences {
    /// Reads a list with commas or spaces in between. An audience that ends in `*` stands for all
    /// that begin so.
    ///
    /// # Errors
    /// Where there is none, or one that would take every token.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let patterns: Vec<Pattern> = parts.map(Pattern::new).collect();
        let is_open =
            |pattern: &Pattern| matches!(pattern, Pattern::Below(start) if start.is_empty());
        if patterns.is_empty() {
            return Err("an audience, or several with commas in between");
        }
        if patterns.iter().any(is_open) {
            return Err("audiences, each with something before the *");
        }
        Ok(Self(patterns))
    }

    /// Whether a token for `audience` is taken.
    pub(crate) fn take(&self, audience: &str) -> bool {
        self.0.iter().any(|pattern| pattern.fits(audience))
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(start) => Self::Below(start.to_owned()),
            None => Self::Exactly(text.to_owned()),
        }
    }

    fn fits(&self, audience: &str) -> bool {
        match self {
            Self::Exactly(name) => audience == name,
            Self::Below(start) => audience.len() > start.len() && audience.starts_with(start),
        }
    }
}
