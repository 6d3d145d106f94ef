//! Tests of exchange costs against published figures and closed forms.

use proptest::prelude::*;

use super::*;
use crate::soc::Soc;

const MIB: f64 = 1_048_576.0;

fn profile() -> Profile {
    Profile::of(Soc::Ascend910B1)
}

fn cost(exchange: Exchange, bytes: f64, cards: usize) -> CollectiveCost {
    CollectiveCost::of(
        &profile(),
        &Topology::atlas_a2(1),
        exchange,
        bytes,
        &(0..cards).collect::<Vec<usize>>(),
    )
}

fn reduced() -> f64 {
    1.0 + 1.0 / profile().coefficients.exchange.reduce_efficiency
}

/// Total rate of a card's links in the mesh, one way, in bytes per microsecond.
const MESH_RATE: f64 = 196_000.0;

fn mesh_rate() -> f64 {
    MESH_RATE * Topology::atlas_a2(1).levels[0].efficiency
}

#[test]
fn eight_cards_reach_what_was_measured() {
    // Measured: 72 GB/s (gameofdimension/limulidae). ATB assumes 86 GB/s
    // (hicann/ascend-transformer-boost, allreduce_tiling_910B.cpp).
    let large = 1024.0 * MIB;
    let gb_per_s = large / cost(Exchange::AllReduce, large, 8).duration_us / 1e3;
    assert!((65.0..=86.0).contains(&gb_per_s), "{gb_per_s}");
    // ALLREDUCE_BASE_100US (tiling_args.h): 4 Mi 16-bit elements take about 100 µs.
    let base = cost(Exchange::AllReduce, 8.0 * MIB, 8);
    assert!((base.duration_us / 100.0 - 1.0).abs() < 0.35, "{base:?}");
    assert_eq!(base.algorithm, Algorithm::Direct);
    let small = cost(Exchange::AllReduce, 16_384.0, 8);
    assert!(small.transfer_us < small.latency_us, "{small:?}");
}

#[test]
fn a_group_of_a_mesh_has_its_share_of_a_cards_links() {
    // S/g over one of seven links, twice; once at the rate of a reduction.
    for cards in 2..=8 {
        let bytes = 512.0 * MIB;
        let expected = reduced() * bytes / cards as f64 / (mesh_rate() / 7.0);
        let found = cost(Exchange::AllReduce, bytes, cards);
        assert_eq!(found.algorithm, Algorithm::Staged);
        assert!((found.transfer_us - expected).abs() < 1e-6 * expected, "{cards}: {found:?}");
    }
    assert!(cost(Exchange::AllReduce, MIB, 2).duration_us > cost(Exchange::AllReduce, MIB, 8).duration_us);
}

#[test]
fn levels_carry_their_parts_side_by_side() {
    let topology = Topology::atlas_a2(4);
    let cards: Vec<usize> = (0..32).collect();
    let bytes = 1024.0 * MIB;
    let found = CollectiveCost::of(&profile(), &topology, Exchange::AllReduce, bytes, &cards);
    // Inside: 7/8 of the bytes over seven links. Between servers: 3/4 of an eighth over the port.
    let inside = reduced() * bytes * 7.0 / 8.0 / mesh_rate();
    let between = reduced() * (bytes / 8.0) * 0.75 / (25_000.0 * topology.levels[1].efficiency);
    assert_eq!((found.algorithm, found.level), (Algorithm::Staged, 0));
    assert!(
        (found.busy_us[0] - inside).abs() < 1e-6 * inside
            && (found.busy_us[1] - between).abs() < 1e-6 * between
    );
    assert!((found.transfer_us - inside.max(between)).abs() < 1e-6 * inside, "{found:?}");
}

#[test]
fn on_a_switch_a_card_sends_all_but_its_own_part() {
    let topology = Topology::preset("atlas-pcie").unwrap();
    let bytes = 256.0 * MIB;
    let found =
        CollectiveCost::of(&profile(), &topology, Exchange::AllGather, bytes, &(0..8).collect::<Vec<_>>());
    let expected = 7.0 / 8.0 * bytes / (64_000.0 * topology.levels[0].efficiency);
    assert!((found.transfer_us - expected).abs() < 1e-6 * expected, "{found:?}");
}

/// A mesh part uses one link. A port sends the parts for all cards sequentially.
#[test]
fn a_shift_takes_one_link() {
    let cards: Vec<usize> = (0..8).collect();
    for (name, times) in [("atlas-a2", 1.0), ("atlas-pcie", 7.0)] {
        let topology = Topology::preset(name).unwrap();
        let of = |exchange, bytes| CollectiveCost::of(&profile(), &topology, exchange, bytes, &cards);
        let (shift, all) = (of(Exchange::Shift, 32.0 * MIB), of(Exchange::AllToAll, 8.0 * 32.0 * MIB));
        assert!(
            (times * shift.transfer_us / all.transfer_us - 1.0).abs() < 1e-9,
            "{name}: {shift:?} {all:?}"
        );
        assert_eq!(shift.latency_us, all.latency_us);
    }
}

#[test]
fn one_card_and_no_bytes_cost_the_call() {
    for exchange in Exchange::ALL {
        let alone = cost(exchange, MIB, 1);
        assert!(alone.transfer_us == 0.0 && alone.latency_us > 0.0, "{exchange:?}: {alone:?}");
        let empty = cost(exchange, 0.0, 8);
        assert!(empty.transfer_us == 0.0 && empty.latency_us > alone.latency_us, "{exchange:?}: {empty:?}");
    }
}

