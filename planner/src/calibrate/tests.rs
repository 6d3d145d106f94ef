//! Emulated cards must yield their own profile.

use std::sync::Arc;

use ascend_tp::emulator::{Config, Emulator, Mode, Numbers};
use ascend_tp_machine::Soc;
use ascend_tp_machine::profile::{Coefficients, HostProfile, MEANINGS};

use super::*;

fn other(of: &Coefficients) -> Coefficients {
    let usual: Vec<(&str, f64)> = MEANINGS.iter().map(|meaning| (meaning.name, meaning.usual)).collect();
    let host = &of.host;
    Coefficients {
        host: HostProfile {
            plan_us: 1.3 * host.plan_us,
            launch_us: 0.8 * host.launch_us,
            collective_us: 1.4 * host.collective_us,
            event_us: 0.7 * host.event_us,
            copy_us: 1.2 * host.copy_us,
            copy_bytes_per_us: 0.6 * host.copy_bytes_per_us,
            replay_us: 1.6 * host.replay_us,
            replay_node_us: 0.5,
            call_us: 1.5 * host.call_us,
            wake_us: 0.9 * host.wake_us,
        },
        ..of.set(&usual)
    }
}

fn found(own: &Profile, base: &Profile, topology: &Topology, count: usize) -> Profile {
    let emulator = Emulator::new(Config {
        soc: own.soc,
        hbm_bytes: own.hbm_usable_bytes(),
        mode: Mode::Timed { numbers: Numbers::None },
        profile: own.clone(),
        topology: topology.clone(),
        ..Config::with_cards(count)
    })
    .unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    let clock = Clock(Arc::new(move || emulator.thread_now_ns()));
    calibrate(&MeasuredCards { cann: &cann, count, topology, clock: &clock }, base).unwrap()
}

fn values(coefficients: &Coefficients) -> Vec<(&'static str, f64)> {
    let host = &coefficients.host;
    let of_host = [
        ("host.plan_us", host.plan_us),
        ("host.launch_us", host.launch_us),
        ("host.collective_us", host.collective_us),
        ("host.event_us", host.event_us),
        ("host.copy_us", host.copy_us),
        ("host.copy_bytes_per_us", host.copy_bytes_per_us),
        ("host.replay_us", host.replay_us),
        ("host.replay_node_us", host.replay_node_us),
        ("host.call_us", host.call_us),
        ("host.wake_us", host.wake_us),
    ];
    // No benchmark measures grouped products.
    let fitted = MEANINGS.iter().filter(|meaning| meaning.kind != "grouped");
    fitted.map(|meaning| (meaning.name, coefficients.get(meaning.name).unwrap())).chain(of_host).collect()
}

#[test]
fn emulated_cards_find_their_own_profile() {
    let shipped = |soc| Profile::of(soc);
    let made_up = |soc| Profile { coefficients: other(&shipped(soc).coefficients), ..shipped(soc) };
    let mut all = Vec::new();
    for (own, base, topology) in [
        (shipped(Soc::Ascend910B2), made_up(Soc::Ascend910B2), "atlas-a2"),
        (shipped(Soc::Ascend910B4), made_up(Soc::Ascend910B4), "atlas-a2"),
        (shipped(Soc::Ascend910_9362), made_up(Soc::Ascend910_9362), "atlas-a3"),
        (made_up(Soc::Ascend910B3), shipped(Soc::Ascend910B3), "atlas-a2"),
    ] {
        let topology = Topology::preset(topology).unwrap();
        let found = found(&own, &base, &topology, 8);
        assert_eq!(Profile::parse("again", &found.to_toml()).unwrap(), found);
        let pairs = values(&found.coefficients).into_iter().zip(values(&own.coefficients));
        let off = pairs.filter(|((_, found), (_, own))| (found - own).abs() > 0.02 * own);
        all.extend(off.map(|((name, found), (_, is))| format!("{}: {name} is {is}, found {found}", own.soc)));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn what_is_not_measured_stays_and_what_is_not_there_is_refused() {
    let (own, topology) = (Profile::of(Soc::Ascend910B4), Topology::preset("atlas-a2").unwrap());
    let base = Profile { coefficients: other(&own.coefficients), ..own.clone() };
    let found = found(&own, &base, &topology, 1);
    assert_eq!(found.coefficients.exchange, base.coefficients.exchange);
    assert_eq!(found.coefficients.grouped_us, base.coefficients.grouped_us);
    assert!(found.origin.contains("0 exchanges") && found.origin.contains(&own.origin), "{}", found.origin);

    let cann = Cann::new(Emulator::new(Config::with_cards(2)).unwrap().table()).unwrap();
    let cards =
        MeasuredCards { cann: &cann, count: 9, topology: &Topology::atlas_a2(1), clock: &Clock::of_host() };
    let problems = calibrate(&cards, &own).unwrap_err().to_string();
    assert!(
        problems.contains("toolkit") && problems.contains("topology") && problems.lines().count() >= 2,
        "{problems}"
    );
}
