//! Takes a snapshot apart as it arrives: into its head, and its instances one by one.
//!
//! Only where a piece begins and ends is found here. Each piece is then read as JSON by the strict
//! reader, and what is left of the body without its instances as the head: so what is no JSON is
//! found there.

/// The format of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One object.
    Json,
    /// A head, and an instance on each further line.
    Lines,
}

/// A piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// The part of an object before its first list of instances, with what opens that list. It comes
    /// once, and the head still follows.
    Beginning(&'a [u8]),
    /// All members but the instances.
    Head(&'a [u8]),
    Instance(&'a [u8]),
}

/// A piece is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The member that has the instances.
const INSTANCES: &[u8] = b"instances";

/// The state of the division of a body.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says one thing of the text so far"
)]
pub(super) struct Pieces {
    form: Form,
    /// The longest piece.
    max: usize,
    /// The piece that has begun.
    piece: Vec<u8>,
    /// The part of the head that has come so far.
    head: Vec<u8>,
    /// Whether the head has come, or its beginning.
    has_head: bool,
    /// In how many lists and objects it is.
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// The last text of the outermost object, and the name of the member that it is in.
    text: Vec<u8>,
    name: Vec<u8>,
    is_in_instances: bool,
    /// Whether an instance has ended with a comma, so that another one must follow.
    is_followed: bool,
}

impl Pieces {
    pub(super) fn new(form: Form, max: usize) -> Self {
        Self {
            form,
            max,
            piece: Vec::new(),
            head: Vec::new(),
            has_head: false,
            depth: 0,
            is_in_string: false,
            is_escaped: false,
            text: Vec::new(),
            name: Vec::new(),
            is_in_instances: false,
            is_followed: false,
        }
    }

    /// Takes what has arrived, and hands on each piece that has ended.
    pub(super) fn push<E: From<TooLong>>(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.form {
            Form::Lines => {
                let mut lines = bytes.split(|byte| *byte == b'\n');
                // The last one goes on.
                let last = lines.next_back().unwrap_or_default();
                for line in lines {
                    self.extend(line)?;
                    self.end_line(&mut take)?;
                }
                Ok(self.extend(last)?)
            }
            Form::Json => bytes
                .iter()
                .try_for_each(|byte| self.step(*byte, &mut take)),
        }
    }

