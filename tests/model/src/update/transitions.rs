//! What can happen, and what must hold.

use std::hash::{DefaultHasher, Hash, Hasher};

use sampler_domain::Span;
use stateright::{Model, Property};

use super::{
    COMPLETED, HALVES_ONCE, INCOMPLETE, MISTAKEN, NOT_CLAIMED, NOT_DENIED, NOT_HALVED, ONE_START,
    Other, REPEATED, REQUESTS, UpdateAction, UpdateState, Updates, halves, id,
};

impl Model for Updates {
    type State = UpdateState;
    type Action = UpdateAction;

    fn init_states(&self) -> Vec<UpdateState> {
        use Other::{StartTarget, StopPrevious, StopTarget};
        let all = vec![StartTarget, StopTarget, StopPrevious];
        vec![
            self.world(&[], all),
            self.world(&[StartTarget], vec![StopTarget, StopPrevious]),
            self.world(&[StopPrevious], vec![StartTarget, StopTarget]),
        ]
    }

    fn actions(&self, state: &UpdateState, actions: &mut Vec<UpdateAction>) {
        actions.extend((0..REQUESTS).map(UpdateAction::Step));
        let begun = (0..REQUESTS).filter(|index| state.requests[*index].has_begun);
        actions.extend(begun.map(UpdateAction::Die));
        actions.extend(state.others.iter().copied().map(UpdateAction::Other));
    }

    fn next_state(&self, last: &UpdateState, action: UpdateAction) -> Option<UpdateState> {
        let mut state = last.clone();
        match action {
            UpdateAction::Step(index) => {
                if let Some(answer) = self.step(&mut state, index) {
                    self.note(&mut state, index, answer);
                }
            }
            UpdateAction::Die(index) => {
                state.requests[index] = self.request(state.requests[index].update);
            }
            UpdateAction::Other(other) => {
                state.others.retain(|one| *one != other);
                self.let_in(&mut state, other);
            }
        }
        // Which of two requests is which does not matter.
        state.requests.sort_by_cached_key(|request| {
            let mut hasher = DefaultHasher::new();
            request.hash(&mut hasher);
            hasher.finish()
        });
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOT_DENIED, |_, state: &UpdateState| !state.history.denied),
            Property::always(NOT_CLAIMED, |_, state: &UpdateState| !state.history.claimed),
            Property::always(NOT_HALVED, |_, state: &UpdateState| !state.history.halved),
            Property::always(HALVES_ONCE, |model: &Self, state: &UpdateState| {
                let id = Some(id("update"));
                let is_own = |span: &Span| span.start_id == id && span.end_id == id;
                let once = |event| {
                    let (stops, starts) = halves(&state.table, event);
                    stops <= 1 && starts <= 1
                };
                model.events().iter().all(once) && !state.table.all().any(|kept| is_own(&kept.span))
            }),
            Property::always(ONE_START, |_, state: &UpdateState| {
                let id = Some(id("update"));
                let is_it = |span: &Span| span.start_id == id;
                state.table.all().filter(|kept| is_it(&kept.span)).count() <= 1
            }),
            Property::always(COMPLETED, |model: &Self, state: &UpdateState| {
                let mut updates = 0..model.events().len();
                updates.all(|update| model.is_completable(state, update))
            }),
            Property::sometimes(INCOMPLETE, |_, state: &UpdateState| {
                state.history.incomplete
            }),
            Property::sometimes(REPEATED, |_, state: &UpdateState| state.history.completed),
            Property::sometimes(MISTAKEN, |_, state: &UpdateState| state.history.mistaken),
        ]
    }
}
