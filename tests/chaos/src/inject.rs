//! Injects faults, and ends them.

use std::time::Instant;

use anyhow::{Context, Result};
use mongodb::bson::{Document, doc};
use sampler_testkit::abacus::{Fault as AbacusFault, StandInAbacus};

use crate::cluster::Cluster;
use crate::fleet::{Fleet, ProgramId, WORKERS};
use crate::proxy::Conditions;
use crate::schedule::{Commands, Failure, Fault};

/// The server's switch that stops a secondary from reading what the primary writes.
const NO_REPLICATION: &str = "stopReplProducer";
/// All switches that are used here.
pub(crate) const SWITCHES: [&str; 2] = ["failCommand", NO_REPLICATION];

/// The faults of Abacus that are about all usages, and those that are about some.
const OF_ALL: &str = "all";
const OF_SOME: &str = "some";
/// What the server answers where it refuses a command: Unauthorized.
const REFUSED: i32 = 13;

/// The parts that can have faults.
pub(crate) struct System {
    pub(crate) cluster: Cluster,
    pub(crate) fleet: Fleet,
    pub(crate) abacus: StandInAbacus,
}

impl System {
    /// Injects a fault, waits until `until`, and ends the fault.
    pub(crate) async fn inject(&self, fault: Fault, until: Instant) -> Result<()> {
        match fault {
            Fault::KillPrimary
            | Fault::KillSecondary
            | Fault::KillMajority
            | Fault::FreezePrimary
            | Fault::StepDown => self.inject_server_fault(fault, until).await,
            Fault::SecondariesLag => self.hold_replication(until).await,
            Fault::Commands(commands, failure, percent) => {
                self.inject_command_failures(fail_point(commands, failure, percent), until)
                    .await
            }
            Fault::ProgramsToPrimary(link) => {
                self.impair_primary_link(Conditions::of_programs(link), until)
                    .await
            }
            Fault::AllToPrimary(link) => {
                let (programs, others) = (link, link);
                let conditions = Conditions { programs, others };
                self.impair_primary_link(conditions, until).await
            }
            Fault::ProgramsToAll(link) => {
                self.cluster.set_links(Conditions::of_programs(link));
                wait_until(until).await;
                self.cluster.set_links(Conditions::default());
                Ok(())
            }
            Fault::Kill(_) | Fault::Restart(_) | Fault::Freeze(_) | Fault::KillAllWorkers => {
                self.inject_program_fault(fault, until).await
            }
            Fault::AbacusAway => {
                self.abacus.go_away().await;
                wait_until(until).await;
                self.abacus.come_back().await
            }
            Fault::Abacus(kind, percent) => {
                let fault = AbacusFault::new(kind).percent(percent);
                self.abacus_fault(fault.named(OF_ALL), OF_ALL, until).await
            }
            Fault::SetAside => {
                let fault = AbacusFault::put_aside("no-rating-plan").percent(30);
                self.abacus_fault(fault.named(OF_SOME), OF_SOME, until)
                    .await
            }
            Fault::RefusedPlan(plan) => {
                let fault = AbacusFault::status(400).only_where("plan_id", plan);
                self.abacus_fault(fault.named(OF_SOME), OF_SOME, until)
                    .await
            }
        }
    }

    async fn abacus_fault(
        &self,
        fault: AbacusFault,
        name: &'static str,
        until: Instant,
    ) -> Result<()> {
        self.abacus.fault(fault);
        wait_until(until).await;
        self.abacus.end_faults(name);
        Ok(())
    }

