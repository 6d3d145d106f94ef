//! `--bind`: binds a process to processors near its cards, five for each card.
//!
//! - Invariants: only allowed processors are used, and no processor for two cards. If the topology
//!   is unknown, nothing is bound and a note is printed.
//! - Not tested on a host with cards: the order of cards on the PCI bus is taken as their numbers.
//!
//! Reason: a decode step is about a thousand calls of one thread, and migration between NUMA nodes
//! makes these slower. On an 800 A2, binding reduced the time per token of an 8B model on 8 cards
//! from 11.8 to 9.9 ms (vllm-ascend #6966).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use ascend_tp::world::{ProcessGroup, World};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::failure::Failure;
use super::note;

/// Processors for each card: one for the launching thread, one for driver callbacks, the rest for
/// thread pools of libraries.
const CPUS_A_CARD: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bind {
    /// No binding; the system schedules freely.
    None,
    /// Processors near the cards of the process.
    Auto,
    /// A list of processors given by the user.
    List(Vec<usize>),
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            list => numbers(list)
                .filter(|cpus| !cpus.is_empty())
                .map(Self::List)
                .ok_or_else(|| format!("expected auto, none or processors such as 0-4,48-52, found {list}")),
        }
    }
}

/// Parses a list such as `0-4,48`. The result is sorted and has no duplicates.
fn numbers(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<usize>().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Formats numbers as [`numbers`] reads them.
fn ranges(cpus: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): (usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// Binds this process to processors near its cards: its own card in a group, or the
/// first `cards`.
///
/// Must be called before the process starts threads.
pub(super) fn apply(bind: &Bind, group: &ProcessGroup, cards: usize) -> Result<(), Failure> {
    if *bind == Bind::None {
        return Ok(());
    }
    let allowed = allowed().context("the allowed processors of this process").map_err(Failure::Run)?;
    let (cpus, what) = match bind {
        Bind::None => return Ok(()),
        Bind::List(wanted) => {
            if let Some(cpu) = wanted.iter().find(|cpu| !allowed.contains(cpu)) {
                let found = format!(
                    "--bind: processor {cpu} is not allowed for this process: expected one of {}",
                    ranges(&allowed)
                );
                return Err(Failure::Input(anyhow!(found)));
            }
            (wanted.clone(), String::new())
        }
        Bind::Auto => {
            let host = HostTopology::of(Path::new("/"));
            let all = shares(&host, &allowed);
            let world = World::from_env().map_err(|error| Failure::Input(error.into()))?;
            let mine = match group.card().filter(|_| group.size() > 1) {
                Some(card) => card..card + 1,
                None => 0..cards,
            };
            let mine: Vec<usize> = mine.map(|card| world.physical_card(card)).collect();
            let text = |card: &usize| all.get(card).map(|cpus| format!("card {card} at {}", ranges(cpus)));
            let what = mine.iter().filter_map(text).collect::<Vec<_>>().join(", ");
            let mut cpus: Vec<usize> =
                mine.iter().filter_map(|card| all.get(card)).flatten().copied().collect();
            cpus.sort_unstable();
            if cpus.is_empty() {
                note(
                    "not bound to processors: this host has no cards on its PCI bus, or fewer processors than cards",
                );
                return Ok(());
            }
            (cpus, format!(": {what}"))
        }
    };
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).map_err(|error| Failure::Run(error.into()))?;
    note(&format!("bound to processors {}{what}", ranges(&cpus)));
    Ok(())
}

fn allowed() -> rustix::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

#[derive(Debug, Default)]
struct HostTopology {
    nodes: BTreeMap<usize, Vec<usize>>,
    /// NUMA node of each card, by card number; None if the bus does not report a node.
    cards: Vec<Option<usize>>,
}

impl HostTopology {
    fn of(root: &Path) -> Self {
        let mut host = Self::default();
        for (name, path) in entries(&root.join("sys/devices/system/node")) {
            let number = name.strip_prefix("node").and_then(|number| number.parse().ok());
            let cpus = fs::read_to_string(path.join("cpulist")).ok().and_then(|text| numbers(&text));
            if let (Some(number), Some(cpus)) = (number, cpus) {
                host.nodes.insert(number, cpus);
            }
        }
        // Sorted names are sorted PCI addresses.
        for (_, path) in entries(&root.join("sys/bus/pci/devices")) {
            let read = |file: &str| {
                fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned()).unwrap_or_default()
            };
            // Huawei's processing accelerators (PCI vendor 19e5, class 12 of the PCI code and ID
            // assignment).
            if read("vendor") == "0x19e5" && read("class").starts_with("0x12") {
                host.cards.push(read("numa_node").parse().ok());
            }
        }
        host
    }
}

fn entries(folder: &Path) -> BTreeMap<String, std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    entries
        .filter_map(|entry| entry.ok())
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.path())))
        .collect()
}

