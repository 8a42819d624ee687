//! The audiences that a token may be for.

use std::fmt;

/// The accepted audiences (`aud`). UAA writes one for each scope, without the scope's last part: a
/// token with `abacus.sampler.postgres.write` is for `abacus.sampler.postgres`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audiences(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exactly(String),
    /// Every longer audience that begins with this.
    Below(String),
}

impl fmt::Display for Audiences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pattern) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match pattern {
                Pattern::Exactly(audience) => write!(f, "{comma}{audience}")?,
                Pattern::Below(start) => write!(f, "{comma}{start}*")?,
            }
        }
        Ok(())
    }
}

impl Audiences {
    /// Reads a list that is separated by commas or spaces. A final `*` matches any longer audience.
    ///
    /// # Errors
    /// If the list is empty, or one of its audiences would accept every token.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let patterns: Vec<Pattern> = parts.map(Pattern::new).collect();
        if patterns.is_empty() {
            return Err("an audience, or several with commas in between");
        }
        if patterns.iter().any(Pattern::fits_all) {
            return Err("audiences, each with something before the *");
        }
        Ok(Self(patterns))
    }

    pub(crate) fn accept(&self, audience: &str) -> bool {
        self.0.iter().any(|pattern| pattern.fits(audience))
    }
}

impl Pattern {
    fn fits_all(&self) -> bool {
        matches!(self, Self::Below(start) if start.is_empty())
    }

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
