//! The file in which `sampler target` and `sampler login` keep their values. Only its owner may
//! read it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::failure::Failure;

/// The longest file that is read, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// The content of the file.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The address of the receiver.
    pub(crate) target: Option<Url>,
    pub(crate) login: Option<Login>,
}

/// A token, and the address that it is for.
#[derive(Debug)]
pub(crate) struct Login {
    /// The receiver that it is sent to.
    pub(crate) target: Url,
    pub(crate) client_id: String,
    pub(crate) token: SecretString,
}

/// The file.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Document {
    target: Option<String>,
    login: Option<LoginDocument>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LoginDocument {
    target: String,
    client_id: String,
    token: String,
}

impl Config {
    /// Reads the file. Without a file, or a home directory for it, all values are absent.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Some(path) = path() else {
            return Ok(Self::default());
        };
        let shown = path.display();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file.map_err(|error| Failure::of_file(&path, &error))?,
        };
        let metadata = file
            .metadata()
            .map_err(|error| Failure::of_file(&path, &error))?;
        if metadata.len() > LEN_MAX {
            return Err(Failure::Input(format!("{shown}: it is too long")));
        }
        // The error does not quote the file: it holds a token.
        let document: Result<Document, _> = serde_json::from_reader(file);
        let config = document.ok().and_then(Self::of).ok_or_else(|| {
            Failure::Input(format!(
                "{shown} is not what `sampler target` or `sampler login` writes; remove the file"
            ))
        })?;
        if config.login.is_some() && metadata.permissions().mode() & 0o077 != 0 {
            let what = format!("{shown} holds a token, and others may read it: chmod 600 {shown}");
            return Err(Failure::Input(what));
        }
        Ok(config)
    }

    /// Remembers this from now on. Another program sees the file as it was or as it is.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let path = path().ok_or_else(|| {
            Failure::Input("neither XDG_CONFIG_HOME nor HOME says where to remember it".to_owned())
        })?;
        self.write_to(&path)
            .map_err(|error| Failure::of_file(&path, &error))?;
        Ok(path)
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let beside = folder.join(format!(".config.{}.json", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        // One that is left of an earlier try may have other permissions.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let text = serde_json::to_vec_pretty(&Document::from(self))?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    }

    fn of(document: Document) -> Option<Self> {
        let login = document.login.map(|login| {
            Some(Login {
                target: Url::parse(&login.target).ok()?,
                client_id: login.client_id,
                token: login.token.into(),
            })
        });
        let target = document.target.map(|target| Url::parse(&target).ok());
        Some(Self {
            // Each may be missing, but none wrong.
            target: target.map_or(Some(None), |target| target.map(Some))?,
            login: login.map_or(Some(None), |login| login.map(Some))?,
        })
    }

    /// The token for this address, if the login was at this address.
    pub(crate) fn token_for(&self, url: &Url) -> Option<SecretString> {
        let login = self.login.as_ref()?;
        let is_same = login.target.origin() == url.origin() && login.target.path() == url.path();
        is_same.then(|| login.token.clone())
    }
}

impl From<&Config> for Document {
    fn from(config: &Config) -> Self {
        let login = config.login.as_ref().map(|login| LoginDocument {
            target: login.target.to_string(),
            client_id: login.client_id.clone(),
            token: login.token.expose_secret().to_owned(),
        });
        Self {
            target: config.target.as_ref().map(Url::to_string),
            login,
        }
    }
}

fn path() -> Option<PathBuf> {
    let base = folder_in("XDG_CONFIG_HOME").or_else(|| Some(folder_in("HOME")?.join(".config")))?;
    Some(base.join("sampler").join("config.json"))
}

/// The folder that a variable names. The standard says so: a relative one counts as none.
fn folder_in(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    folder.filter(|folder| folder.is_absolute())
}
