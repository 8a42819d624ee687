//! What a program is made of, as CycloneDX (JSON): each crate that is linked into it, with version,
//! licence and checksum. It is the same for the same lock file: no moment, no number of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, Package, PackageId};
use cyclonedx_bom::external_models::spdx::SpdxExpression;
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata as About;
use cyclonedx_bom::prelude::{Bom, Validate};
use sampler_testkit::workspace_dir;

/// All crates, and what hangs on what.
pub(super) struct Crates {
    metadata: Metadata,
    /// By name and version, of those that come from a registry.
    checksums: BTreeMap<(String, String), String>,
}

impl Crates {
    /// Those that the lock file names, as far as a target has use for them.
    pub(super) fn read(target: &str) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(workspace_dir().join("Cargo.toml"))
            .other_options(["--locked", "--filter-platform", target].map(str::to_owned))
            .exec()
            .context("asking cargo for the crates")?;
        let lock = fs::read_to_string(workspace_dir().join("Cargo.lock")).context("Cargo.lock")?;
        let checksums = checksums(&lock)?;
        Ok(Self {
            metadata,
            checksums,
        })
    }

    pub(super) fn sbom(&self, program: &str) -> Result<Vec<u8>> {
        let packages: BTreeMap<_, _> = self
            .metadata
            .packages
            .iter()
            .map(|package| (&package.id, package))
            .collect();
        let root = packages
            .values()
            .find(|package| package.name.as_str() == program)
            .with_context(|| format!("there is no crate {program}"))?;
        let linked = self.linked(&root.id)?;
        let mut components = Vec::new();
        for id in linked.keys().filter(|id| **id != &root.id) {
            components.push(self.component(packages[id], Classification::Library)?);
        }
        let dependencies = linked.iter().map(|(id, needs)| Dependency {
            dependency_ref: reference(packages[id]),
            dependencies: needs.iter().map(|id| reference(packages[id])).collect(),
        });
        let about = About {
            component: Some(self.component(root, Classification::Application)?),
            ..About::default()
        };
        let bom = Bom {
            serial_number: None,
            metadata: Some(about),
            components: Some(Components(components)),
            dependencies: Some(Dependencies(dependencies.collect())),
            ..Bom::default()
        };
        let judged = bom.validate();
        ensure!(
            judged.passed(),
            "the SBOM of {program} is not valid: {judged:?}"
        );
        let mut json = Vec::new();
        bom.output_as_json_v1_5(&mut json)
            .context("writing the SBOM")?;
        json.push(b'\n');
        Ok(json)
    }

    /// The crates that are linked into one of them, itself included, each with those it needs: not
    /// what only builds or tests it.
    fn linked(&self, root: &PackageId) -> Result<BTreeMap<&PackageId, BTreeSet<&PackageId>>> {
        let resolved = self
            .metadata
            .resolve
            .as_ref()
            .context("cargo resolved nothing")?;
        let nodes: BTreeMap<&PackageId, &Node> =
            resolved.nodes.iter().map(|node| (&node.id, node)).collect();
        let (root, _) = nodes
            .get_key_value(root)
            .context("the program is not resolved")?;
        let (mut found, mut open) = (BTreeMap::new(), vec![*root]);
        while let Some(id) = open.pop() {
            if found.contains_key(id) {
                continue;
            }
            let linked = |kinds: &[cargo_metadata::DepKindInfo]| {
                kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            };
            let needs: BTreeSet<_> = nodes[id]
                .deps
                .iter()
                .filter(|dep| linked(&dep.dep_kinds))
                .map(|dep| &dep.pkg)
                .collect();
            open.extend(&needs);
            found.insert(id, needs);
        }
        Ok(found)
    }

    fn component(&self, package: &Package, class: Classification) -> Result<Component> {
        let (name, version) = (package.name.as_str(), package.version.to_string());
        let mut component = Component::new(class, name, &version, Some(reference(package)));
        let purl = Purl::new("cargo", name, &version);
        component.purl = Some(purl.with_context(|| format!("the address of {name}"))?);
        if let Some(license) = &package.license {
            let license = SpdxExpression::parse_lax(license.clone());
            let license = license.with_context(|| format!("the licence of {name}"))?;
            component.licenses = Some(Licenses(vec![LicenseChoice::Expression(license)]));
        }
        let checksum = self.checksums.get(&(name.to_owned(), version));
        component.hashes = checksum.map(|checksum| {
            Hashes(vec![Hash {
                alg: HashAlgorithm::SHA_256,
                content: HashValue(checksum.clone()),
            }])
        });
        Ok(component)
    }
}

/// What a crate is called within the SBOM; cargo's own ids hold paths of this machine.
fn reference(package: &Package) -> String {
    format!("{}@{}", package.name, package.version)
}

fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("reading Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.context("Cargo.lock names no packages")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let checksum = |package: &toml::Value| {
        let name_and_version = (text(package, "name")?, text(package, "version")?);
        Some((name_and_version, text(package, "checksum")?))
    };
    Ok(packages.iter().filter_map(checksum).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn holds_what_is_linked_and_nothing_else() {
        let crates = Crates::read("x86_64-unknown-linux-gnu").unwrap();
        let sbom = crates.sbom("sampler-worker").unwrap();
        assert_eq!(sbom, crates.sbom("sampler-worker").unwrap());
        let sbom: Value = serde_json::from_slice(&sbom).unwrap();
        assert_eq!(sbom["bomFormat"], "CycloneDX");
        assert_eq!(sbom["metadata"]["component"]["name"], "sampler-worker");
        let components = sbom["components"].as_array().unwrap();
        let named = |name: &str| {
            components
                .iter()
                .find(|component| component["name"] == name)
        };
        let tokio = named("tokio").unwrap();
        assert_eq!(tokio["licenses"][0]["expression"], "MIT");
        assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
        let address = format!("pkg:cargo/tokio@{}", tokio["version"].as_str().unwrap());
        assert_eq!(tokio["purl"], address);
        for absent in ["proptest", "sampler-testkit", "sampler-receiver", "cc"] {
            assert!(
                named(absent).is_none(),
                "{absent} is not linked into a worker"
            );
        }
    }
}
