//! Failures between processes: every rank ends with a message that names the cause.

use std::time::{Duration, Instant};

use ascend_tp_emulator::Fault;

use super::script::{self, Rank};
use super::world::{Process, World, role, say, start};
use crate::common::*;

/// Far above the normal duration; the tests measure from the kill.
const HANG: Duration = Duration::from_secs(20);

fn single(world: &World) -> Rank<'_> {
    let cards = world.cards();
    let comms = world.join(&cards).expect("all ranks come");
    let card = cards.into_iter().next().expect("one card");
    Rank { rank: world.ranks[0], card, comm: comms[0] }
}

fn kill(processes: &mut [Process], victim: usize) -> Vec<String> {
    let since = Instant::now();
    processes[victim].kill();
    let survivors = processes.iter_mut().enumerate().filter(|(index, _)| *index != victim);
    let texts: Vec<String> =
        survivors.map(|(_, process)| process.next("failed ").expect("a failure")).collect();
    assert!(since.elapsed() < HANG, "{:?}", since.elapsed());
    let dead = format!("rank {victim} (process {} on host ", processes[victim].id());
    for text in &texts {
        assert!(text.contains(&dead) && text.contains("died"), "{text}");
    }
    texts
}

#[test]
fn a_process_that_dies_before_its_call_is_named() {
    if let Some(world) = role() {
        let rank = single(&world);
        if rank.rank == 1 {
            world.pause("ready");
            return;
        }
        let sum = script::start_sum(&world.table, &rank, 1000).map(|()| say("called"));
        let outcome = sum.and_then(|()| script::end_sum(&rank));
        say(&format!("failed {}", outcome.expect_err("rank 1 never calls")));
        return;
    }
    let test = "failures::a_process_that_dies_before_its_call_is_named";
    let mut processes = start(test, &[&[0], &[1], &[2]], &[]);
    for (process, mark) in processes.iter_mut().zip(["called", "ready", "called"]) {
        process.next(mark).expect("all ranks have come");
    }
    for text in kill(&mut processes, 1) {
        assert!(text.contains("collective 0: rank 1"), "{text}");
    }
}

/// The ranks of a process join sequentially. A remote rank with its communicator knows that all
/// have joined.
#[test]
fn a_process_that_ends_with_its_communicator_leaves_no_rank_behind() {
    if let Some(world) = role() {
        let joined = world.join(&world.cards());
        say(&joined.map_or_else(|text| format!("failed {text}"), |_| "joined".to_owned()));
        return;
    }
    let test = "failures::a_process_that_ends_with_its_communicator_leaves_no_rank_behind";
    for _ in 0..6 {
        let others: Vec<u32> = (1..24).collect();
        let mut processes = start(test, &[&[0], &others], &[]);
        for process in &mut processes {
            assert_eq!(process.rest("failed "), Vec::<String>::new());
        }
    }
}

#[test]
fn a_process_that_dies_after_a_collective_fails_the_next_call() {
    if let Some(world) = role() {
        let rank = single(&world);
        script::sum(&world.table, &rank, 1000).expect("all ranks call");
        world.pause("done");
        // The time of detection is undefined.
        let text =
            (0..).find_map(|_| script::sum(&world.table, &rank, 1000).err()).expect("the peer is dead");
        say(&format!("failed {text}"));
        return;
    }
    let test = "failures::a_process_that_dies_after_a_collective_fails_the_next_call";
    let mut processes = start(test, &[&[0], &[1]], &[]);
    for process in &mut processes {
        process.next("done").expect("the first sum");
    }
    processes[1].resume();
    kill(&mut processes, 0);
}

fn kill_amid(test: &str, transport: &str) {
    if let Some(world) = role() {
        let rank = single(&world);
        let text = script::until_it_fails(&world.table, &rank, world.size, || say("step"));
        say(&format!("failed {text}"));
        return;
    }
    for (victim, steps) in [(2, 3), (0, 16), (1, 29)] {
        let mut processes = start(test, &[&[0], &[1], &[2]], &[("ASCEND_EMULATOR_TRANSPORT", transport)]);
        for _ in 0..steps {
            processes[victim].next("step").expect("collectives go on");
        }
        kill(&mut processes, victim);
    }
}

#[test]
fn a_process_that_dies_amid_collectives_over_memory_is_named() {
    kill_amid("failures::a_process_that_dies_amid_collectives_over_memory_is_named", "auto");
}

#[test]
fn a_process_that_dies_amid_collectives_over_tcp_is_named() {
    kill_amid("failures::a_process_that_dies_amid_collectives_over_tcp_is_named", "tcp");
}

#[test]
fn ranks_that_do_not_come_are_named_to_all_others() {
    if let Some(world) = role() {
        let cards = world.cards();
        say(&format!("failed {}", world.join(&cards).expect_err("rank 1 does not come")));
        return;
    }
    let test = "failures::ranks_that_do_not_come_are_named_to_all_others";
    let environment = [("HCCL_CONNECT_TIMEOUT", "1")];
    let mut first = Process::start(test, &[0], 3, None, &environment);
    let root = first.next("root ").expect("a root info");
    let mut last = Process::start(test, &[2], 3, Some(&root), &environment);
    let texts = [first.next("failed ").expect("a failure"), last.next("failed ").expect("a failure")];
    for text in texts {
        assert!(text.contains("HCCL_CONNECT_TIMEOUT") && text.contains("have not come"), "{text}");
        assert!(text.contains("ranks [1] of 3") || text.contains("ranks [1, 2] of 3"), "{text}");
    }
}

