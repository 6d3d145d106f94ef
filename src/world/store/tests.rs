//! Tests with stores of several ranks in one process.

use std::thread;

use crossbeam_channel::bounded;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn peer(rank: usize, size: usize) -> Peer {
    Peer {
        rank,
        size,
        process_id: 1000 + rank as u32,
        host: "here".to_owned(),
        host_id: "here".to_owned(),
        local_rank: None,
        card: None,
        physical_card: None,
    }
}

fn nobody() -> Notice {
    Arc::new(|_| ())
}

fn place(name: &str) -> MeetingPlace {
    MeetingPlace::Socket { job: format!("test-{name}-{}", std::process::id()) }
}

fn all(name: &str, ranks: &[(usize, usize)], timeout: Duration) -> Vec<Result<Store, Error>> {
    let place = place(name);
    let met = ranks.iter().map(|(rank, size)| {
        let (place, peer) = (place.clone(), peer(*rank, *size));
        thread::spawn(move || Store::meet(&place, peer, timeout, &nobody()))
    });
    let threads: Vec<_> = met.collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn met(name: &str, size: usize) -> Vec<Store> {
    let ranks: Vec<(usize, usize)> = (0..size).map(|rank| (rank, size)).collect();
    all(name, &ranks, LONG).into_iter().map(Result::unwrap).collect()
}

#[test]
fn everybody_gets_what_everybody_gives() {
    let stores = met("exchange", 5);
    assert_eq!(stores[2].peers()[4].card, Some(4));
    thread::scope(|scope| {
        for store in &stores {
            scope.spawn(move || {
                for round in 0..3_u8 {
                    let given =
                        store.exchange(ExchangeSequence::Main, "numbers", vec![round; store.rank]).unwrap();
                    assert_eq!(given, (0..5).map(|rank| vec![round; rank]).collect::<Vec<_>>());
                }
            });
        }
    });
}

#[test]
fn a_thread_beside_has_exchanges_of_its_own() {
    let stores = met("aside", 2);
    thread::scope(|scope| {
        let aside = |rank: usize| {
            let store = &stores[rank];
            scope.spawn(move || store.exchange(ExchangeSequence::Aside, "files", vec![rank as u8]))
        };
        // Rank 0 waits in its second sequence; main exchanges still work.
        let first = aside(0);
        let other = scope.spawn(|| stores[1].exchange(ExchangeSequence::Main, "numbers", vec![8]));
        assert_eq!(stores[0].exchange(ExchangeSequence::Main, "numbers", vec![7]).unwrap(), [[7], [8]]);
        assert_eq!(other.join().unwrap().unwrap(), [[7], [8]]);
        let second = aside(1);
        for thread in [first, second] {
            assert_eq!(thread.join().unwrap().unwrap(), [[0], [1]]);
        }
    });
}

#[test]
fn a_tcp_port_does_as_well() {
    // The port is free; a conflict is unlikely.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = MeetingPlace::Tcp { host: "127.0.0.1".to_owned(), port };
    thread::scope(|scope| {
        for rank in 0..3 {
            let place = &place;
            scope.spawn(move || {
                let store = Store::meet(place, peer(rank, 3), LONG, &nobody()).unwrap();
                assert_eq!(
                    store.exchange(ExchangeSequence::Main, "rank", vec![rank as u8]).unwrap(),
                    [[0], [1], [2]]
                );
            });
        }
    });
}

#[test]
fn whoever_does_not_come_is_named_to_all_that_did() {
    let found = all("absent", &[(0, 4), (2, 4)], Duration::from_millis(300));
    for met in found {
        let message = met.unwrap_err().to_string();
        assert!(
            message.starts_with("ranks 1, 3 of 4 did not come to the socket of job test-absent"),
            "{message}"
        );
    }
}

#[test]
fn a_rank_0_that_does_not_come_is_named() {
    let found = all("no-root", &[(1, 2)], Duration::from_millis(100));
    let message = found.into_iter().next().unwrap().unwrap_err().to_string();
    assert!(message.starts_with("rank 0 did not answer at the socket of job test-no-root"), "{message}");
}

#[test]
fn a_stranger_that_never_answers_is_not_waited_for() {
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place =
        MeetingPlace::Tcp { host: "127.0.0.1".to_owned(), port: stranger.local_addr().unwrap().port() };
    let message =
        Store::meet(&place, peer(1, 2), Duration::from_millis(20), &nobody()).unwrap_err().to_string();
    assert!(
        message.contains("did not answer within") && message.contains("not rank 0 of this job"),
        "{message}"
    );
}

#[test]
fn a_process_of_another_version_is_refused_with_a_sentence() {
    let place = place("version");
    thread::scope(|scope| {
        let first = scope.spawn(|| Store::meet(&place, peer(0, 2), LONG, &nobody()));
        let mut other = connect::connect(&place, 1, LONG, &nobody()).unwrap();
        other.send(&StoreMessage::OtherVersion(1)).unwrap();
        let Ok(StoreMessage::Refused(told)) = other.receive(FRAME_BYTES) else { panic!("it is not refused") };
        assert!(
            told.starts_with("a process speaks version 1 of this protocol and rank 0 version "),
            "{told}"
        );
        assert_eq!(first.join().unwrap().unwrap_err().to_string(), told);
    });
}

#[test]
fn processes_that_disagree_are_refused_together() {
    for met in all("sizes", &[(0, 2), (1, 3)], LONG) {
        let message = met.unwrap_err().to_string();
        assert_eq!(message, "rank 1 (process 1001 on here) was told of 3 ranks, rank 0 of 2");
    }
    for met in all("twice", &[(0, 3), (1, 3), (1, 3)], LONG) {
        let message = met.unwrap_err().to_string();
        assert!(
            message.starts_with("two processes are rank 1: rank 1 (process 1001 on here) and rank 1"),
            "{message}"
        );
    }
}

#[test]
fn a_failure_reaches_everybody_and_ends_what_they_wait_for() {
    let stores = met("failure", 3);
    let (heard, news) = bounded(1);
    stores[1].on_failure(Box::new(move |failure| heard.send(failure.clone()).unwrap()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| stores[0].exchange(ExchangeSequence::Main, "verdict", Vec::new()));
        stores[2].fail("rank 2 (card 2), layer 3: broken");
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!((error.rank, error.text.as_str()), (2, "rank 2 (card 2), layer 3: broken"));
        assert_eq!(error.process, "rank 2 (card 2, process 1002 on here)");
    });
    assert_eq!(news.recv().unwrap().rank, 2);
    assert_eq!(stores[1].failure_within(Duration::ZERO).map(|failure| failure.rank), Some(2));
    assert_eq!(stores[2].failure_within(Duration::ZERO), None, "its own failure is no peer's");
}

