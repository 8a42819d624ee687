//! The windows of the granularity: no usage crosses a boundary between two of them.

use sampler_api::{Span, Usage};
use sampler_domain::{Granularity, Timestamp};

use super::scale::{Percent, Scale};

/// The narrowest window that is drawn, in percent.
const WIDTH_MIN: f64 = 0.8;

/// Windows behind the usages.
pub(crate) struct Windows {
    /// The windows that the usages keep to; none if unknown.
    pub(crate) granularity: Option<Granularity>,
    /// The granularity of the drawn windows. It is coarser if there would be too many.
    pub(crate) drawn: Option<Granularity>,
    pub(crate) all: Vec<Window>,
}

pub(crate) struct Window {
    pub(crate) x: Percent,
    pub(crate) width: Percent,
    pub(crate) is_odd: bool,
}

impl Windows {
    pub(crate) fn draw(span: &Span, usages: &[Usage], scale: Scale) -> Self {
        let granularity = granularity(span, usages);
        let drawn = granularity.and_then(|finest| {
            let mut coarse = Granularity::ALL.into_iter().skip_while(|it| *it != finest);
            coarse.find(|it| scale.width(shortest(*it)).0 >= WIDTH_MIN)
        });
        let all = drawn.map_or_else(Vec::new, |it| windows(it, scale));
        Self {
            granularity,
            drawn,
            all,
        }
    }
}

fn windows(granularity: Granularity, scale: Scale) -> Vec<Window> {
    let mut all = Vec::new();
    let mut at = granularity.window_of(scale.from);
    let mut is_odd = false;
    while at < scale.to {
        let Some(next) = granularity.boundary_after(at) else {
            break;
        };
        let stretch = scale.stretch(at, next);
        all.extend(stretch.map(|(x, width)| Window { x, width, is_odd }));
        (at, is_odd) = (next, !is_odd);
    }
    all
}

/// The length of a window in ms, the shortest that there is.
pub(crate) fn shortest(granularity: Granularity) -> i64 {
    match granularity {
        Granularity::Minute => 60_000,
        Granularity::Hour => 3_600_000,
        Granularity::Day => 86_400_000,
        Granularity::Month => 28 * 86_400_000,
    }
}

/// The coarsest granularity that fits all usages: no usage crosses a boundary, and a usage after which
/// the span continues ends at a boundary.
///
/// The setting may have changed since the usages were planned, so it is not read.
fn granularity(span: &Span, usages: &[Usage]) -> Option<Granularity> {
    if usages.is_empty() {
        return None;
    }
    let mut all = Granularity::ALL.into_iter().rev();
    all.find(|granularity| {
        usages.iter().all(|usage| {
            let (one, other) = (usage.interval.start, usage.interval.end);
            let (low, high) = (one.min(other), one.max(other));
            let next = granularity.boundary_after(low);
            next.is_none_or(|next| high <= next)
                && [low, high].into_iter().all(|at| {
                    at == span.start || Some(at) == span.end || is_boundary(*granularity, at)
                })
        })
    })
}

pub(crate) fn is_boundary(granularity: Granularity, at: Timestamp) -> bool {
    granularity.window_of(at) == at
}
