//! Events as a list of JSON, or one behind the other.

use std::io::Read;

use serde_json::value::RawValue;

use super::Wrong;

/// The longest list, in bytes: it is read as a whole. Lines have no such limit.
const LEN_MAX: u64 = 256 << 20;

/// The items of a list, or one alone, with the lines on which they begin.
///
/// # Errors
/// The reader fails, it is too long, or it is not JSON.
pub fn read_items(input: impl Read) -> Result<Vec<(u64, String)>, Wrong> {
    let mut text = String::new();
    if input.take(LEN_MAX + 1).read_to_string(&mut text)? as u64 > LEN_MAX {
        return Err(Wrong::other("the list is too long; NDJSON has no limit"));
    }
    Ok(items(&text)?)
}

fn items(text: &str) -> Result<Vec<(u64, String)>, serde_json::Error> {
    let text = text.trim_start_matches('\u{feff}');
    let items: Vec<&RawValue> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text)?
    } else {
        let items = serde_json::Deserializer::from_str(text).into_iter();
        items.collect::<Result<_, _>>()?
    };
    let (mut line, mut at) = (1, 0);
    let mut placed = Vec::with_capacity(items.len());
    for item in items {
        let place = item.get().as_ptr() as usize - text.as_ptr() as usize;
        line += text[at..place].matches('\n').count() as u64;
        at = place;
        placed.push((line, item.get().to_owned()));
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_where_its_items_stand() {
        let text = "[\n {\"a\": 1},\n {\"b\":\n 2}, {\"c\": 3}]";
        let found = items(text).unwrap();
        let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3, 4]);
        assert_eq!(found[1].1, "{\"b\":\n 2}");
        assert_eq!(items("{\"a\":1}\n{\"b\":2}").unwrap()[1].0, 2);
        assert!(items("[1,").is_err());
    }
}