    /// Hands on what is left.
    pub(super) fn finish<E>(
        mut self,
        mut take: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.form {
            Form::Lines => {
                self.end_line(&mut take)?;
                if self.has_head {
                    Ok(())
                } else {
                    take(Piece::Head(b""))
                }
            }
            Form::Json => {
                // Of an instance that was cut off, so that it is found to be no JSON.
                self.head.append(&mut self.piece);
                take(Piece::Head(&self.head))
            }
        }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.piece.len() + bytes.len() > self.max {
            return Err(TooLong);
        }
        self.piece.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line<E>(&mut self, take: &mut impl FnMut(Piece<'_>) -> Result<(), E>) -> Result<(), E> {
        let line = std::mem::take(&mut self.piece);
        let taken = match (line.trim_ascii(), self.has_head) {
            (b"", _) => Ok(()),
            (head, false) => {
                self.has_head = true;
                take(Piece::Head(head))
            }
            (instance, true) => take(Piece::Instance(instance)),
        };
        self.piece = line;
        self.piece.clear();
        taken
    }

    fn step<E: From<TooLong>>(
        &mut self,
        byte: u8,
        take: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_in_string {
            self.step_in_string(byte);
            return Ok(self.keep(byte)?);
        }
        match byte {
            b'"' => {
                self.is_in_string = true;
                if self.depth == 1 {
                    self.text.clear();
                }
            }
            b':' if self.depth == 1 => self.name.clone_from(&self.text),
            b'[' if self.depth == 1 && self.name == INSTANCES => {
                self.keep(byte)?;
                (self.depth, self.is_in_instances) = (2, true);
                if std::mem::replace(&mut self.has_head, true) {
                    return Ok(());
                }
                return take(Piece::Beginning(&self.head));
            }
            b'[' | b'{' => self.depth += 1,
            b']' if self.depth == 2 && self.is_in_instances => {
                self.end_instance(false, take)?;
                self.is_in_instances = false;
                self.depth = 1;
            }
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            b',' if self.depth == 2 && self.is_in_instances => {
                return self.end_instance(true, take);
            }
            _ => {}
        }
        Ok(self.keep(byte)?)
    }

    fn step_in_string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.is_in_string = false;
                return;
            }
            _ => {}
        }
        if self.depth == 1 && self.text.len() <= INSTANCES.len() {
            self.text.push(byte);
        }
    }

    fn keep(&mut self, byte: u8) -> Result<(), TooLong> {
        let part = if self.is_in_instances {
            &mut self.piece
        } else {
            &mut self.head
        };
        if part.len() == self.max {
            return Err(TooLong);
        }
        part.push(byte);
        Ok(())
    }

    /// An instance ends: with a comma, or with the list.
    fn end_instance<E>(
        &mut self,
        is_followed: bool,
        take: &mut impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let must_be_there = is_followed || self.is_followed;
        self.is_followed = is_followed;
        let piece = std::mem::take(&mut self.piece);
        let instance = piece.trim_ascii();
        let taken = if instance.is_empty() && !must_be_there {
            Ok(())
        } else {
            take(Piece::Instance(instance))
        };
        self.piece = piece;
        self.piece.clear();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head and the instances, whatever the body is cut into.
    fn pieces(form: Form, body: &str) -> (String, Vec<String>) {
        let of = |size: usize| {
            let (mut head, mut instances, mut beginnings) = (None, Vec::new(), Vec::new());
            let mut take = |piece: Piece<'_>| {
                match piece {
                    Piece::Head(text) => {
                        assert!(head.is_none());
                        head = Some(String::from_utf8(text.to_vec()).unwrap());
                    }
                    Piece::Beginning(text) => {
                        beginnings.push(String::from_utf8(text.to_vec()).unwrap());
                    }
                    Piece::Instance(text) => {
                        instances.push(String::from_utf8(text.to_vec()).unwrap());
                    }
                }
                Ok::<_, TooLong>(())
            };
            let mut pieces = Pieces::new(form, 1_000);
            for chunk in body.as_bytes().chunks(size) {
                pieces.push(chunk, &mut take).unwrap();
            }
            pieces.finish(&mut take).unwrap();
            let head: String = head.unwrap();
            let has_list = form == Form::Json && !instances.is_empty();
            assert!(beginnings.len() <= 1 && beginnings.len() >= usize::from(has_list));
            assert!(beginnings.iter().all(|text| head.starts_with(text)));
            (head, instances)
        };
        let whole = of(body.len().max(1));
        for size in 1..=7 {
            assert_eq!(of(size), whole, "{size}");
        }
        whole
    }

    fn json(body: &str) -> (String, Vec<String>) {
        pieces(Form::Json, body)
    }

    #[test]
    fn instances_are_taken_out_of_an_object_wherever_they_stand() {
        let instances = [r#"{"a":"]},\"[{"}"#, r#"{"b":[[1],{"instances":[2]}]}"#];
        let list = format!(" {} , {} ", instances[0], instances[1]);
        for (body, head) in [
            (
                format!(r#"{{"at":1,"instances":[{list}]}}"#),
                r#"{"at":1,"instances":[]}"#,
            ),
            (
                format!(r#"{{"instances" : [{list}],"at":1}}"#),
                r#"{"instances" : [],"at":1}"#,
            ),
            (
                format!(r#"{{"a":"instances","b":[7,8],"instances":[{list}]}}"#),
                r#"{"a":"instances","b":[7,8],"instances":[]}"#,
            ),
            (
                format!(r#"{{"a":{{"instances":[1]}},"instances":[{list}]}}"#),
                r#"{"a":{"instances":[1]},"instances":[]}"#,
            ),
        ] {
            assert_eq!(
                json(&body),
                (head.to_owned(), instances.map(str::to_owned).to_vec())
            );
        }
        assert_eq!(
            json(r#"{"instances":[ ]}"#),
            (r#"{"instances":[]}"#.to_owned(), Vec::new())
        );
    }

    /// The strict reader then refuses it.
    #[test]
    fn what_is_no_json_stays_none() {
        for (body, instances) in [
            ("{\"instances\":[{},]}", &["{}", ""][..]),
            ("{\"instances\":[,]}", &["", ""]),
            ("{\"instances\":[{} {}]}", &["{} {}"]),
            ("{\"instances\":[{}}]}", &[]),
        ] {
            let (head, seen) = json(body);
            let all = seen.iter().chain([&head]);
            let is_json = |text: &String| serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert!(!all.clone().all(is_json), "{body}: {seen:?} {head}");
            assert_eq!(seen.first().map(String::as_str), instances.first().copied());
        }
        for body in [
            "",
            "{",
            "{\"instances\":[{}",
            "{\"instances\":[",
            "[]]",
            "{\"instances\":[]} x",
        ] {
            let (head, _) = json(body);
            assert!(
                serde_json::from_str::<serde_json::Value>(&head).is_err(),
                "{body}: {head}"
            );
        }
    }

    #[test]
    fn lines_are_a_head_and_instances_and_blank_ones_are_nothing() {
        let body = "\n {\"at\":1} \r\n\n{\"a\":1}\r\n   \n{\"b\":2}";
        let expected = (
            "{\"at\":1}".to_owned(),
            vec!["{\"a\":1}".to_owned(), "{\"b\":2}".to_owned()],
        );
        assert_eq!(pieces(Form::Lines, body), expected);
        assert_eq!(pieces(Form::Lines, &format!("{body}\n\n")), expected);
        assert_eq!(pieces(Form::Lines, "\n"), (String::new(), Vec::new()));
    }

    #[test]
    fn no_piece_is_longer_than_it_may_be() {
        let take = |_: Piece<'_>| Ok::<_, TooLong>(());
        let long = "x".repeat(11);
        for (form, body) in [
            (Form::Lines, format!("{{}}\n{long}")),
            (Form::Json, long.clone()),
            (Form::Json, format!("{{\"instances\":[{long}")),
        ] {
            let mut pieces = Pieces::new(form, 10);
            let all = body.as_bytes().chunks(3);
            let pushed: Result<Vec<()>, TooLong> =
                all.map(|chunk| pieces.push(chunk, take)).collect();
            assert_eq!(pushed, Err(TooLong), "{body}");
        }
    }
}
