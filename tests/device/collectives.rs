//! Collectives between rank threads, against closed forms.

use std::sync::Arc;
use std::thread;

use ascend_tp::base::DType;
use ascend_tp::device::{Cann, Communicator, Device, ErrorKind, RankParts, ReduceOp, RootInfo, Tensor};

use super::{Card, cann, read_f32};

fn ranks(world: usize, body: impl Fn(&Card, &Communicator) + Sync) {
    let cann: Arc<Cann> = cann(world);
    let root = RootInfo::create(&Device::open(&cann, 0).unwrap()).unwrap();
    // Ranks could be other processes that received the bytes.
    let root = RootInfo::from_bytes(&root.to_bytes()).unwrap();
    thread::scope(|scope| {
        for rank in 0..world {
            let (cann, root, body) = (&cann, &root, &body);
            scope.spawn(move || {
                let card = Card::open(cann, rank);
                let communicator = Communicator::join(root, world, rank, &card.device).unwrap();
                assert_eq!((communicator.rank(), communicator.world()), (rank, world));
                body(&card, &communicator);
                communicator.check_peers().unwrap();
            });
        }
    });
}

fn numbers(card: &Card, rank: usize, len: usize) -> Tensor {
    card.f32(&[len], &(0..len).map(|index| (rank + 1 + index) as f32).collect::<Vec<_>>())
}

const WORLDS: [usize; 4] = [1, 2, 3, 8];

#[test]
fn all_reduce() {
    for world in WORLDS {
        ranks(world, |card, communicator| {
            let rank = communicator.rank();
            let n = world as f32;
            let send = numbers(card, rank, 5);
            let recv = card.empty(DType::F32, &[5]);
            // Over ranks r = 0..n: Σ (r + 1 + i) = n(n+1)/2 + n·i; the largest is n + i, the
            // smallest 1 + i.
            for (op, expected) in [
                (ReduceOp::Sum, (0..5).map(|i| n * (n + 1.0) / 2.0 + n * i as f32).collect::<Vec<_>>()),
                (ReduceOp::Max, (0..5).map(|i| n + i as f32).collect()),
                (ReduceOp::Min, (0..5).map(|i| 1.0 + i as f32).collect()),
                (ReduceOp::Prod, (0..5).map(|i| (0..world).map(|r| (r + 1 + i) as f32).product()).collect()),
            ] {
                communicator
                    .enqueue_all_reduce(send.slice(), recv.slice(), DType::F32, op, &card.stream)
                    .unwrap();
                card.stream.synchronize().unwrap();
                assert_eq!(read_f32(&recv), expected, "{op:?} of {world}");
            }
            communicator
                .enqueue_all_reduce(send.slice(), send.slice(), DType::F32, ReduceOp::Sum, &card.stream)
                .unwrap();
            assert_eq!(read_f32(&send)[0], n * (n + 1.0) / 2.0);
        });
    }
}

#[test]
fn all_gather_and_its_unequal_form() {
    for world in WORLDS {
        ranks(world, |card, communicator| {
            let rank = communicator.rank();
            let send = numbers(card, rank, 2);
            let recv = card.empty(DType::F32, &[2 * world]);
            communicator.enqueue_all_gather(send.slice(), recv.slice(), DType::F32, &card.stream).unwrap();
            let expected: Vec<f32> = (0..world).flat_map(|r| [(r + 1) as f32, (r + 2) as f32]).collect();
            assert_eq!(read_f32(&recv), expected);

            // Rank r contributes r + 1 elements, with a gap of one before each part.
            let counts: Vec<usize> = (1..=world).collect();
            let displacements: Vec<usize> = (0..world).map(|r| r * (r + 1) / 2 + r + 1).collect();
            let len = displacements[world - 1] + world;
            let send = numbers(card, rank, rank + 1);
            let recv = card.f32(&[len], &vec![-1.0; len]);
            let parts = RankParts { counts: &counts, displacements: &displacements };
            communicator
                .enqueue_all_gather_v(send.slice(), recv.slice(), parts, DType::F32, &card.stream)
                .unwrap();
            let mut expected = vec![-1.0; len];
            for r in 0..world {
                for i in 0..=r {
                    expected[displacements[r] + i] = (r + 1 + i) as f32;
                }
            }
            assert_eq!(read_f32(&recv), expected);
        });
    }
}

