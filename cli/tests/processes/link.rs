//! Tests with two hosts: network namespaces with a link that goes down. They need root and `ip` of
//! iproute2; otherwise they print the reason and pass.

use std::process::{Child, Command, Stdio};

use super::{ENDLESS, alone, binary, command, finish, send_signal, stderr, stdout, wait_for_text};

/// Still running when the link is up again.
const HEALING: &str = "generate --device emulator --dtype f32 --max-new-tokens 40";

const RANKS: usize = 2;

/// Two hosts with a link and private addresses.
struct Hosts([String; 2]);

impl Hosts {
    /// Creates the hosts, or prints the reason for the failure.
    fn new(test: &str) -> Option<Self> {
        let name = |host| format!("ascend-tp-{test}-{}-{host}", std::process::id());
        let hosts = Self([0, 1].map(name));
        match hosts.link() {
            Ok(()) => Some(hosts),
            Err(reason) => {
                eprintln!("skipped, for want of two network namespaces: {reason}");
                None
            }
        }
    }

    fn link(&self) -> Result<(), String> {
        let Self([first, second]) = self;
        for host in &self.0 {
            ip(&format!("netns add {host}"))?;
        }
        ip(&format!("-n {first} link add wire type veth peer name wire netns {second}"))?;
        for (index, host) in self.0.iter().enumerate() {
            ip(&format!("-n {host} addr add 10.77.0.{}/24 dev wire", index + 1))?;
            ip(&format!("-n {host} link set lo up"))?;
            ip(&format!("-n {host} link set wire up"))?;
        }
        Ok(())
    }

    /// Starts ranks 0 and 1 on the first host, 2 and 3 on the second.
    fn start(&self, arguments: &str) -> Vec<Child> {
        let rank = |rank: usize| {
            let mut command = command("ip");
            command
                .args(["netns", "exec", &self.0[rank / RANKS], binary()])
                .args(arguments.split_whitespace())
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", (2 * RANKS).to_string())
                .env("LOCAL_RANK", (rank % RANKS).to_string())
                .env("LOCAL_WORLD_SIZE", RANKS.to_string())
                .env("MASTER_ADDR", "10.77.0.1")
                .env("MASTER_PORT", "29771")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        (0..2 * RANKS).map(rank).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            let running = Command::new("ip").args(["netns", "pids", host]).stderr(Stdio::null()).output();
            let running = running.map(|output| stdout(&output)).unwrap_or_default();
            running
                .split_whitespace()
                .filter_map(|id| id.parse().ok())
                .for_each(|id| send_signal("KILL", id));
            // The host may not exist.
            let _gone = ip(&format!("netns del {host}"));
        }
    }
}

/// Runs `ip` and returns its errors.
fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split_whitespace()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip cannot be run: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {}", stderr(&output).trim())) }
}

#[test]
fn a_link_that_goes_down_ends_all_ranks_and_is_named() {
    let Some(hosts) = Hosts::new("down") else { return };
    let mut ranks = hosts.start(ENDLESS);
    wait_for_text(&mut ranks[0]);
    // Ranks of the first host still reach each other.
    ip(&format!("-n {} link set wire down", hosts.0[1])).unwrap();
    for (rank, output) in finish(ranks).iter().enumerate() {
        let text = stderr(output);
        assert_eq!(output.status.code(), Some(3), "rank {rank}: {text}");
        // Local addresses of the second host disappeared with the link.
        let mut others = (0..2 * RANKS).filter(|other| *other != rank && (rank >= RANKS || *other >= RANKS));
        let is_named = others.any(|other| text.contains(&format!("rank {other} ")));
        assert!(is_named, "rank {rank} names nobody whom it lost: {text}");
    }
}

#[test]
fn a_link_that_is_down_for_a_second_loses_nothing() {
    let Some(hosts) = Hosts::new("heals") else { return };
    let mut ranks = hosts.start(HEALING);
    let begun = wait_for_text(&mut ranks[0]);
    let set = format!("ip -n {} link set wire", hosts.0[1]);
    let second =
        Command::new("sh").args(["-c", &format!("{set} down && sleep 1 && {set} up")]).status().unwrap();
    assert!(second.success());
    assert!(
        ranks.iter_mut().all(|rank| rank.try_wait().unwrap().is_none()),
        "the ranks had ended before the link was up"
    );
    let outputs = finish(ranks);
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", stderr(output));
    }
    assert_eq!(begun + &stdout(&outputs[0]), alone(&format!("{HEALING} --cards 4")));
}
