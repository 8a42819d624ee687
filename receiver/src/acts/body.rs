//! The body of an act: an object with a reason, and what else the act needs. Each field that is wrong
//! is named, all of them at once.

use sampler_service::problem::{FieldError, Pointer, Problem};

use crate::json::{Json, Members};
use crate::problems;

/// Characters of a reason.
const REASON_MAX: usize = 1_000;

/// The members that have not been read yet, and what is wrong with those that have.
pub(crate) struct ActBody<'b> {
    members: Members<'b>,
    errors: Vec<FieldError>,
}

impl<'b> ActBody<'b> {
    /// # Errors
    /// 400 where the body is no object.
    pub(crate) fn of(body: Json<'b>) -> Result<Self, Problem> {
        match body {
            Json::Object(members) => Ok(Self {
                members,
                errors: Vec::new(),
            }),
            _ => Err(invalid([FieldError::new(
                Pointer::root(),
                "It must be an object.",
            )])),
        }
    }

    /// A member, if it is there.
    pub(crate) fn take(&mut self, name: &str) -> Option<Json<'b>> {
        let index = self.members.iter().position(|member| member.0 == name)?;
        Some(self.members.swap_remove(index).1)
    }

    /// Says what is wrong with a field, in a full sentence.
    pub(crate) fn complain(&mut self, pointer: Pointer, detail: impl Into<String>) {
        self.errors.push(FieldError::new(pointer, detail));
    }

    /// A text that must be there.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let pointer = || Pointer::root().field(name);
        match self.take(name) {
            Some(Json::Text(text)) => Some(text.into_owned()),
            Some(_) => {
                self.complain(pointer(), "It must be a string.");
                None
            }
            None => {
                self.complain(pointer(), "It is missing.");
                None
            }
        }
    }

    /// The operator's reason.
    pub(super) fn reason(&mut self) -> Option<String> {
        let reason = self.text("reason")?;
        let is_said = !reason.trim().is_empty() && reason.chars().count() <= REASON_MAX;
        if !is_said {
            let detail = format!("It must have 1 to {REASON_MAX} characters, and not be blank.");
            self.complain(Pointer::root().field("reason"), detail);
        }
        is_said.then_some(reason)
    }

    /// All is well if every member was read and none was wrong.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        for (name, _) in std::mem::take(&mut self.members) {
            let pointer = Pointer::root().field(&name);
            self.complain(pointer, "There is no field of this name.");
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(invalid(self.errors))
    }
}

fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Problem {
    let detail = "The body is JSON, but not what is expected here. Nothing was done.";
    Problem::new(&problems::INVALID_BODY, detail).errors(errors)
}
