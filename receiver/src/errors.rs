//! The errors in the members of a body, which are told together.

use sampler_api::given::Given;
use sampler_domain::Id;
use sampler_service::problem::{FieldError, Pointer};

/// The errors so far. A pointer is only made for an error: most members are right.
#[derive(Default)]
pub(crate) struct Errors {
    /// The member of the body that has the members, unless the body itself has them.
    within: Option<&'static str>,
    errors: Vec<FieldError>,
}

impl Errors {
    /// Errors in the members of the body, after the errors so far.
    pub(crate) fn of(errors: Vec<FieldError>) -> Self {
        Self {
            within: None,
            errors,
        }
    }

    /// Errors in the members of this member of the body, after the errors so far.
    pub(crate) fn within(name: &'static str, errors: Vec<FieldError>) -> Self {
        Self {
            within: Some(name),
            errors,
        }
    }

    /// A member that must be there.
    pub(crate) fn required<T>(&mut self, name: &str, given: Given<T>) -> Option<T> {
        self.required_at(given, |object| object.field(name))
    }

    /// A member that must be there, of an object further in.
    pub(crate) fn required_at<T>(
        &mut self,
        given: Given<T>,
        at: impl FnOnce(Pointer) -> Pointer,
    ) -> Option<T> {
        let detail = match given {
            Given::Right(value) => return Some(value),
            Given::Missing => "It is missing.".to_owned(),
            Given::Wrong(detail) => detail,
        };
        self.wrong_at(at, detail);
        None
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
        self.wrong_at(|object| object.field(name), detail);
    }

    /// Says what is wrong at a place in the object.
    pub(crate) fn wrong_at(
        &mut self,
        at: impl FnOnce(Pointer) -> Pointer,
        detail: impl Into<String>,
    ) {
        let root = Pointer::root();
        let object = match self.within {
            Some(name) => root.field(name),
            None => root,
        };
        self.errors.push(FieldError::new(at(object), detail));
    }

    pub(crate) fn into_list(self) -> Vec<FieldError> {
        self.errors
    }

    /// All that is wrong, if anything is.
    pub(crate) fn finish(self) -> Result<(), Vec<FieldError>> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.errors)
        }
    }
}