#[test]
fn reduce_scatter_and_its_unequal_form() {
    for world in WORLDS {
        ranks(world, |card, communicator| {
            let rank = communicator.rank();
            let sum = |i: usize| (world * (world + 1) / 2 + world * i) as f32;
            let send = numbers(card, rank, 3 * world);
            let recv = card.empty(DType::F32, &[3]);
            communicator
                .enqueue_reduce_scatter(send.slice(), recv.slice(), DType::F32, ReduceOp::Sum, &card.stream)
                .unwrap();
            assert_eq!(read_f32(&recv), [sum(3 * rank), sum(3 * rank + 1), sum(3 * rank + 2)]);

            let counts: Vec<usize> = (1..=world).collect();
            let displacements: Vec<usize> = (0..world).map(|r| r * (r + 1) / 2).collect();
            let send = numbers(card, rank, world * (world + 1) / 2);
            let recv = card.empty(DType::F32, &[rank + 1]);
            let parts = RankParts { counts: &counts, displacements: &displacements };
            communicator
                .enqueue_reduce_scatter_v(
                    send.slice(),
                    parts,
                    recv.slice(),
                    DType::F32,
                    ReduceOp::Sum,
                    &card.stream,
                )
                .unwrap();
            let expected: Vec<f32> = (0..=rank).map(|i| sum(displacements[rank] + i)).collect();
            assert_eq!(read_f32(&recv), expected);
        });
    }
}

#[test]
fn a_reduction_is_on_the_card_that_is_named_alone() {
    ranks(3, |card, communicator| {
        let rank = communicator.rank();
        let send = numbers(card, rank, 2);
        let recv = card.f32(&[2], &[-1.0; 2]);
        communicator
            .enqueue_reduce(send.slice(), recv.slice(), DType::F32, ReduceOp::Sum, 1, &card.stream)
            .unwrap();
        assert_eq!(read_f32(&recv), if rank == 1 { [6.0, 9.0] } else { [-1.0; 2] });
    });
}

#[test]
fn broadcast_and_barrier() {
    ranks(3, |card, communicator| {
        let tensor = numbers(card, 10 * communicator.rank(), 4);
        communicator.enqueue_broadcast(tensor.slice(), DType::F32, 2, &card.stream).unwrap();
        communicator.enqueue_barrier(&card.stream).unwrap();
        card.stream.synchronize().unwrap();
        assert_eq!(read_f32(&tensor), [21., 22., 23., 24.]);
    });
}

#[test]
fn all_to_all_and_its_unequal_form() {
    for world in WORLDS {
        ranks(world, |card, communicator| {
            let rank = communicator.rank();
            let send = card.f32(&[world], &(0..world).map(|to| (100 * rank + to) as f32).collect::<Vec<_>>());
            let recv = card.empty(DType::F32, &[world]);
            communicator.enqueue_all_to_all(send.slice(), recv.slice(), DType::F32, &card.stream).unwrap();
            let expected: Vec<f32> = (0..world).map(|from| (100 * from + rank) as f32).collect();
            assert_eq!(read_f32(&recv), expected);

            // Rank r sends `to + 1` elements to rank `to`, so rank r receives `r + 1` from each.
            let send_counts: Vec<usize> = (1..=world).collect();
            let send_starts: Vec<usize> = (0..world).map(|to| to * (to + 1) / 2).collect();
            let recv_counts = vec![rank + 1; world];
            let recv_starts: Vec<usize> = (0..world).map(|from| from * (rank + 1)).collect();
            let send = card.f32(&[world * (world + 1) / 2], &vec![rank as f32; world * (world + 1) / 2]);
            let recv = card.empty(DType::F32, &[world * (rank + 1)]);
            let send_parts = RankParts { counts: &send_counts, displacements: &send_starts };
            let recv_parts = RankParts { counts: &recv_counts, displacements: &recv_starts };
            communicator
                .enqueue_all_to_all_v(
                    send.slice(),
                    send_parts,
                    recv.slice(),
                    recv_parts,
                    DType::F32,
                    &card.stream,
                )
                .unwrap();
            let expected: Vec<f32> = (0..world).flat_map(|from| vec![from as f32; rank + 1]).collect();
            assert_eq!(read_f32(&recv), expected);
        });
    }
}

