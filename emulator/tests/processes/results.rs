//! Several processes compute the bits of one process.

use super::script::{self, Rank};
use super::world::{SEED, World, role, say, start};
use crate::common::*;

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

#[test]
fn many_collectives_wait_in_the_queues_of_processes() {
    const TIMES: usize = 300;
    if let Some(world) = role() {
        let cards = world.cards();
        let comms = world.join(&cards).expect("all ranks come");
        let rank = |((card, comm), rank): ((_, _), &u32)| Rank { rank: *rank, card, comm };
        let ranks: Vec<Rank<'_>> = cards.into_iter().zip(comms).zip(&world.ranks).map(rank).collect();
        for found in script::queued_sums(&world.table, &ranks, TIMES) {
            say(&format!("result {found}"));
        }
        return;
    }
    let test = "results::many_collectives_wait_in_the_queues_of_processes";
    let mut processes = start(test, &[&[0], &[1, 3], &[2]], &[]);
    let first = 1 + 2 + 3 + 4_i64;
    let expected = (1..TIMES).fold(first, |sum, _| sum.wrapping_mul(4)).to_string();
    let found: Vec<String> = processes.iter_mut().flat_map(|process| process.rest("result ")).collect();
    assert_eq!(found, vec![expected; 4]);
}

/// Ranks 0, 2 and 3 of four form two sub-communicators with one id.
#[test]
fn sub_communicators_span_processes() {
    if let Some(world) = role() {
        let cards = world.cards();
        let parents = world.join(&cards).expect("all ranks come");
        for _ in 0..2 {
            let ids = [0_u32, 2, 3];
            let members =
                world.ranks.iter().zip(cards.iter().zip(&parents)).filter(|(rank, _)| ids.contains(rank));
            let members: Vec<Rank<'_>> = members
                .map(|(rank, (card, parent))| {
                    card.enter();
                    let own = ids.iter().position(|id| id == rank).expect("a member") as u32;
                    let (mut parent, mut comm) = (*parent, std::ptr::null_mut());
                    let mut config = script::default_config();
                    let mut list = ids;
                    let (ids, config) = (list.as_mut_ptr(), &raw mut *config);
                    let code = call!(
                        world.table,
                        HcclCreateSubCommConfig(&raw mut parent, 3, ids, 9, own, config, &raw mut comm)
                    );
                    hccl_ok(&world.table, code);
                    let card = Card { table: card.table, context: card.context, stream: card.stream };
                    Rank { rank: own, card, comm }
                })
                .collect();
            for line in script::run_short(&world.table, &members, 3) {
                say(&format!("result {line}"));
            }
            for member in members {
                hccl_ok(&world.table, call!(world.table, HcclCommDestroy(member.comm)));
            }
        }
        return;
    }
    let mut processes = start("results::sub_communicators_span_processes", &[&[0, 1], &[2, 3]], &[]);
    let (_emulator, table) = machine(3);
    let (cards, comms) = world(&table, 3);
    let ranks: Vec<Rank<'_>> =
        cards.into_iter().zip(comms).zip(0..).map(|((card, comm), rank)| Rank { rank, card, comm }).collect();
    let once = script::run_short(&table, &ranks, 3);
    let mut expected = [once.clone(), once].concat();
    let mut found: Vec<String> = processes.iter_mut().flat_map(|process| process.rest("result ")).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn strict_machines_meet_too() {
    if let Some(world) = role() {
        let cards = world.cards();
        let comms = world.join(&cards).expect("all ranks come");
        let card = cards.into_iter().next().expect("one card");
        let rank = Rank { rank: world.ranks[0], card, comm: comms[0] };
        for line in script::run_short(&world.table, &[rank], world.size) {
            say(&format!("result {line}"));
        }
        assert_eq!(world.emulator.reports(), []);
        return;
    }
    let mut processes = start("results::strict_machines_meet_too", &[&[0], &[1]], &[(SEED, "7")]);
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let ranks: Vec<Rank<'_>> =
        cards.into_iter().zip(comms).zip(0..).map(|((card, comm), rank)| Rank { rank, card, comm }).collect();
    let mut expected = script::run_short(&table, &ranks, 2);
    let mut found: Vec<String> = processes.iter_mut().flat_map(|process| process.rest("result ")).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// Connects ranks without a root info; `servers[r]` is the server of rank r.
fn meet_by_table(test: &str, servers: &[&str]) {
    if let Some(world) = role() {
        let card = world.cards().into_iter().next().expect("one card");
        let path = std::ffi::CString::new(std::env::var("PROCESS_TEST_TABLE").expect("set")).expect("a path");
        let mut comm = std::ptr::null_mut();
        let code = call!(world.table, HcclCommInitClusterInfo(path.as_ptr(), world.ranks[0], &raw mut comm));
        hccl_ok(&world.table, code);
        let rank = Rank { rank: world.ranks[0], card, comm };
        script::sum(&world.table, &rank, 1000).expect("all ranks call");
        say("result done");
        return;
    }
    let entry = |(rank, server): (usize, &&str)| {
        format!(r#"{{"server_id": "{server}", "device": [{{"device_id": "{rank}", "rank_id": "{rank}"}}]}}"#)
    };
    let list: Vec<String> = servers.iter().enumerate().map(entry).collect();
    let table =
        format!(r#"{{"status": "completed", "version": "1.0", "server_list": [{}]}}"#, list.join(", "));
    let path = std::env::temp_dir().join(format!("rank-table-{}-{}.json", std::process::id(), servers.len()));
    std::fs::write(&path, table).expect("a file");
    let ranks: Vec<[u32; 1]> = (0..servers.len() as u32).map(|rank| [rank]).collect();
    let layout: Vec<&[u32]> = ranks.iter().map(|ranks| &ranks[..]).collect();
    let text = path.to_str().expect("a path");
    let mut processes = start(test, &layout, &[("PROCESS_TEST_TABLE", text)]);
    let done: Vec<Option<String>> = processes.iter_mut().map(|process| process.next("result ")).collect();
    std::fs::remove_file(&path).expect("it is there");
    assert!(done.iter().all(Option::is_some), "{done:?}");
}

#[test]
fn a_rank_table_of_one_server_brings_processes_together() {
    meet_by_table("results::a_rank_table_of_one_server_brings_processes_together", &["127.0.0.1"; 3]);
}

#[test]
fn a_rank_table_of_two_servers_brings_processes_together() {
    let servers = ["127.0.0.1", "127.0.0.2"];
    meet_by_table("results::a_rank_table_of_two_servers_brings_processes_together", &servers);
}
