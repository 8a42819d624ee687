//! How the world behind a process treats its calls.

use std::time::Duration;

use super::dice::Dice;

/// How bad things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Everything works, and quickly.
    Calm,
    /// A few calls fail, many are slow.
    Breezy,
    /// Every third call fails.
    Stormy,
    /// Nearly nothing works.
    Out,
    /// Only of Abacus: it refuses what it is given. For the store the same as breezy.
    Refusing,
    /// Only of the store: many answers are lost, and much is carried out late.
    Lagging,
}

/// What becomes of a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFate {
    /// Done, and answered.
    Done,
    /// Done, and answered; done even if the caller dies while it is under way.
    Sent,
    /// Not done, and that is certain.
    Unavailable,
    /// Not done, but the caller cannot know.
    NotDone,
    /// Done, but the answer is lost.
    Unanswered,
    /// Done only after the caller has given up waiting.
    Late,
}

/// What becomes of a usage that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostFate {
    /// Counted, and accepted.
    Taken,
    /// Counted, and accepted; counted even if the caller dies while it is under way.
    Sent,
    /// Counted, but the answer is lost.
    Unanswered,
    /// Counted only after the caller has given up waiting.
    Late,
    /// Not counted: no connection, a time-out, a 5xx.
    NotTaken,
    /// Not counted: 503 with a `Retry-After`.
    Overloaded,
    /// Not counted: 429.
    Busy,
    /// Not counted: refused.
    Refused,
}

/// A call: how long it takes to get there, what happens, how long the answer takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course<F> {
    pub(crate) there: Duration,
    pub(crate) fate: F,
    pub(crate) back: Duration,
}

impl Weather {
    pub(crate) const ALL: [Self; 5] = [
        Self::Calm,
        Self::Breezy,
        Self::Stormy,
        Self::Out,
        Self::Refusing,
    ];

    /// How many calls of a hundred go wrong.
    const fn faults(self) -> usize {
        match self {
            Self::Calm => 0,
            Self::Breezy | Self::Refusing => 5,
            Self::Stormy | Self::Lagging => 35,
            Self::Out => 95,
        }
    }

    /// A delay; `slow` is a long time in this run, ms.
    fn delay(self, dice: &mut Dice, slow: i64) -> Duration {
        match self {
            Self::Calm => dice.wait(5),
            _ if dice.percent(70) => dice.wait(50),
            _ => dice.wait(slow),
        }
    }

    /// The course of a call of the store.
    pub(crate) fn call(self, dice: &mut Dice, slow: i64) -> Course<CallFate> {
        let fate = if self == Self::Lagging && dice.percent(40) {
            *dice.pick(&[CallFate::Late, CallFate::Unanswered])
        } else if dice.percent(self.faults()) {
            *dice.pick(&[
                CallFate::Unavailable,
                CallFate::NotDone,
                CallFate::Unanswered,
                CallFate::Late,
            ])
        } else {
            *dice.pick(&[CallFate::Done, CallFate::Sent])
        };
        self.course(dice, slow, fate)
    }

    /// The course of a post.
    pub(crate) fn post(self, dice: &mut Dice, slow: i64) -> Course<PostFate> {
        let fate = if self == Self::Refusing && dice.percent(90) {
            PostFate::Refused
        } else if dice.percent(self.faults()) {
            *dice.pick(&[
                PostFate::Unanswered,
                PostFate::Late,
                PostFate::NotTaken,
                PostFate::NotTaken,
                PostFate::Overloaded,
                PostFate::Busy,
                PostFate::Refused,
            ])
        } else {
            *dice.pick(&[PostFate::Taken, PostFate::Sent])
        };
        self.course(dice, slow, fate)
    }

    fn course<F>(self, dice: &mut Dice, slow: i64, fate: F) -> Course<F> {
        Course {
            there: self.delay(dice, slow),
            fate,
            back: self.delay(dice, slow),
        }
    }
}
