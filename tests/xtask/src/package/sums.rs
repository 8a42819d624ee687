//! Checksums of what is in a package, in the form of `sha256sum --check`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result};
use aws_lc_rs::digest::{SHA256, digest};

const FILE: &str = "SHA256SUMS";

/// Writes the checksums of all files of a folder, and of the folders in it, into it.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    add_names(&mut names, folder, Path::new("")).context("reading the package")?;
    names.sort();
    let mut sums = String::new();
    for name in names {
        let bytes = fs::read(folder.join(&name)).context("reading a file of the package")?;
        writeln!(sums, "{}  {}", sha256(&bytes), name.display()).context("a line of text")?;
    }
    fs::write(folder.join(FILE), sums).context("writing the checksums")
}

fn add_names(names: &mut Vec<PathBuf>, folder: &Path, within: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder.join(within))? {
        let entry = entry?;
        let name = within.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            add_names(names, folder, &name)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

/// A checksum as hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hex = digest(&SHA256, bytes);
    hex.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "abc").unwrap();
        fs::create_dir(folder.path().join("man")).unwrap();
        fs::write(folder.path().join("man/a"), "").unwrap();
        write(folder.path()).unwrap();
        let sums = fs::read_to_string(folder.path().join(FILE)).unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n\
                        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  man/a\n";
        assert_eq!(sums, expected);
    }
}
