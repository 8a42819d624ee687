//! What an answer to a lookup holds. It is checked while it is read, and no part is kept, so it takes no
//! more memory than its bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value of an answer.
#[derive(Debug, Default)]
pub(super) struct FoundEvents {
    pub(super) is_object: bool,
    pub(super) list: Option<Elements>,
    items: Option<Elements>,
    data: Option<Elements>,
    /// Whether its `id` and its `source` are those of the sought event; `None` where they are missing.
    id: Option<bool>,
    source: Option<bool>,
    /// Whether its `event` is the sought one.
    event: Option<bool>,
    /// Whether it is a text, and the sought id or source.
    is_id: bool,
    is_source: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Elements {
    /// Whether the event that is sought is among them.
    pub(super) has_it: bool,
    pub(super) are_events: bool,
}

impl Default for Elements {
    /// Those of an empty list.
    fn default() -> Self {
        Self {
            has_it: false,
            are_events: true,
        }
    }
}

impl Elements {
    fn add(&mut self, element: &FoundEvents) {
        self.has_it |= element.is_it();
        self.are_events &= element.is_event();
    }
}

impl FoundEvents {
    /// What is seen of a body; none where it is not JSON.
    pub(super) fn in_body(body: &[u8], (id, source): (&str, &str)) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let look = Look {
            id,
            source,
            place: ValuePlace::Body,
        };
        let seen = look.deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(seen)
    }

    /// The events that an answer holds: a list, or the list under `items` or `data`, or one event.
    pub(super) fn elements(&self) -> Option<Elements> {
        let list = self.list.or(self.items).or(self.data);
        if list.is_some() || !self.is_event() {
            return list;
        }
        let mut alone = Elements::default();
        alone.add(self);
        Some(alone)
    }

    fn is_it(&self) -> bool {
        let is_itself = self.id == Some(true) && self.source == Some(true);
        is_itself || self.event == Some(true)
    }

    fn is_event(&self) -> bool {
        self.id.is_some() || self.event.is_some()
    }
}

/// The position of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    Body,
    /// It is an element of a list.
    Element,
    /// It is an `event`.
    Event,
    /// It is an `id` or a `source`.
    Text,
}

/// Looks at a value.
#[derive(Clone, Copy)]
struct Look<'a> {
    id: &'a str,
    source: &'a str,
    place: ValuePlace,
}

impl Look<'_> {
    fn at(self, place: ValuePlace) -> Self {
        Self { place, ..self }
    }

    fn member<'de, A: MapAccess<'de>>(
        self,
        name: &str,
        members: &mut A,
        seen: &mut FoundEvents,
    ) -> Result<(), A::Error> {
        match name {
            "id" => seen.id = Some(self.text(members)?.is_id),
            "source" => seen.source = Some(self.text(members)?.is_source),
            "event" if self.place != ValuePlace::Event => {
                let event = members.next_value_seed(self.at(ValuePlace::Event))?;
                seen.event = Some(event.is_it());
            }
            "items" if self.place == ValuePlace::Body => seen.items = self.list(members)?,
            "data" if self.place == ValuePlace::Body => seen.data = self.list(members)?,
            _ => {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn text<'de, A: MapAccess<'de>>(self, members: &mut A) -> Result<FoundEvents, A::Error> {
        members.next_value_seed(self.at(ValuePlace::Text))
    }

    fn list<'de, A: MapAccess<'de>>(self, members: &mut A) -> Result<Option<Elements>, A::Error> {
        let seen = members.next_value_seed(self.at(ValuePlace::Body))?;
        Ok(seen.list)
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = FoundEvents;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<FoundEvents, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = FoundEvents;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FoundEvents, A::Error> {
        if self.place != ValuePlace::Body {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(FoundEvents::default());
        }
        let mut elements = Elements::default();
        while let Some(element) = list.next_element_seed(self.at(ValuePlace::Element))? {
            elements.add(&element);
        }
        Ok(FoundEvents {
            list: Some(elements),
            ..FoundEvents::default()
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<FoundEvents, A::Error> {
        let mut seen = FoundEvents {
            is_object: true,
            ..FoundEvents::default()
        };
        if self.place == ValuePlace::Text {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(seen);
        }
        while let Some(name) = members.next_key::<String>()? {
            self.member(&name, &mut members, &mut seen)?;
        }
        Ok(seen)
    }

    fn visit_bool<E>(self, _: bool) -> Result<FoundEvents, E> {
        Ok(FoundEvents::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<FoundEvents, E> {
        Ok(FoundEvents::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<FoundEvents, E> {
        Ok(FoundEvents::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<FoundEvents, E> {
        Ok(FoundEvents::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<FoundEvents, E> {
        Ok(FoundEvents {
            is_id: text == self.id,
            is_source: text == self.source,
            ..FoundEvents::default()
        })
    }

    fn visit_unit<E>(self) -> Result<FoundEvents, E> {
        Ok(FoundEvents::default())
    }
}
