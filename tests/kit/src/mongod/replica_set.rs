//! Replica sets of one or three members, whose members can be killed, frozen and started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use mongodb::bson::{Document, doc};
use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::find::find;
use super::member::{Member, MemberOptions, command, is_primary, patient_command};
use crate::within;

const SET_NAME: &str = "rs0";
/// How long a set may take to have a primary.
const PRIMARY_LIMIT: Duration = Duration::from_mins(1);
/// How long the members miss a primary before they elect another.
const ELECTION_TIMEOUT_MILLIS: i32 = 2_000;
/// How often a set gets its new addresses.
const RECONFIG_ATTEMPTS: usize = 5;
/// The server's code for "there is no replica set yet".
const NOT_YET_INITIALIZED: i32 = 94;

/// The folder in memory that Linux has.
const IN_MEMORY: &str = "/dev/shm";

/// What must be free there, and of the machine's memory, in bytes: all tests together leave about half of
/// it on the server that they share.
const ROOM: u64 = 8 << 30;

/// What kind of set to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many members: one or three.
    pub members: usize,
    /// Where the data is kept; without it, in a temporary folder that goes with the set,
    /// in memory if there is room.
    pub folder: Option<PathBuf>,
    /// Whether `failCommand` and its like are there.
    pub test_commands: bool,
    /// The cache of each member in GB.
    pub cache_gb: f32,
    /// More arguments for each member.
    pub arguments: Vec<String>,
}

impl Options {
    /// One member.
    pub fn single() -> Self {
        Self {
            members: 1,
            folder: None,
            test_commands: true,
            cache_gb: 0.25,
            arguments: Vec::new(),
        }
    }

    /// Three members.
    pub fn three() -> Self {
        Self {
            members: 3,
            ..Self::single()
        }
    }
}

/// A running replica set on this machine. It goes when this value, or the process, goes.
#[derive(Debug)]
pub struct ReplicaSet {
    members: Vec<Mutex<Member>>,
    ports: Vec<u16>,
    keeps_data: bool,
    // Last: it is removed when the servers are gone.
    _temporary: Option<TempDir>,
}

impl ReplicaSet {
    /// Starts the members, makes them a set, and waits for a primary. A folder that holds the data
    /// of an earlier set of as many members is taken up again, on whatever ports it is now.
    pub async fn start(options: Options) -> Result<Self> {
        let set = Self::start_members(options, Some(SET_NAME)).await?;
        configure(&set.ports)
            .await
            .context("making the replica set")?;
        set.wait_for_primary().await?;
        Ok(set)
    }

    /// Starts one server that is no member of any set.
    pub async fn standalone() -> Result<Self> {
        let server = Self::start_members(Options::single(), None).await?;
        server.wait_for_primary().await?;
        Ok(server)
    }

    /// Starts one server as a member of a set that is not initiated.
    pub async fn uninitiated() -> Result<Self> {
        Self::start_members(Options::single(), Some(SET_NAME)).await
    }

    async fn start_members(options: Options, set_name: Option<&str>) -> Result<Self> {
        ensure!(
            matches!(options.members, 1 | 3),
            "a set has one or three members"
        );
        let binary = find()?;
        let temporary = match &options.folder {
            Some(_) => None,
            None => Some(
                TempDir::with_prefix_in("sampler-mongod-", parent())
                    .context("making a data folder")?,
            ),
        };
        let removed = temporary.as_ref().map(|folder| folder.path().to_owned());
        let folder = options
            .folder
            .clone()
            .or(removed.clone())
            .context("a data folder")?;
        let mut members = Vec::new();
        let mut ports = Vec::new();
        for number in 0..options.members {
            let member = MemberOptions {
                binary: binary.clone(),
                set_name: set_name.map(str::to_owned),
                folder: member_folder(&folder, number),
                test_commands: options.test_commands,
                cache_gb: options.cache_gb,
                remove: removed.clone(),
                arguments: options.arguments.clone(),
            };
            let member = Member::start(member).await?;
            ports.push(member.port);
            members.push(Mutex::new(member));
        }
        Ok(Self {
            members,
            ports,
            keeps_data: removed.is_none(),
            _temporary: temporary,
        })
    }

    /// The connection string, without a database.
    pub fn uri(&self) -> String {
        self.uri_of("")
    }

    /// The connection string with `database` in its path.
    pub fn uri_of(&self, database: &str) -> String {
        let hosts: Vec<String> = self.ports.iter().copied().map(host).collect();
        match hosts.as_slice() {
            [single] => format!("mongodb://{single}/{database}?directConnection=true"),
            several => format!(
                "mongodb://{}/{database}?replicaSet={SET_NAME}",
                several.join(",")
            ),
        }
    }

    /// The members' ports.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The process id of a member, if it runs.
    pub async fn pid(&self, member: usize) -> Option<i32> {
        self.members.get(member)?.lock().await.pid()
    }

    /// The number of the member that takes writes, if there is one.
    pub async fn primary(&self) -> Option<usize> {
        for (number, port) in self.ports.iter().enumerate() {
            if self.pid(number).await.is_some() && is_primary(*port).await {
                return Some(number);
            }
        }
        None
    }

    /// Waits until there is a primary and gives its number.
    pub async fn wait_for_primary(&self) -> Result<usize> {
        let found = Mutex::new(None);
        within("a primary", PRIMARY_LIMIT, || async {
            let primary = self.primary().await;
            *found.lock().await = primary;
            primary.is_some()
        })
        .await?;
        found.into_inner().context("a primary")
    }

