//! What is measured.

pub(crate) mod against;
pub(crate) mod beside;
pub(crate) mod events;
pub(crate) mod midnight;
pub(crate) mod worker;
pub(crate) mod workers;

/// More of the machine than this for others, in per cent, and a run is made once more.
const DISTURBED: f64 = 20.0;

/// The better of two tries at the same thing, by how little others had of the machine. The second
/// is only made when others were busy during the first.
async fn least_disturbed<T, F>(
    again: bool,
    mut try_once: impl FnMut() -> F,
    others: impl Fn(&T) -> f64,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let first = try_once().await?;
    if !again || others(&first) <= DISTURBED {
        return Ok(first);
    }
    eprintln!(
        "    others had {:.0} % of the machine: once more",
        others(&first)
    );
    let second = try_once().await?;
    Ok(if others(&second) < others(&first) {
        second
    } else {
        first
    })
}
