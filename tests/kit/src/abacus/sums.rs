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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::abacus::Measure;

    #[test]
    fn adds_integers_and_the_last_of_a_name() {
        let measures = [
            ("memory", json!(7)),
            ("memory", json!(i64::MAX)),
            ("text", json!("3")),
            ("half", json!(0.5)),
            ("duration", json!(-4)),
        ];
        let measure = |(measure, quantity): (&str, Value)| Measure {
            measure: measure.to_owned(),
            quantity,
        };
        let usage = Usage {
            dedup_id: String::new(),
            start: 0,
            end: 0,
            organization_id: String::new(),
            space_id: String::new(),
            consumer_id: String::new(),
            resource_id: String::new(),
            plan_id: String::new(),
            resource_instance_id: String::new(),
            measured_usage: measures.map(measure).to_vec(),
        };
        let mut amounts = Amounts::new();
        add_amounts(&mut amounts, &usage);
        add_amounts(&mut amounts, &usage);
        let memory = -8 * i128::from(i64::MAX);
        let expected = [("duration".to_owned(), -8), ("memory".to_owned(), memory)];
        assert_eq!(amounts, Amounts::from(expected));
    }
}
