//! The reader of the required and the optional fields of a JSON object. Each field that is wrong,
//! missing or unknown gets an error with its JSON Pointer, and all errors are named at once.

#![expect(
    clippy::needless_pass_by_value,
    reason = "all readers of values have one form"
)]

use std::borrow::Cow;

use sampler_domain::{Id, Timestamp};
use sampler_service::problem::{FieldError, Pointer};

use crate::json::{Json, Members};

/// A step from an object or a list to what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(&'static str),
    Index(usize),
}

/// The fields of an object that have not been read yet, and the errors in those that have.
pub(crate) struct Fields<'b> {
    /// From the body to the object. A pointer is only made for an error: most fields are right.
    path: Vec<Step>,
    /// The name of a field that was read stays, so that later members need not move up.
    members: Vec<(Cow<'b, str>, Option<Json<'b>>)>,
    errors: Vec<FieldError>,
}

impl<'b> Fields<'b> {
    /// The fields of a body.
    pub(crate) fn of(body: Json<'b>) -> Result<Self, Vec<FieldError>> {
        Self::at(Vec::new(), Some(body), Vec::new())
    }

    /// The fields of the object at a place of a body, after the errors so far.
    pub(crate) fn at(
        path: Vec<Step>,
        object: Option<Json<'b>>,
        errors: Vec<FieldError>,
    ) -> Result<Self, Vec<FieldError>> {
        let mut fields = Self {
            path,
            members: Vec::new(),
            errors,
        };
        match object {
            Some(Json::Object(members)) => {
                fields.members = unread(members);
                return Ok(fields);
            }
            Some(_) => fields.wrong_at(&[], "It must be an object."),
            None => fields.wrong_at(&[], "It is missing."),
        }
        Err(fields.errors)
    }

    /// A field, whatever its value is.
    pub(crate) fn take(&mut self, name: &str) -> Option<Json<'b>> {
        let mut members = self.members.iter_mut();
        members.find(|member| member.0 == name)?.1.take()
    }

    /// All fields that have not been read yet.
    pub(crate) fn take_all(&mut self) -> Vec<(Cow<'b, str>, Json<'b>)> {
        let members = std::mem::take(&mut self.members).into_iter();
        members
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// A field that may be there. `read` says what is wrong with its value, in a full sentence.
    pub(crate) fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Json<'b>) -> Result<T, String>,
    ) -> Option<T> {
        let value = read(self.take(name)?);
        value.map_err(|detail| self.wrong(name, detail)).ok()
    }

    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Json<'b>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self
            .take(name)
            .ok_or_else(|| "It is missing.".to_owned())
            .and_then(read);
        value.map_err(|detail| self.wrong(name, detail)).ok()
    }

    /// An object that must be there, whose own fields `read` takes.
    pub(crate) fn object<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let value = self.required(name, Ok)?;
        self.within(&[Step::Field(name)], value, read)
    }

    /// The object at a place in this one. Fields that `read` leaves are unknown.
    pub(crate) fn within<T>(
        &mut self,
        steps: &[Step],
        value: Json<'b>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let Json::Object(members) = value else {
            self.wrong_at(steps, "It must be an object.");
            return None;
        };
        let outside = std::mem::replace(&mut self.members, unread(members));
        let depth = self.path.len();
        self.path.extend(steps);
        let value = read(self);
        self.refuse_unread();
        self.path.truncate(depth);
        self.members = outside;
        value
    }

    /// Says what is wrong with a field, in a full sentence.
    pub(crate) fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        let pointer = self.pointer(&[]).field(name);
        self.errors.push(FieldError::new(pointer, detail));
    }

    /// Says what is wrong at a place in this object, or with the object itself.
    pub(crate) fn wrong_at(&mut self, steps: &[Step], detail: impl Into<String>) {
        let error = FieldError::new(self.pointer(steps), detail);
        self.errors.push(error);
    }

    fn pointer(&self, steps: &[Step]) -> Pointer {
        let steps = self.path.iter().chain(steps);
        steps.fold(Pointer::root(), |pointer, step| match step {
            Step::Field(name) => pointer.field(name),
            Step::Index(index) => pointer.index(*index),
        })
    }

    fn refuse_unread(&mut self) {
        for (name, value) in std::mem::take(&mut self.members) {
            if value.is_some() {
                self.wrong(&name, "There is no field of this name.");
            }
        }
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// Refuses what is wrong, missing or was not read.
    pub(crate) fn finish(mut self) -> Result<(), Vec<FieldError>> {
        self.refuse_unread();
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.errors)
        }
    }
}

fn unread(members: Members<'_>) -> Vec<(Cow<'_, str>, Option<Json<'_>>)> {
    members
        .into_iter()
        .map(|(name, value)| (name, Some(value)))
        .collect()
}

pub(crate) fn text(value: Json<'_>) -> Result<String, String> {
    match value {
        Json::Text(text) => Ok(text.into_owned()),
        _ => Err("It must be a string.".to_owned()),
    }
}

pub(crate) fn id(value: Json<'_>) -> Result<Id, String> {
    Id::new(text(value)?).map_err(|error| format!("It {error}."))
}

/// A time: milliseconds since the epoch as a number, or RFC 3339 as a text.
pub(crate) fn timestamp(value: Json<'_>) -> Result<Timestamp, String> {
    const EXPECTED: &str =
        "It must be a whole number of milliseconds since the epoch, or RFC 3339 with an offset.";
    if let Some(text) = value.as_str() {
        // A number as a text is a mistake, as it has always been.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let time = Timestamp::from_text(text).filter(|_| !is_number);
        return Ok(time.ok_or(EXPECTED)?);
    }
    let millis = value.as_whole_number().ok_or(EXPECTED)?;
    Timestamp::new(millis).map_err(|error| format!("It is out of range: {error}."))
}

pub(crate) fn number(value: Json<'_>) -> Result<f64, String> {
    let number = value.as_number().and_then(serde_json::Value::as_f64);
    Ok(number.ok_or("It must be a number.")?)
}

pub(crate) fn boolean(value: Json<'_>) -> Result<bool, String> {
    match value {
        Json::Plain(serde_json::Value::Bool(value)) => Ok(value),
        _ => Err("It must be true or false.".to_owned()),
    }
}

pub(crate) fn list(value: Json<'_>) -> Result<Vec<Json<'_>>, String> {
    match value {
        Json::List(items) => Ok(items),
        _ => Err("It must be a list.".to_owned()),
    }
}