/// Otherwise a process that receives both would end well while others saw only the failure.
#[test]
fn what_comes_after_a_failure_completes_no_exchange() {
    let peers: Vec<Peer> = (0..2).map(|rank| peer(rank, 2)).collect();
    let given = || StoreMessage::Given { round: 2, parts: vec![vec![0], vec![1]] };
    let failed = || StoreMessage::Failed { rank: 1, text: "interrupted by a signal".to_owned() };
    for (told, complete) in [([failed(), given()], 0), ([given(), failed()], 1)] {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut rank_0 = Socket::Unix(there);
        told.iter().for_each(|message| rank_0.send(message).unwrap());
        drop(rank_0);
        let shared = ClientShared::default();
        shared.read(Socket::Unix(here), &peers);
        assert_eq!(shared.lock().given.len(), complete);
        assert_eq!(shared.lock().failure.as_ref().map(|failure| failure.rank), Some(1));
    }
}

#[test]
fn a_connection_that_breaks_is_its_process_failure() {
    for lost in [0, 2] {
        let stores = met(&format!("lost-{lost}"), 3);
        // Simulates a killed process; with rank 0, the store ends too.
        let mut stores: Vec<Option<Store>> = stores.into_iter().map(Some).collect();
        let gone = stores[lost].take().unwrap();
        if let Some(server) = &gone.server {
            server.break_all();
        } else {
            gone.writer.lock().unwrap().0.close();
        }
        let failure = stores[1].as_ref().unwrap().failure_within(LONG).unwrap();
        assert_eq!(failure.rank, lost);
        assert!(failure.text.contains("without a message"), "{failure}");
    }
}

#[test]
fn whoever_leaves_in_order_is_no_failure() {
    let mut stores = met("leave", 3);
    drop(stores.remove(0));
    let error = stores[0].exchange(ExchangeSequence::Main, "more", Vec::new()).unwrap_err();
    assert!(error.text.contains("it has ended") || error.text.contains("without a message"), "{error}");
    assert_eq!(stores[1].failure_within(Duration::from_millis(50)), None);
}

#[test]
fn different_programs_are_named() {
    let stores = met("programs", 2);
    thread::scope(|scope| {
        let other = scope.spawn(|| stores[1].exchange(ExchangeSequence::Main, "verdict", Vec::new()));
        let one = stores[0].exchange(ExchangeSequence::Main, "plans", Vec::new()).unwrap_err();
        let two = other.join().unwrap().unwrap_err();
        assert_eq!(one, two);
        assert!(one.text.contains("is at plans") || one.text.contains("at plans"), "{one}");
    });
}

#[test]
fn a_stranger_disturbs_nobody() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = MeetingPlace::Tcp { host: "127.0.0.1".to_owned(), port };
    thread::scope(|scope| {
        let first = scope.spawn(|| Store::meet(&place, peer(0, 2), LONG, &nobody()));
        let mut stranger = loop {
            if let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
            thread::yield_now();
        };
        io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let second = Store::meet(&place, peer(1, 2), LONG, &nobody()).unwrap();
        assert_eq!(first.join().unwrap().unwrap().peers(), second.peers());
    });
}
