//! A world of processes computes, bit for bit, what one process does.

use crate::common::*;
use crate::script::{self, Rank};
use crate::world::{World, role, say, start};

/// What one process with all ranks computes.
fn reference(world: u32) -> Vec<String> {
    let (_emulator, table) = machine(world as usize);
    let (cards, comms) = crate::common::world(&table, world as usize);
    let ranks: Vec<Rank<'_>> =
        cards.into_iter().zip(comms).zip(0..).map(|((card, comm), rank)| Rank { rank, card, comm }).collect();
    script::run(&table, &ranks, world)
}

fn play(world: &World) {
    let cards = world.cards();
    let comms = world.join(&cards).expect("all ranks come");
    let ranks: Vec<Rank<'_>> = cards
        .into_iter()
        .zip(comms)
        .zip(&world.ranks)
        .map(|((card, comm), rank)| Rank { rank: *rank, card, comm })
        .collect();
    for line in script::run(&world.table, &ranks, world.size) {
        say(&format!("result {line}"));
    }
    for rank in ranks {
        hccl_ok(&world.table, call!(world.table, HcclCommDestroy(rank.comm)));
    }
}

/// Runs the script in processes and in one, and compares.
fn compare(test: &str, layout: &[&[u32]], transport: &str) {
    if let Some(world) = role() {
        return play(&world);
    }
    let mut processes = start(test, layout, &[("ASCEND_EMULATOR_TRANSPORT", transport)]);
    let mut expected = reference(layout.iter().map(|ranks| ranks.len() as u32).sum());
    let mut found: Vec<String> = processes.iter_mut().flat_map(|process| process.rest("result ")).collect();
    expected.sort();
    found.sort();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    assert!(processes.iter_mut().all(|process| process.end().success()));
}

#[test]
fn two_processes_over_memory() {
    compare("results::two_processes_over_memory", &[&[0], &[1]], "auto");
}

#[test]
fn two_processes_over_tcp() {
    compare("results::two_processes_over_tcp", &[&[0], &[1]], "tcp");
}

#[test]
fn three_processes_over_memory() {
    compare("results::three_processes_over_memory", &[&[0], &[1], &[2]], "auto");
}

#[test]
fn four_ranks_in_two_processes_over_memory() {
    compare("results::four_ranks_in_two_processes_over_memory", &[&[0, 2], &[1, 3]], "auto");
}

#[test]
fn four_ranks_in_three_processes_over_tcp() {
    compare("results::four_ranks_in_three_processes_over_tcp", &[&[0, 1], &[2], &[3]], "tcp");
}