#[test]
fn larger_parts_go_over_to_copy_engines_and_are_not_faster_for_it() {
    let topology = Topology::preset("atlas-a3").unwrap();
    let of = |bytes| {
        CollectiveCost::of(&profile(), &topology, Exchange::AllGather, bytes, &(0..8).collect::<Vec<_>>())
    };
    let (below, above) = (of(8.0 * MIB), of(8.0 * MIB + 8.0));
    assert_eq!((below.algorithm, above.algorithm), (Algorithm::Direct, Algorithm::Staged));
    assert!(above.duration_us > 2.0 * below.duration_us, "{below:?} {above:?}");
}

#[test]
fn groups_that_share_links_slow_each_other_down() {
    let topology = Topology::atlas_a2(2);
    let loads = |cards: &[usize]| {
        let cost = CollectiveCost::of(&profile(), &topology, Exchange::AllReduce, 1024.0 * MIB, cards);
        cost.links(&topology, cards)
    };
    let (left, right) = (loads(&[0, 1, 2, 3]), loads(&[4, 5, 6, 7]));
    assert_eq!(slow_downs(&[&left, &right]), [1.0, 1.0]);
    let both = slow_downs(&[&left, &left]);
    assert!(both.iter().all(|factor| (1.99..=2.0).contains(factor)), "{both:?}");
    // Groups of a card share its port, but links inside a server do not.
    let (across, overlapping) = (loads(&[0, 8]), loads(&[0, 9]));
    assert!(slow_downs(&[&across, &overlapping]).iter().all(|factor| *factor > 1.99));
    assert_eq!(slow_downs(&[&across, &left]), [1.0, 1.0]);
    assert_eq!(slow_downs(&[]), Vec::<f64>::new());
}

#[test]
fn a_bus_is_shared_by_all() {
    let text = "name = 'box'\n[[levels]]\nname = 'pcie'\nfabric = 'bus'\ncards = 8\nbytes_per_us = 64000.0\nlatency_us = 0.2\n";
    let topology = Topology::parse("box", text).unwrap();
    let of =
        |cards: &[usize]| CollectiveCost::of(&profile(), &topology, Exchange::AllGather, 256.0 * MIB, cards);
    let (four, other) = (of(&[0, 1, 2, 3]), [4, 5, 6, 7]);
    let expected = 256.0 * MIB / 4.0 * 3.0 * 4.0 / (64_000.0 * topology.levels[0].efficiency);
    assert!((four.transfer_us - expected).abs() < 1e-6 * expected, "{four:?}");
    let (a, b) = (four.links(&topology, &[0, 1, 2, 3]), of(&other).links(&topology, &other));
    assert!(slow_downs(&[&a, &b]).iter().all(|factor| *factor > 1.9));
}

fn group() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::btree_set(0_usize..64, 1..=24).prop_map(|cards| cards.into_iter().collect())
}

proptest! {
    #[test]
    fn more_bytes_and_slower_links_are_never_faster(
        cards in group(), exchange in proptest::sample::select(Exchange::ALL.to_vec()),
        bytes in 0.0..1e9_f64, factor in 1.0..8.0_f64, preset in proptest::sample::select(Topology::PRESETS.to_vec()),
    ) {
        let topology = Topology::preset(preset).unwrap();
        let cards: Vec<usize> = cards.into_iter().filter(|card| *card < topology.cards()).collect();
        prop_assume!(!cards.is_empty());
        let us = |topology: &Topology, bytes| CollectiveCost::of(&profile(), topology, exchange, bytes, &cards).duration_us;
        let base = us(&topology, bytes);
        prop_assert!(base.is_finite() && base > 0.0);
        prop_assert!(us(&topology, bytes * factor) >= base);
        for level in 0..topology.levels.len() {
            let mut slower = topology.clone();
            slower.levels[level].bytes_per_us /= factor;
            prop_assert!(us(&slower, bytes) >= base);
            let mut later = topology.clone();
            later.levels[level].latency_us *= factor;
            prop_assert!(us(&later, bytes) >= base);
        }
    }

    #[test]
    fn a_reduction_for_all_holds_a_scattered_one(cards in group(), bytes in 0.0..1e9_f64) {
        let us = |exchange| CollectiveCost::of(&profile(), &Topology::atlas_a2(8), exchange, bytes, &cards).duration_us;
        prop_assert!(us(Exchange::AllReduce) >= us(Exchange::ReduceScatter) * (1.0 - 1e-12));
    }

    #[test]
    fn groups_that_lie_alike_cost_the_same(cards in group(), exchange in proptest::sample::select(Exchange::ALL.to_vec()), bytes in 0.0..1e9_f64) {
        // Mirrored cards have the same distances.
        let topology = Topology::atlas_a2(8);
        let mirrored: Vec<usize> = cards.iter().map(|card| 63 - card).collect();
        let of = |cards: &[usize]| CollectiveCost::of(&profile(), &topology, exchange, bytes, cards);
        prop_assert_eq!(of(&cards), of(&mirrored));
    }

    #[test]
    fn no_link_is_busier_than_its_exchange_is_long(cards in group(), exchange in proptest::sample::select(Exchange::ALL.to_vec()), bytes in 0.0..1e9_f64) {
        let topology = Topology::atlas_a2(8);
        let cost = CollectiveCost::of(&profile(), &topology, exchange, bytes, &cards);
        for load in cost.links(&topology, &cards) {
            prop_assert!(load.busy > 0.0 && load.busy <= 1.0, "{:?}", load);
        }
    }
}