#[test]
fn send_and_receive_around_a_ring() {
    ranks(4, |card, communicator| {
        let (rank, world) = (communicator.rank(), communicator.world());
        let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
        let (send, recv) = (numbers(card, rank, 3), card.empty(DType::F32, &[3]));
        // Even ranks send first to avoid a deadlock.
        if rank % 2 == 0 {
            communicator.enqueue_send(send.slice(), DType::F32, next, &card.stream).unwrap();
            communicator.enqueue_recv(recv.slice(), DType::F32, previous, &card.stream).unwrap();
        } else {
            communicator.enqueue_recv(recv.slice(), DType::F32, previous, &card.stream).unwrap();
            communicator.enqueue_send(send.slice(), DType::F32, next, &card.stream).unwrap();
        }
        assert_eq!(read_f32(&recv)[0], (previous + 1) as f32);
    });
}

#[test]
fn one_thread_makes_and_drives_all_ranks() {
    let cann = cann(3);
    let cards: Vec<Card> = (0..3).map(|ordinal| Card::open(&cann, ordinal)).collect();
    let devices: Vec<Arc<Device>> = cards.iter().map(|card| Arc::clone(&card.device)).collect();
    let communicators = Communicator::init_all(&devices).unwrap();
    let tensors: Vec<Tensor> = cards.iter().enumerate().map(|(rank, card)| numbers(card, rank, 2)).collect();
    for ((card, communicator), tensor) in cards.iter().zip(&communicators).zip(&tensors) {
        communicator
            .enqueue_all_reduce(tensor.slice(), tensor.slice(), DType::F32, ReduceOp::Sum, &card.stream)
            .unwrap();
    }
    for tensor in &tensors {
        assert_eq!(read_f32(tensor), [6., 9.]);
    }
    assert!(!communicators[0].name().unwrap().is_empty());
    assert_eq!(communicators[0].name().unwrap(), communicators[2].name().unwrap());
}

#[test]
fn ranks_that_disagree_are_told_apart() {
    let cann = cann(2);
    let root = RootInfo::create(&Device::open(&cann, 0).unwrap()).unwrap();
    thread::scope(|scope| {
        for rank in 0..2 {
            let (cann, root) = (&cann, &root);
            scope.spawn(move || {
                let card = Card::open(cann, rank);
                let communicator = Communicator::join(root, 2, rank, &card.device).unwrap();
                let tensor = numbers(&card, rank, 4 + rank);
                let error = communicator
                    .enqueue_all_reduce(
                        tensor.slice(),
                        tensor.slice(),
                        DType::F32,
                        ReduceOp::Sum,
                        &card.stream,
                    )
                    .and_then(|()| card.stream.synchronize())
                    .unwrap_err();
                let text = error.to_string();
                assert!(text.contains('4') && text.contains('5'), "{text}");
            });
        }
    });
}

#[test]
fn a_rank_that_leaves_ends_the_wait_of_the_others() {
    let cann = cann(2);
    let root = RootInfo::create(&Device::open(&cann, 0).unwrap()).unwrap();
    thread::scope(|scope| {
        for rank in 0..2 {
            let (cann, root) = (&cann, &root);
            scope.spawn(move || {
                let card = Card::open(cann, rank);
                let communicator = Communicator::join(root, 2, rank, &card.device).unwrap();
                if rank == 1 {
                    communicator.abort().unwrap();
                    return;
                }
                let tensor = numbers(&card, rank, 4);
                let error = communicator
                    .enqueue_all_reduce(
                        tensor.slice(),
                        tensor.slice(),
                        DType::F32,
                        ReduceOp::Sum,
                        &card.stream,
                    )
                    .and_then(|()| card.stream.synchronize())
                    .unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::PeerLost | ErrorKind::Failed), "{error}");
            });
        }
    });
}
