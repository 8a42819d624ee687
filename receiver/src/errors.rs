//! The errors in the members of a body, which are told together.

use sampler_api::given::Given;
use sampler_domain::Id;
use sampler_service::problem::{FieldError, Pointer};

/// Where the members are whose errors are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    Body,
    /// In this member of the body.
    Member(&'static str),
    /// In headers whose names begin so.
    Headers(&'static str),
}

/// The errors so far, and where the next ones are. A pointer is only made for an error: most members are right.
#[derive(Default)]
pub(crate) struct Errors {
    pub(crate) place: Place,
    pub(crate) list: Vec<FieldError>,
}

impl Errors {
    /// A member that must be there.
    pub(crate) fn required<T>(&mut self, name: &str, given: Given<T>) -> Option<T> {
        let value = given.required();
        value.map_err(|detail| self.wrong(name, detail)).ok()
    }

    /// A member that must be there, at a place in the body or the member.
    pub(crate) fn required_at<T>(
        &mut self,
        given: Given<T>,
        at: impl FnOnce(Pointer) -> Pointer,
    ) -> Option<T> {
        let value = given.required();
        value.map_err(|detail| self.wrong_at(at, detail)).ok()
    }

    /// A member that may be there.
    pub(crate) fn optional<T>(&mut self, name: &str, given: Given<T>) -> Option<T> {
        (!given.is_missing()).then(|| self.required(name, given))?
    }

    /// A member that must not be there.
    pub(crate) fn unknown<T>(&mut self, name: &str, given: &Given<T>) {
        if !given.is_missing() {
            self.wrong(name, "There is no field of this name.");
        }
    }

    /// An id that was read as a text.
    pub(crate) fn id(&mut self, name: &str, text: String) -> Option<Id> {
        let id = Id::new(text);
        id.map_err(|error| self.wrong(name, format!("It {error}.")))
            .ok()
    }

    /// Says what is wrong with a member, in a full sentence.
    pub(crate) fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        if let Place::Headers(prefix) = self.place {
            let header = format!("{prefix}{name}");
            self.list.push(FieldError::of_header(header, detail));
        } else {
            self.wrong_at(|object| object.field(name), detail);
        }
    }

    /// Says what is wrong at a place in the body or the member.
    pub(crate) fn wrong_at(
        &mut self,
        at: impl FnOnce(Pointer) -> Pointer,
        detail: impl Into<String>,
    ) {
        let object = match self.place {
            Place::Member(name) => Pointer::root().field(name),
            Place::Body | Place::Headers(_) => Pointer::root(),
        };
        self.list.push(FieldError::new(at(object), detail));
    }

    /// All that is wrong, if anything is.
    pub(crate) fn finish(self) -> Result<(), Vec<FieldError>> {
        if self.list.is_empty() {
            Ok(())
        } else {
            Err(self.list)
        }
    }
}
