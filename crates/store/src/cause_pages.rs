//! Pages of causes, the largest first.
//!
//! How many spans a cause has changes while somebody turns its pages, so a position in that order would
//! skip causes and show others twice. So causes are gone through in *blocks* of those that have been
//! there longest, which never changes. Within a block the largest comes first, and the position names
//! those that were shown, or those that are left (`docs/adr/046-pages-of-causes.md`).

use std::collections::BTreeSet;

use sampler_domain::{CauseId, Id, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{KeptCause, SuspendedCause};

/// A list of causes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseQuery {
    /// Only of these resources.
    pub resources: Option<Vec<Id>>,
    /// How many causes of one resource are listed, those that have been there longest; all, where it is
    /// left out. So one resource cannot hide the others.
    pub fold: Option<usize>,
    /// Where the page begins; at the first one, where it is left out.
    pub after: Option<CausePosition>,
    /// How many causes are in a block.
    pub block: usize,
    /// How many causes are on a page, at the most.
    pub limit: usize,
}

/// A position in a list of causes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CausePosition {
    /// The last cause of the block before; none in the first block.
    pub begin: Option<CauseKey>,
    /// The last cause of this block; none before the block is read.
    pub end: Option<CauseKey>,
    /// How far this block was shown.
    pub progress: BlockProgress,
}

/// Which causes of a block were shown: told by those that are fewer, so that a position stays small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockProgress {
    /// These, and no others.
    Shown(Vec<CauseMark>),
    /// All but these.
    Left(Vec<CauseMark>),
}

/// The position of a cause in the order of age. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CauseKey {
    /// Since when the cause is there.
    pub since: Timestamp,
    /// Its id.
    pub id: CauseId,
}

impl Default for BlockProgress {
    fn default() -> Self {
        Self::Shown(Vec::new())
    }
}

impl BlockProgress {
    fn is_left(&self, mark: CauseMark) -> bool {
        match self {
            Self::Shown(shown) => !shown.contains(&mark),
            Self::Left(left) => left.contains(&mark),
        }
    }

    /// After a page, where these are left.
    fn after(self, page: impl Iterator<Item = CauseMark>, left: Vec<CauseMark>) -> Self {
        match self {
            Self::Shown(mut shown) => {
                shown.extend(page);
                if shown.len() <= left.len() {
                    return Self::Shown(shown);
                }
                Self::Left(left)
            }
            Self::Left(_) => Self::Left(left),
        }
    }
}

/// The first 48 bits of the hash that is the id of a cause: enough to tell those of a block apart.
pub type CauseMark = [u8; 6];

/// Some causes of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CausePage {
    /// The causes, the largest first.
    pub causes: Vec<SuspendedCause>,
    /// The position at which the list goes on, if there may be more.
    pub next: Option<CausePosition>,
}

/// A block, of which a page is to be made.
#[derive(Clone, Debug)]
pub struct CauseBlock {
    /// The causes that were not shown yet.
    pub left: Vec<KeptCause>,
    /// How many spans, and how many usages, are counted for each of them at the most, where it would be
    /// too much to count all.
    pub count_max: usize,
    position: CausePosition,
    is_last: bool,
}

impl CauseQuery {
    /// The cause behind which the block begins.
    pub fn begin(&self) -> Option<CauseKey> {
        self.after.as_ref().and_then(|position| position.begin)
    }

    /// How many causes behind that are to be read, for [`block_of`](Self::block_of): twice a block, for
    /// those that come into a block whose end is known.
    pub fn read_max(&self) -> usize {
        self.block.saturating_mul(2).saturating_add(1)
    }

    /// The block of this page, of the causes behind its [`begin`](Self::begin), which have been there
    /// longest.
    pub fn block_of(&self, mut kept: Vec<KeptCause>) -> CauseBlock {
        let mut position = self.after.clone().unwrap_or_default();
        let count = match position.end {
            None => self.block.min(kept.len()),
            Some(end) => kept.partition_point(|cause| CauseKey::of(cause) <= end),
        };
        let is_last = count == kept.len() && count < self.read_max();
        kept.truncate(count);
        position.end = position.end.or_else(|| kept.last().map(CauseKey::of));
        let count_max = SuspendedCause::COUNT_MAX / count.max(1);
        kept.retain(|cause| position.progress.is_left(mark(cause.id)));
        CauseBlock {
            left: kept,
            count_max,
            position,
            is_last,
        }
    }
}

impl CauseBlock {
    /// The page, of those that are left and counted. Those of which nothing is left are not shown.
    pub fn page(mut self, mut causes: Vec<SuspendedCause>, limit: usize) -> CausePage {
        causes.retain(SuspendedCause::is_needed);
        causes.sort_by_key(SuspendedCause::position);
        let is_more = causes.len() > limit;
        causes.truncate(limit);
        let next = if is_more {
            let page: BTreeSet<CauseMark> = causes.iter().map(|it| mark(it.kept.id)).collect();
            let left = self.left.iter().map(|kept| mark(kept.id));
            let left = left.filter(|mark| !page.contains(mark)).collect();
            let progress = std::mem::take(&mut self.position.progress);
            self.position.progress = progress.after(page.into_iter(), left);
            Some(self.position)
        } else {
            let begin = self.position.end.filter(|_| !self.is_last);
            begin.map(|begin| CausePosition {
                begin: Some(begin),
                ..CausePosition::default()
            })
        };
        CausePage { causes, next }
    }
}

impl CauseKey {
    pub fn of(cause: &KeptCause) -> Self {
        Self {
            since: cause.since,
            id: cause.id,
        }
    }
}

fn mark(id: CauseId) -> CauseMark {
    let mut mark = CauseMark::default();
    mark.copy_from_slice(&id.to_bytes()[..6]);
    mark
}

#[cfg(test)]
mod tests {
    use sampler_domain::Cause;

    use super::*;

    fn cause(number: u32) -> KeptCause {
        let at = Timestamp::clamped(i64::from(number));
        KeptCause {
            id: CauseId::from_bytes(u128::to_be_bytes(u128::from(number) << 100)),
            cause: Cause {
                status: Some(422),
                error: number.to_string(),
                resource_id: Id::from_store("r"),
                plan_id: Id::from_store("p"),
            },
            since: at,
            probe_at: at,
            touched_at: at,
            resuming: None,
            resumes: 0,
        }
    }

    /// However short the pages are, a position names half of a block at the most.
    #[test]
    fn a_position_stays_small() {
        let kept: Vec<KeptCause> = (0..100).map(cause).collect();
        for limit in [1, 7, 60, 99] {
            let (mut shown, mut after) = (Vec::new(), None);
            loop {
                let query = CauseQuery {
                    resources: None,
                    fold: None,
                    after,
                    block: 100,
                    limit,
                };
                let block = query.block_of(kept.clone());
                let counted = block.left.iter().map(|kept| SuspendedCause {
                    more: 0,
                    kept: kept.clone(),
                    spans: 1,
                    set_aside: 0,
                });
                let counted = counted.collect();
                let page = block.page(counted, limit);
                shown.extend(page.causes.iter().map(|cause| cause.kept.id));
                after = page.next;
                let Some(position) = &after else { break };
                let (BlockProgress::Shown(marks) | BlockProgress::Left(marks)) = &position.progress;
                assert!(marks.len() <= 50, "{limit}: {}", marks.len());
            }
            let once: BTreeSet<CauseId> = shown.iter().copied().collect();
            assert_eq!((shown.len(), once.len()), (100, 100), "{limit} on a page");
        }
    }
}
