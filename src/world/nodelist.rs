//! Parses Slurm's lists of hosts and of tasks by node.
//!
//! `n[1-3,7],login` becomes all names in order; `2(x3),1` becomes 2, 2, 2, 1. Numbers keep leading
//! zeros. An unreadable list gives `None`, never a shorter list.

/// Larger lists are considered errors.
const MOST_HOSTS: usize = 1 << 20;

/// More digits than any host's number has.
const MOST_DIGITS: usize = 20;

pub(super) fn hosts(text: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for name in split_outside_brackets(text)? {
        hosts.extend(expand(name)?);
        if hosts.len() > MOST_HOSTS {
            return None;
        }
    }
    (!hosts.is_empty()).then_some(hosts)
}

pub(super) fn tasks_by_node(text: &str) -> Option<Vec<usize>> {
    let mut tasks = Vec::new();
    for part in text.split(',') {
        let (count, nodes) = match part.split_once("(x") {
            Some((count, nodes)) => (count, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let count: usize = count.trim().parse().ok()?;
        if nodes > MOST_HOSTS - tasks.len() {
            return None;
        }
        tasks.extend(std::iter::repeat_n(count, nodes));
    }
    Some(tasks)
}

fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (offset, c) in text.char_indices() {
        match c {
            '[' if inside => return None,
            '[' => inside = true,
            ']' if !inside => return None,
            ']' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..offset]);
                start = offset + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!inside && parts.iter().all(|part| !part.trim().is_empty()))
        .then(|| parts.into_iter().map(str::trim).collect())
}

/// The last bracketed range runs fastest.
fn expand(name: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = name.split_once('[') else { return Some(vec![name.to_owned()]) };
    let (ranges, after) = rest.split_once(']')?;
    let tails = expand(after)?;
    let mut names = Vec::new();
    for range in ranges.split(',') {
        for number in numbers(range)? {
            if names.len() + tails.len() > MOST_HOSTS {
                return None;
            }
            names.extend(tails.iter().map(|tail| format!("{before}{number}{tail}")));
        }
    }
    Some(names)
}

/// `7` or `08-11`, with the width of the first number.
fn numbers(range: &str) -> Option<Vec<String>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (width, from, to) = (first.len(), first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
    let is_usable = from <= to && to - from < MOST_HOSTS && width <= MOST_DIGITS;
    is_usable.then(|| (from..=to).map(|number| format!("{number:0width$}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> String {
        hosts(text).unwrap_or_default().join(" ")
    }

    #[test]
    fn lists_are_expanded_in_order() {
        assert_eq!(found("node7"), "node7");
        assert_eq!(found("a,b"), "a b");
        assert_eq!(found("gnode[10,20,25,37]"), "gnode10 gnode20 gnode25 gnode37");
        assert_eq!(found("n[08-11],login-1"), "n08 n09 n10 n11 login-1");
        assert_eq!(found("r[1-2]n[0-1]x"), "r1n0x r1n1x r2n0x r2n1x");
        assert_eq!(found("n[099-101]"), "n099 n100 n101");
        for wrong in ["", "n[1-", "n]1", "n[a-b]", "n[3-1]", "a,,b", "n[[1]]", "n[1-99999999999]"] {
            assert_eq!(hosts(wrong), None, "{wrong}");
        }
        let most = format!("n[1-{MOST_HOSTS}]");
        assert_eq!(hosts(&format!("{most},m")), None);
        assert_eq!(hosts(&format!("n[1-{MOST_HOSTS},1-2]")), None);
        assert_eq!(hosts("n[1-1100]x[1-1100]"), None);
        assert_eq!(hosts(&format!("n[{}1-9]", "0".repeat(100_000))), None, "numbers of 100,001 digits");
    }

    #[test]
    fn tasks_are_repeated() {
        assert_eq!(tasks_by_node("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(tasks_by_node("8"), Some(vec![8]));
        for wrong in ["", "2(x", "2(x3", "x3", "2(x99999999999)", "1(x1048576),1"] {
            assert_eq!(tasks_by_node(wrong), None, "{wrong}");
        }
    }
}