/// Assigns processors to each card of a host.
///
/// Cards of one node share its allowed processors: [`CPUS_A_CARD`] each, or fewer if the node has
/// fewer. The remaining processors are shared by cards without a known node and cards of a node
/// with too few processors.
fn shares(host: &HostTopology, allowed: &[usize]) -> BTreeMap<usize, Vec<usize>> {
    let mut shares = BTreeMap::new();
    let mut free: Vec<usize> = allowed.to_vec();
    let mut far: Vec<usize> = Vec::new();
    let mut by_node: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (card, node) in host.cards.iter().enumerate() {
        by_node.entry(*node).or_default().push(card);
    }
    for (node, cards) in by_node {
        let near = node.and_then(|node| host.nodes.get(&node));
        let near: Vec<usize> =
            near.into_iter().flatten().copied().filter(|cpu| allowed.contains(cpu)).collect();
        if near.len() < cards.len() {
            far.extend(cards);
            continue;
        }
        deal(&cards, &near, &mut shares);
        free.retain(|cpu| !near.contains(cpu));
    }
    if free.len() >= far.len() {
        deal(&far, &free, &mut shares);
    }
    shares
}

/// Gives each card the same number of consecutive processors.
fn deal(cards: &[usize], cpus: &[usize], shares: &mut BTreeMap<usize, Vec<usize>>) {
    let each = CPUS_A_CARD.min(cpus.len() / cards.len().max(1));
    for (card, cpus) in cards.iter().zip(cpus.chunks(each.max(1))) {
        shares.insert(*card, cpus.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(nodes: &[&str], cards: &[Option<usize>]) -> HostTopology {
        let nodes = nodes.iter().map(|cpus| numbers(cpus).unwrap()).enumerate().collect();
        HostTopology { nodes, cards: cards.to_vec() }
    }

    fn texts(host: &HostTopology, allowed: &str) -> Vec<String> {
        let shares = shares(host, &numbers(allowed).unwrap());
        shares.iter().map(|(card, cpus)| format!("{card}: {}", ranges(cpus))).collect()
    }

    #[test]
    fn a_kunpeng_of_four_nodes_with_eight_cards() {
        let cards = [0, 0, 1, 1, 2, 2, 3, 3].map(Some);
        let found = texts(&host(&["0-47", "48-95", "96-143", "144-191"], &cards), "0-191");
        let expected = [
            "0: 0-4",
            "1: 5-9",
            "2: 48-52",
            "3: 53-57",
            "4: 96-100",
            "5: 101-105",
            "6: 144-148",
            "7: 149-153",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn two_nodes_whose_processors_alternate() {
        let cards = [Some(1), Some(0), Some(1), None];
        let found = texts(&host(&["0-31,64-95", "32-63,96-127"], &cards), "0-127");
        // The card without a node gets the processors that nodes with cards leave: none.
        assert_eq!(found, ["0: 32-36", "1: 0-4", "2: 37-41"]);
    }

    #[test]
    fn a_container_with_ten_processors() {
        let cards = [0, 0, 0, 0, 1, 1, 1, 1].map(Some);
        let found = texts(&host(&["0-63", "64-127"], &cards), "10-19");
        // Node 1 has no allowed processor, node 0 has all.
        assert_eq!(found, ["0: 10-11", "1: 12-13", "2: 14-15", "3: 16-17"]);
        assert!(texts(&host(&["0-63"], &[None; 8]), "0-3").is_empty());
        assert_eq!(texts(&host(&[], &[None; 2]), "3,5,9"), ["0: 3", "1: 5"]);
    }

    #[test]
    fn cards_and_nodes_are_read_from_the_systems_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/node/node0/cpulist", "0-3\n");
        write("sys/devices/system/node/node1/cpulist", "4-7\n");
        write("sys/devices/system/node/possible", "0-1\n");
        for (address, vendor, class, node) in [
            ("0000:c1:00.0", "0x19e5", "0x120000", "1"),
            ("0000:81:00.0", "0x19e5", "0x120000", "0"),
            ("0000:01:00.0", "0x19e5", "0x020000", "0"),
            ("0000:02:00.0", "0x10de", "0x120000", "0"),
            ("0000:c2:00.0", "0x19e5", "0x120000", "-1"),
        ] {
            for (file, text) in [("vendor", vendor), ("class", class), ("numa_node", node)] {
                write(&format!("sys/bus/pci/devices/{address}/{file}"), &format!("{text}\n"));
            }
        }
        let host = HostTopology::of(folder.path());
        assert_eq!(host.cards, [Some(0), Some(1), None]);
        assert_eq!(host.nodes, BTreeMap::from([(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])]));
    }

    #[test]
    fn words_of_the_option() {
        assert_eq!("auto".parse(), Ok(Bind::Auto));
        assert_eq!("2,0-1".parse(), Ok(Bind::List(vec![0, 1, 2])));
        for wrong in ["", "5-2", "all", "1-x", "99999"] {
            assert!(wrong.parse::<Bind>().unwrap_err().contains("0-4,48-52"), "{wrong}");
        }
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), "0-2,7,9-10");
    }
}