    /// Gives the members other addresses, those of something in front of them, and waits until each knows
    /// all.
    pub async fn readdress(&self, addresses: &[String]) -> Result<()> {
        let old = present_configuration(self.ports[0]).await?;
        readdress(old.context("a set")?, self.ports[0], addresses).await?;
        within("all members know", PRIMARY_LIMIT, async || {
            let mut all_know = true;
            for port in &self.ports {
                let present = present_configuration(*port).await.ok().flatten();
                all_know &= present.is_some_and(|present| has_hosts(&present, addresses));
            }
            all_know
        })
        .await?;
        self.wait_for_primary().await.map(drop)
    }

    /// Kills a member with SIGKILL.
    pub async fn kill(&self, member: usize) -> Result<()> {
        self.members[member].lock().await.kill()
    }

    /// Starts a member again, on its old port and data. It catches up by itself.
    pub async fn restart(&self, member: usize) -> Result<()> {
        self.members[member].lock().await.run().await
    }

    /// Stops a member's clock, so to say, with SIGSTOP: its connections stay, its answers stop.
    pub async fn freeze(&self, member: usize) -> Result<()> {
        self.members[member].lock().await.signal(Signal::SIGSTOP)
    }

    /// Lets a frozen member go on.
    pub async fn thaw(&self, member: usize) -> Result<()> {
        self.members[member].lock().await.signal(Signal::SIGCONT)
    }

    /// Runs a command against the `admin` database of one member, `failCommand` for example.
    pub async fn command(&self, member: usize, document: Document) -> Result<Document> {
        command(self.ports[member], document).await
    }

    /// Ends all members: cleanly when their data is kept, or else at once.
    pub async fn stop(self) -> Result<()> {
        for member in &self.members {
            let mut member = member.lock().await;
            if self.keeps_data {
                member.stop().await?;
            } else {
                member.kill()?;
            }
        }
        Ok(())
    }
}

fn member_folder(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("member-{number}"))
}

/// A folder in memory if there is room. Each write waits until it is on the disk, so tests wait for the
/// disk most of their time; and no test switches off the machine, which is all that a disk is for.
fn parent() -> PathBuf {
    let memory = Path::new(IN_MEMORY);
    if is_roomy(memory) {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn is_roomy(memory: &Path) -> bool {
    let of_machine = fs::read_to_string("/proc/meminfo");
    let of_machine = of_machine.ok().and_then(|text| available(&text));
    let free = free(memory).zip(of_machine);
    free.is_some_and(|(there, of_machine)| there.min(of_machine) >= ROOM)
}

/// What is free in the file system of a folder, in bytes.
#[allow(
    clippy::useless_conversion,
    reason = "not every system counts in 64 bits"
)]
fn free(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    Some(u64::from(found.blocks_available()) * u64::from(found.fragment_size()))
}

/// The memory that programs can have, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let kilobytes = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = kilobytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Makes new servers a set; gives the members of an old set their new addresses.
async fn configure(ports: &[u16]) -> Result<()> {
    let own: Vec<String> = ports.iter().copied().map(host).collect();
    let Some(old) = present_configuration(ports[0]).await? else {
        let configuration = configuration(&own, 1)?;
        patient_command(
            ports[0],
            doc! { "replSetInitiate": configuration },
            PRIMARY_LIMIT,
        )
        .await?;
        return Ok(());
    };
    let count = old.get_array("members").map_or(0, Vec::len);
    ensure!(
        count == ports.len(),
        "the folder holds a set of {count} members"
    );
    readdress(old, ports[0], &own).await
}

/// Gives the members of an old set their new addresses. The server may cut the connection while it
/// finds itself in the new configuration, so what counts is what it says when asked again.
async fn readdress(mut old: Document, port: u16, addresses: &[String]) -> Result<()> {
    for _ in 0..RECONFIG_ATTEMPTS {
        if has_hosts(&old, addresses) {
            return Ok(());
        }
        let version = old.get_i32("version").unwrap_or(1);
        let new = configuration(addresses, version + 1)?;
        let reconfig = doc! { "replSetReconfig": new, "force": true };
        let _ = patient_command(port, reconfig, PRIMARY_LIMIT).await;
        old = present_configuration(port)
            .await?
            .context("the set has lost its data")?;
    }
    bail!("the set does not take its new addresses")
}

/// The configuration that a server holds, whether or not it finds itself in it.
async fn present_configuration(port: u16) -> Result<Option<Document>> {
    let status = patient_command(port, doc! { "replSetGetStatus": 1 }, PRIMARY_LIMIT).await;
    if let Err(error) = &status
        && error_code(error) == Some(NOT_YET_INITIALIZED)
    {
        return Ok(None);
    }
    let answer = command(port, doc! { "replSetGetConfig": 1 }).await?;
    Ok(Some(
        answer
            .get_document("config")
            .context("an answer without configuration")?
            .clone(),
    ))
}

fn error_code(error: &anyhow::Error) -> Option<i32> {
    match *error.downcast_ref::<mongodb::error::Error>()?.kind {
        mongodb::error::ErrorKind::Command(ref error) => Some(error.code),
        _ => None,
    }
}

/// The address of a member.
fn host(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn configuration(addresses: &[String], version: i32) -> Result<Document> {
    let mut members = Vec::new();
    for (id, host) in addresses.iter().enumerate() {
        members.push(doc! { "_id": i32::try_from(id)?, "host": host });
    }
    Ok(doc! {
        "_id": SET_NAME,
        "version": version,
        "members": members,
        "settings": { "electionTimeoutMillis": ELECTION_TIMEOUT_MILLIS, "heartbeatIntervalMillis": 500 },
    })
}

fn has_hosts(configuration: &Document, addresses: &[String]) -> bool {
    let members = configuration.get_array("members").into_iter().flatten();
    let hosts = members.filter_map(|member| member.as_document()?.get_str("host").ok());
    hosts.eq(addresses)
}
