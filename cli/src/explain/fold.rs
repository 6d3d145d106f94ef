//! Folding of equal layers into one row.

use std::collections::BTreeMap;

/// Replaces layer numbers by `*`: `model.layers.*.mlp.up_proj.weight`.
///
/// A layer number is between two dots. An unnamed value such as `%17` also belongs to a layer.
pub(super) fn class_of(text: &str) -> String {
    if text.strip_prefix('%').is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit())) {
        return "%*".to_owned();
    }
    let parts: Vec<&str> = text.split('.').collect();
    let last = parts.len() - 1;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let class = parts
        .iter()
        .enumerate()
        .map(|(index, part)| if index > 0 && index < last && is_number(part) { "*" } else { part });
    class.collect::<Vec<_>>().join(".")
}

/// Returns the first row of each class, in order, with the number of rows in the class.
pub(super) fn fold<T, K: Ord>(rows: &[T], class: impl Fn(&T) -> K) -> Vec<(usize, &T)> {
    let mut places: BTreeMap<K, usize> = BTreeMap::new();
    let mut folded: Vec<(usize, &T)> = Vec::new();
    for row in rows {
        let place = *places.entry(class(row)).or_insert(folded.len());
        match folded.get_mut(place) {
            Some((count, _)) => *count += 1,
            None => folded.push((1, row)),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_numbers_between_dots() {
        for (text, class) in [
            ("model.layers.17.mlp.up_proj.weight", "model.layers.*.mlp.up_proj.weight"),
            ("transformer.h.0.mlp.w1.weight", "transformer.h.*.mlp.w1.weight"),
            (
                "matmul layers.3.mlp.out leaves it partial, rms_norm of residual.3.mlp",
                "matmul layers.*.mlp.out leaves it partial, rms_norm of residual.*.mlp",
            ),
            ("moves 16.0 KiB in 1 collective", "moves 16.0 KiB in 1 collective"),
            ("lm_head.weight", "lm_head.weight"),
            ("%17", "%*"),
            ("", ""),
        ] {
            assert_eq!(class_of(text), class);
        }
    }

    #[test]
    fn the_first_of_each_class_stays_in_its_place() {
        let rows = ["a.1.x", "b", "a.2.x", "a.3.x", "c"];
        assert_eq!(fold(&rows, |row| class_of(row)), [(3, &"a.1.x"), (1, &"b"), (1, &"c")]);
        assert!(fold(&[] as &[&str], |row| class_of(row)).is_empty());
    }
}