#[test]
fn ranks_that_disagree_about_the_world_are_both_named() {
    if let Some(world) = role() {
        let cards = world.cards();
        say(&format!("failed {}", world.join(&cards).expect_err("the sizes differ")));
        return;
    }
    let test = "failures::ranks_that_disagree_about_the_world_are_both_named";
    let mut first = Process::start(test, &[0], 2, None, &[]);
    let root = first.next("root ").expect("a root info");
    let mut second = Process::start(test, &[1], 3, Some(&root), &[]);
    for text in [first.next("failed ").expect("a failure"), second.next("failed ").expect("a failure")] {
        let has = |rank: u32, process: &Process, size: u32| {
            text.contains(&format!("rank {rank} (process {} on host", process.id()))
                && text.contains(&format!("says {size}"))
        };
        assert!(has(0, &first, 2) && has(1, &second, 3), "{text}");
    }
}

#[test]
fn calls_that_disagree_are_named_in_every_process() {
    if let Some(world) = role() {
        let rank = single(&world);
        script::sum(&world.table, &rank, 1000).expect("all ranks ask for the same");
        let count = 1000 + rank.rank as usize / 2;
        say(&format!(
            "failed {}",
            script::sum(&world.table, &rank, count).expect_err("rank 2 asks for more")
        ));
        return;
    }
    let test = "failures::calls_that_disagree_are_named_in_every_process";
    let mut processes = start(test, &[&[0], &[1], &[2]], &[]);
    for process in &mut processes {
        let text = process.next("failed ").expect("a failure");
        assert!(
            text.contains("ranks disagree") && text.contains("rank 2 called HcclAllReduce(count 1001"),
            "{text}"
        );
    }
}

#[test]
fn a_rank_that_leaves_in_good_order_is_no_death() {
    if let Some(world) = role() {
        let rank = single(&world);
        script::sum(&world.table, &rank, 100).expect("all ranks call");
        if rank.rank == 1 {
            hccl_ok(&world.table, call!(world.table, HcclCommDestroy(rank.comm)));
            return;
        }
        let text = (0..).find_map(|_| script::sum(&world.table, &rank, 100).err()).expect("rank 1 has left");
        say(&format!("failed {text}"));
        return;
    }
    let test = "failures::a_rank_that_leaves_in_good_order_is_no_death";
    let mut processes = start(test, &[&[0], &[1]], &[]);
    let text = processes[0].next("failed ").expect("a failure");
    assert!(text.contains("rank 1 has left"), "{text}");
    assert!(!text.contains("died"), "{text}");
}

#[test]
fn a_rank_that_never_calls_is_named_when_the_time_is_over() {
    if let Some(world) = role() {
        let rank = single(&world);
        script::sum(&world.table, &rank, 100).expect("all ranks call");
        script::sum(&world.table, &rank, 100).expect("all ranks call");
        if rank.rank == 1 {
            world.pause("waits");
            return;
        }
        say(&format!("failed {}", script::sum(&world.table, &rank, 100).expect_err("rank 1 does not call")));
        return;
    }
    let test = "failures::a_rank_that_never_calls_is_named_when_the_time_is_over";
    let mut processes = start(test, &[&[0], &[1], &[2]], &[("HCCL_EXEC_TIMEOUT", "5")]);
    for index in [0, 2] {
        let text = processes[index].next("failed ").expect("a failure");
        assert!(text.contains("collective 2: ") && text.contains("HCCL_EXEC_TIMEOUT"), "{text}");
        assert!(text.contains("ranks [1] have not made their call"), "{text}");
    }
    processes[1].resume();
}

#[test]
fn a_fault_of_one_process_strikes_in_all() {
    if let Some(world) = role() {
        let link = Fault::LinkDown { at: 5, cards: [0, 2] };
        let fault = (world.ranks == [1]).then(|| world.emulator.inject(link).expect("possible"));
        let rank = single(&world);
        for _ in 0..3 {
            script::sum(&world.table, &rank, 100).expect("all ranks call");
        }
        let text = (0..).find_map(|_| script::sum(&world.table, &rank, 100).err()).expect("the link is down");
        say(&format!("failed {text}"));
        assert!(fault.is_none_or(|fault| fault.struck() > 0));
        return;
    }
    let test = "failures::a_fault_of_one_process_strikes_in_all";
    for process in &mut start(test, &[&[0], &[1], &[2]], &[]) {
        let text = process.next("failed ").expect("a failure");
        let link = "collective 4: the link between rank 0 (card 0) and rank 2 (card 2) is down";
        assert!(text.contains(link), "{text}");
    }
}

#[test]
fn a_fault_on_the_way_of_data_is_laid_before_there_is_a_communicator() {
    if let Some(world) = role() {
        let rank = single(&world);
        let refused = world.emulator.inject(Fault::LinkDown { at: 1, cards: [0, 1] }).expect_err("too late");
        say(&format!("refused {refused}"));
        let other = world.emulator.inject(Fault::OutOfMemory { at: 1000, card: None }).expect("possible");
        script::sum(&world.table, &rank, 100).expect("all ranks call");
        drop(other);
        return;
    }
    let test = "failures::a_fault_on_the_way_of_data_is_laid_before_there_is_a_communicator";
    for process in &mut start(test, &[&[0], &[1]], &[]) {
        let text = process.next("refused ").expect("a refusal");
        assert!(text.contains("inject it before HcclCommInitRootInfo"), "{text}");
        assert!(process.end().success());
    }
}
