//! Exact sums over what counts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::schema::Usage;

/// Amounts by the name of the measure.
pub type Amounts = BTreeMap<String, i128>;

/// Adds what one usage amounts to: its duration, and duration times quantity for each measure whose
/// quantity is an integer.
pub fn add_amounts(amounts: &mut Amounts, usage: &Usage) {
    let duration = usage.duration();
    let mut seen: Vec<&str> = Vec::with_capacity(usage.measured_usage.len());
    // From the last, because the last of a name wins.
    for entry in usage.measured_usage.iter().rev() {
        let name = entry.measure.as_str();
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let amount = match (name, integer(&entry.quantity)) {
            ("duration", _) => duration,
            (_, Some(quantity)) => duration * quantity,
            (_, None) => continue,
        };
        match amounts.get_mut(name) {
            Some(sum) => *sum += amount,
            None => _ = amounts.insert(name.to_owned(), amount),
        }
    }
}

fn integer(quantity: &Value) -> Option<i128> {
    let number = quantity.as_number()?;
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}
