//! Lists of ranks in messages, short for any number of ranks.

const SHOWN: usize = 8;

/// Names ascending ranks: `rank 1`, `ranks 1, 3 to 7`.
#[must_use]
pub fn named_ranks(ranks: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let (mut count, mut hidden) = (0_usize, 0_usize);
    for rank in ranks {
        count += 1;
        let last = ranges.last_mut().filter(|(_, last)| hidden == 0 && *last + 1 == rank);
        if let Some((_, last)) = last {
            *last = rank;
        } else if ranges.len() < SHOWN {
            ranges.push((rank, rank));
        } else {
            hidden += 1;
        }
    }
    let texts = ranges.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    let more = (hidden > 0).then(|| format!("{hidden} more"));
    let text = texts.chain(more).collect::<Vec<_>>().join(", ");
    format!("{} {text}", if count == 1 { "rank" } else { "ranks" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stand_for_their_ranks() {
        assert_eq!(named_ranks([3]), "rank 3");
        assert_eq!(named_ranks([1, 2]), "ranks 1, 2");
        assert_eq!(named_ranks([0, 2, 3, 4, 6]), "ranks 0, 2 to 4, 6");
        assert_eq!(named_ranks(1..1_000_000), "ranks 1 to 999999");
        assert_eq!(named_ranks((0..40).step_by(2)), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 12 more");
    }
}
