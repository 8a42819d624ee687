//! A worker, which does what a test says when the test says so. Its drivers are the real ones.

use sampler_domain::{
    Acceptance, Action, Contract, Driver, Entry, Failure, Granularities, Granularity, Policy,
    Remembered, Span, Terms, Timestamp,
};
use sampler_store::Ledger;
use sampler_store_testing::support::{Changing, run};

use crate::world::{DAY, World};

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(millis)
}

/// Time is cut by the day, and one refusal suspends.
fn terms() -> Terms {
    Terms {
        run: run(1),
        policy: Policy {
            granularities: Granularities::all(Granularity::Day),
            stop_grace: 0,
        },
        contract: Contract::Forever,
        suspend_after: 1,
    }
}

impl World {
    pub(crate) fn span_at(&self, location: &str) -> Span {
        let mut spans = self.spans().into_iter();
        let of = |span: &Span| location.ends_with(&span.id.to_string());
        spans.find(of).unwrap()
    }

    /// Changes the span at an address, as no worker would.
    pub(crate) fn alter(&self, location: &str, change: impl FnOnce(&mut Span)) -> Span {
        let mut span = self.span_at(location);
        change(&mut span);
        self.store.memory.put(span.clone());
        span
    }

    fn driver(&self, location: &str) -> Driver {
        Driver::new(self.span_at(location), Remembered::default(), at(0))
    }

    async fn makes(&self, driver: &Driver, now: i64) -> Span {
        match driver.action(at(now), &terms()) {
            Action::Change(change) => self.store.memory.must_make(driver.span(), *change).await,
            other => panic!("{other:?}"),
        }
    }

    /// Plans what is due, or completes.
    pub(crate) async fn goes_on(&self, location: &str, now: i64) -> Span {
        self.makes(&self.driver(location), now).await
    }

    /// The upstream accepts what is planned.
    pub(crate) async fn accepts(&self, location: &str, now: i64) -> Entry {
        let mut driver = self.driver(location);
        driver.on_accepted(Acceptance {
            at: at(now),
            status: Some(202),
            location: Some("https://abacus/1".to_owned()),
        });
        let Action::WriteEntry(entry) = driver.action(at(now), &terms()) else {
            panic!("nothing is planned");
        };
        let memory = &self.store.memory;
        let expires_at = at(now + 100 * DAY);
        memory.write_entry(&entry, expires_at, None).await.unwrap();
        driver.on_entry_written();
        self.makes(&driver, now).await;
        *entry
    }

    /// The upstream refuses what is planned.
    pub(crate) async fn refuses(&self, location: &str, now: i64) -> Span {
        let mut driver = self.driver(location);
        driver.on_failed(Failure {
            at: at(now),
            retry_at: at(now),
            error: "no mapping".to_owned(),
            status: Some(400),
            blames_usage: true,
            is_post: true,
            unanswered: false,
        });
        self.makes(&driver, now).await
    }
}
