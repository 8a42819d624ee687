//! What a program needs of the system that it is started on.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use object::read::elf::ElfFile64;
use object::{Endianness, Object};

use super::zig::GLIBC;

/// What the names of versions of the C library begin with.
const PREFIX: &str = "GLIBC_";

/// Refuses a program that would not start on the platform, or brings what nobody reads there. Says
/// what the program needs.
pub(super) fn check(program: &[u8]) -> Result<String> {
    let elf = ElfFile64::<Endianness>::parse(program).context("reading the program")?;
    ensure!(
        elf.symbol_table().is_none(),
        "the program has symbols: it is not stripped"
    );
    judge(&needed(&elf)?)
}

/// The newest version of all, where the platform has it.
fn judge(needs: &Needs) -> Result<String> {
    let newest = needs.iter().max_by_key(|(_, version)| **version);
    let (library, newest) = newest.context("the program is not linked with a C library")?;
    if *newest > GLIBC {
        bail!(
            "{library} of glibc {}, newer than {}",
            dotted(*newest),
            dotted(GLIBC)
        );
    }
    Ok(format!("glibc {}", dotted(*newest)))
}

fn dotted((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

/// For each library of glibc the newest version that is asked of it.
type Needs = BTreeMap<String, (u32, u32)>;

fn needed(elf: &ElfFile64<'_, Endianness>) -> Result<Needs> {
    let (endian, data, sections) = (elf.endian(), elf.data(), elf.elf_section_table());
    let mut newest = BTreeMap::new();
    let Some((mut libraries, link)) = sections.gnu_verneed(endian, data)? else {
        return Ok(newest);
    };
    let strings = sections.strings(endian, data, link)?;
    while let Some((library, mut versions)) = libraries.next()? {
        let file = library.file(endian, strings)?;
        while let Some(version) = versions.next()? {
            let name = String::from_utf8_lossy(version.name(endian, strings)?);
            let Some(number) = name.strip_prefix(PREFIX) else {
                continue;
            };
            // GLIBC_PRIVATE and its like belong to one version alone.
            let number = number_of(number).with_context(|| format!("it needs {name}"))?;
            let newest = newest
                .entry(String::from_utf8_lossy(file).into_owned())
                .or_insert(number);
            *newest = number.max(*newest);
        }
    }
    Ok(newest)
}

/// `2.35`, or `2.2.5`, of which the last number does not matter.
fn number_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(number_of("2.35"), Some((2, 35)));
        assert_eq!(number_of("2.2.5"), Some((2, 2)));
        assert!(number_of("2.9") < number_of("2.10"));
        assert_eq!(number_of("PRIVATE"), None);
    }

    #[test]
    fn what_the_platform_does_not_have_is_refused() {
        let needs = |newest| {
            let libraries = [("libc.so.6", newest), ("libm.so.6", (2, 29))];
            Needs::from(libraries.map(|(name, version)| (name.to_owned(), version)))
        };
        assert_eq!(judge(&needs((2, 35))).unwrap(), "glibc 2.35");
        let error = judge(&needs((2, 36))).unwrap_err().to_string();
        assert_eq!(error, "libc.so.6 of glibc 2.36, newer than 2.35");
        assert!(judge(&Needs::new()).is_err());
    }

    /// This very test is a program with symbols.
    #[test]
    fn what_is_not_stripped_is_refused() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let error = check(&program).unwrap_err();
        assert!(error.to_string().contains("not stripped"), "{error:#}");
        let elf = ElfFile64::<Endianness>::parse(&program[..]).unwrap();
        let needs = needed(&elf).unwrap();
        assert!(needs["libc.so.6"] >= (2, 2), "{needs:?}");
        assert!(check(b"#!/bin/sh").is_err());
    }
}
