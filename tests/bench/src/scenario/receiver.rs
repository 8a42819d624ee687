//! The receiver, beside what it is compared with.

use anyhow::Result;

use super::events::{EventRun, rounds};
use crate::data::System;
use crate::event::Mix;
use crate::mongo::Server;
use crate::report::{Section, of_receiver};
use crate::scale::Scale;

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let mut runs = Vec::new();
    for mix in Mix::ALL {
        eprintln!("  {mix:?}, as many as there can be");
        for connections in scale.connections.iter().copied() {
            let side_by_side = [System::Sampler, System::OneWrite].map(|system| EventRun {
                system,
                mix,
                connections,
                batch: 1,
                timing: scale.timing,
            });
            runs.extend(rounds(server, scale, &side_by_side).await?);
        }
    }
    Ok(of_receiver(&runs))
}
