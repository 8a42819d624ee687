//! Three servers, each behind a proxy.
//!
//! Drivers find the members of a set by the hosts in its configuration, so that names the proxies.
//! The members reach each other through them, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sampler_testkit::mongod::{Options, ReplicaSet};

use crate::inject::{SWITCHES, switch};
use crate::proxy::{Conditions, Proxy};

/// The database of a run.
const DATABASE: &str = "chaos";
/// How often a member is started again that does not come up: its port may be taken for a moment.
const RESTARTS: usize = 5;

/// The replica set of a run.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) set: ReplicaSet,
    proxies: Vec<Proxy>,
    folder: PathBuf,
}

impl Cluster {
    /// Starts the set; data and logs go to the folder.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let options = Options {
            folder: Some(folder.to_owned()),
            ..Options::three()
        };
        let set = ReplicaSet::start(options).await?;
        let mut proxies = Vec::new();
        for port in set.ports() {
            proxies.push(Proxy::start(*port).await?);
        }
        let cluster = Self {
            set,
            proxies,
            folder: folder.to_owned(),
        };
        let readdressed = cluster.set.readdress(&cluster.hosts()).await;
        readdressed.context("putting proxies in front of the servers")?;
        Ok(cluster)
    }

    fn hosts(&self) -> Vec<String> {
        self.proxies
            .iter()
            .map(|proxy| format!("127.0.0.1:{}", proxy.port()))
            .collect()
    }

    /// The connection string of the programs.
    pub(crate) fn uri(&self) -> String {
        format!(
            "mongodb://{}/{DATABASE}?replicaSet=rs0",
            self.hosts().join(",")
        )
    }

    /// Changes the links to one member.
    pub(crate) fn set_link(&self, member: usize, conditions: Conditions) {
        self.proxies[member].set(conditions);
    }

    /// Changes the links to all members.
    pub(crate) fn set_links(&self, conditions: Conditions) {
        for proxy in &self.proxies {
            proxy.set(conditions);
        }
    }

    /// How many members there are.
    pub(crate) fn members(&self) -> usize {
        self.proxies.len()
    }

    pub(crate) fn other_than(&self, member: usize) -> usize {
        (member + 1) % self.proxies.len()
    }

    /// Starts a member again that was killed.
    pub(crate) async fn restart(&self, member: usize) -> Result<()> {
        let mut outcome = Ok(());
        for _ in 0..RESTARTS {
            outcome = self.set.restart(member).await;
            if outcome.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        outcome.with_context(|| format!("starting member {member} again"))
    }

    /// Ends whatever is wrong with the servers and their links, and waits for a primary.
    pub(crate) async fn heal(&self) -> Result<()> {
        self.set_links(Conditions::default());
        for member in 0..self.proxies.len() {
            match self.set.pid(member).await {
                Some(_) => self.set.thaw(member).await?,
                None => self.restart(member).await?,
            }
        }
        let primary = self.set.wait_for_primary().await?;
        for member in 0..self.proxies.len() {
            for name in SWITCHES {
                let off = self.set.command(member, switch(name, false)).await;
                off.with_context(|| format!("no more {name} on member {member} of {primary}"))?;
            }
        }
        Ok(())
    }

    /// Ends the servers; their data goes, their logs stay.
    pub(crate) async fn stop(self, keeps_data: bool) -> Result<()> {
        let members = self.proxies.len();
        if !keeps_data {
            // A server that is asked to stop takes its time, and nobody needs its data.
            for member in 0..members {
                self.set.kill(member).await?;
            }
        }
        self.set.stop().await?;
        for member in 0..members {
            let data = self.folder.join(format!("member-{member}")).join("data");
            if !keeps_data {
                fs::remove_dir_all(&data)
                    .with_context(|| format!("removing {}", data.display()))?;
            }
        }
        Ok(())
    }
}