    async fn inject_server_fault(&self, fault: Fault, until: Instant) -> Result<()> {
        let cluster = &self.cluster;
        let primary = cluster.set.wait_for_primary().await?;
        let other = cluster.other_than(primary);
        let killed = match fault {
            Fault::KillPrimary => vec![primary],
            Fault::KillSecondary => vec![other],
            Fault::KillMajority => vec![primary, other],
            _ => Vec::new(),
        };
        for member in &killed {
            cluster.set.kill(*member).await?;
        }
        if fault == Fault::FreezePrimary {
            cluster.set.freeze(primary).await?;
        }
        if fault == Fault::StepDown {
            let command = doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 2 };
            cluster.set.command(primary, command).await?;
        }
        wait_until(until).await;
        if fault == Fault::FreezePrimary {
            cluster.set.thaw(primary).await?;
        }
        for member in &killed {
            cluster.restart(*member).await?;
        }
        cluster.set.wait_for_primary().await?;
        Ok(())
    }

    async fn inject_command_failures(&self, fail_point: Document, until: Instant) -> Result<()> {
        let set = &self.cluster.set;
        let primary = set.wait_for_primary().await?;
        set.command(primary, fail_point).await?;
        wait_until(until).await;
        set.command(primary, switch("failCommand", false))
            .await
            .context("no more failures")?;
        Ok(())
    }

    async fn hold_replication(&self, until: Instant) -> Result<()> {
        let set = &self.cluster.set;
        let primary = set.wait_for_primary().await?;
        let secondaries = || (0..self.cluster.members()).filter(|member| *member != primary);
        for member in secondaries() {
            set.command(member, switch(NO_REPLICATION, true)).await?;
        }
        wait_until(until).await;
        for member in secondaries() {
            set.command(member, switch(NO_REPLICATION, false)).await?;
        }
        Ok(())
    }

    async fn impair_primary_link(&self, conditions: Conditions, until: Instant) -> Result<()> {
        let primary = self.cluster.set.wait_for_primary().await?;
        self.cluster.set_link(primary, conditions);
        wait_until(until).await;
        self.cluster.set_link(primary, Conditions::default());
        self.cluster.set.wait_for_primary().await?;
        Ok(())
    }

    async fn inject_program_fault(&self, fault: Fault, until: Instant) -> Result<()> {
        let fleet = &self.fleet;
        let ids = match fault {
            Fault::Kill(id) | Fault::Restart(id) | Fault::Freeze(id) => vec![id],
            _ => (0..WORKERS).map(ProgramId::Worker).collect(),
        };
        for id in &ids {
            match fault {
                Fault::Restart(_) => fleet.stop(*id).await?,
                Fault::Freeze(_) => fleet.freeze(*id).await?,
                _ => fleet.kill(*id).await?,
            }
        }
        wait_until(until).await;
        for id in &ids {
            match fault {
                Fault::Freeze(_) => fleet.thaw(*id).await?,
                _ => fleet.back(*id).await?,
            }
        }
        Ok(())
    }

    /// Ends whatever is still wrong.
    pub(crate) async fn heal(&self) -> Result<()> {
        self.abacus.clear_faults();
        self.abacus.come_back().await?;
        self.cluster.heal().await?;
        for number in 0..WORKERS {
            self.fleet.thaw(ProgramId::Worker(number)).await?;
            self.fleet.thaw(ProgramId::Receiver(number)).await?;
        }
        self.fleet.start_all().await
    }
}

/// The server's command that turns a switch on or off.
pub(crate) fn switch(name: &str, on: bool) -> Document {
    let mode = if on { "alwaysOn" } else { "off" };
    doc! { "configureFailPoint": name, "mode": mode }
}

async fn wait_until(until: Instant) {
    tokio::time::sleep_until(until.into()).await;
}

/// The server's command that makes commands fail. Only those of clients: the set itself stays well.
fn fail_point(commands: Commands, failure: Failure, percent: u8) -> Document {
    let names: &[&str] = match commands {
        Commands::Writes => &["insert", "update", "findAndModify"],
        Commands::Reads => &["find", "aggregate"],
        Commands::All => &["insert", "update", "findAndModify", "find", "aggregate"],
    };
    let mut data = doc! { "failCommands": names };
    match failure {
        Failure::Close => _ = data.insert("closeConnection", true),
        Failure::Refused => _ = data.insert("errorCode", REFUSED),
        Failure::Code(code) => _ = data.insert("errorCode", code),
        Failure::WriteConcern(code) => {
            let error = doc! { "code": code, "errmsg": "as it was ordered" };
            data.insert("writeConcernError", error);
        }
        Failure::Block(millis) => {
            data.insert("blockConnection", true);
            data.insert("blockTimeMS", millis);
        }
    }
    let mode = doc! { "activationProbability": f64::from(percent) / 100.0 };
    doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data }
}
