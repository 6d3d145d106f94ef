//! Checks of links between cards and hosts: output of `hccn_tool`, rank table, HCCL's variables.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use ascend_tp::world;
use serde_json::Value;

use super::driver::trouble;
use super::report::ReportGroup;
use super::system::{System, ToolOutcome, said, tool, variable};

const TOOL: &str = "hccn_tool";
const TABLE: &str = "RANK_TABLE_FILE";

pub(super) fn check(system: &System, has_cards: bool, rank_table: Option<&Path>) -> ReportGroup {
    let mut group = ReportGroup::new("links");
    let addresses = if has_cards {
        cards(system, &mut group)
    } else {
        group.skipped("links of cards", "emulated cards have no links");
        BTreeMap::new()
    };
    let table = rank_table.map(Path::to_owned).or_else(|| variable(TABLE).map(Into::into));
    if let Some(path) = table {
        check_table(&path, &addresses, &mut group);
    }
    interfaces(system, &mut group);
    group
}

/// Checks the links and returns the IP addresses of the cards.
fn cards(system: &System, group: &mut ReportGroup) -> BTreeMap<usize, IpAddr> {
    let (mut addresses, mut encrypted) = (BTreeMap::new(), BTreeMap::new());
    for card in system.cards() {
        let number = card.to_string();
        let ask = |what: &str| tool(TOOL, &["-i", &number, what, "-g"]);
        let link = match ask("-link") {
            ToolOutcome::Answer(text) => said(&text, "link status").unwrap_or_default(),
            told => {
                trouble(group, TOOL, &told);
                break;
            }
        };
        let subject = format!("link of card {card}");
        if link == "UP" {
            group.well(&subject, "UP");
        } else {
            let remedy = format!(
                "check the cable, the optical module (`{TOOL} -i {card} -optical -g`) and the port of the switch"
            );
            group.finding(&subject, link, "UP", remedy);
        }
        if let ToolOutcome::Answer(text) = ask("-net_health") {
            let health = said(&text, "net health status").unwrap_or_default();
            if health != "Success" {
                let remedy = format!(
                    "check address, gateway and `{TOOL} -i {card} -netdetect -g` with the network administrator"
                );
                group.finding(format!("network of card {card}"), health, "Success", remedy);
            }
        }
        if let ToolOutcome::Answer(text) = ask("-ip") {
            match said(&text, "ipaddr").and_then(|address| address.parse().ok()) {
                Some(address) => {
                    addresses.insert(card, address);
                }
                None => {
                    let remedy = format!(
                        "each card needs an address for links between hosts: `{TOOL} -i {card} -ip -s address … netmask …`"
                    );
                    group.finding(format!("address of card {card}"), "none", "an address", remedy);
                }
            }
        }
        if let ToolOutcome::Answer(text) = ask("-tls") {
            let switch = text.split("tls switch[").nth(1).and_then(|rest| rest.split(']').next());
            encrypted.extend(switch.map(|switch| (card, switch == "1")));
        }
    }
    let on: Vec<String> = encrypted.iter().filter(|(_, on)| **on).map(|(card, _)| card.to_string()).collect();
    if !on.is_empty() && on.len() < encrypted.len() {
        let remedy = format!(
            "use one setting on all cards and hosts: `{TOOL} -i N -tls -s enable 0`; otherwise HCCL fails with EI0006 after its time limit"
        );
        group.finding(
            "TLS switch",
            format!("on for card {} only", on.join(", ")),
            "equal on all cards",
            remedy,
        );
    } else if !encrypted.is_empty() {
        group.well("TLS switch", if on.is_empty() { "off for all cards" } else { "on for all cards" });
    }
    addresses
}

fn check_table(path: &Path, addresses: &BTreeMap<usize, IpAddr>, group: &mut ReportGroup) {
    let subject = format!("rank table {}", path.display());
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let remedy = format!("mount the table into the container, or correct {TABLE}");
            return group.finding(subject, error.to_string(), "a readable file", remedy);
        }
    };
    let ranks = match world::check_rank_table(&text) {
        Ok(ranks) => ranks,
        Err(problem) => {
            let remedy =
                "wait until the cluster operator completes the table, or create it again with hccl_tools";
            return group.finding(subject, problem, "a complete table of version 1.0, 1.2 or 2.0", remedy);
        }
    };
    let wrong = wrong_addresses(&text, addresses);
    if wrong.is_empty() {
        return group.well(subject, format!("{ranks} ranks"));
    }
    for (seen, expected) in wrong {
        let remedy = format!("create the table again from the output of `{TOOL} -i N -ip -g` on each host");
        group.finding(&subject, seen, expected, remedy);
    }
}

/// Returns wrong or duplicate addresses with the expected values. A server in the table is this
/// host if it contains an address of a local card.
fn wrong_addresses(text: &str, own: &BTreeMap<usize, IpAddr>) -> Vec<(String, String)> {
    let table: Value = serde_json::from_str(text).unwrap_or_default();
    let mut seen: BTreeMap<IpAddr, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for server in table["server_list"].as_array().into_iter().flatten() {
        let devices: Vec<(String, usize, &str)> = server["device"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|device| {
                let card = device["device_id"].as_str()?;
                let label =
                    format!("card {card} of server {}", server["server_id"].as_str().unwrap_or_default());
                Some((label, card.parse().ok()?, device["device_ip"].as_str()?))
            })
            .collect();
        let is_here =
            devices.iter().any(|(_, _, text)| own.values().any(|address| address.to_string() == *text));
        for (label, card, text) in devices {
            let Ok(address) = text.parse::<IpAddr>() else {
                wrong.push((format!("device_ip \"{text}\" of {label}"), "an address".to_owned()));
                continue;
            };
            if let Some(other) = seen.insert(address, label.clone()) {
                wrong.push((
                    format!("{address} of {label}, also used by {other}"),
                    "one address per card".to_owned(),
                ));
            } else if let Some(mine) = own.get(&card).filter(|mine| is_here && **mine != address) {
                wrong.push((format!("{address} of {label}"), format!("{mine}, the address of the card")));
            }
        }
    }
    wrong
}

fn interfaces(system: &System, group: &mut ReportGroup) {
    if let Some(text) = variable("HCCL_IF_IP") {
        let is_own = text.parse::<IpAddr>().is_ok_and(|address| UdpSocket::bind((address, 0)).is_ok());
        if is_own {
            group.well("HCCL_IF_IP", text);
        } else {
            let remedy = "set an address of this host that other hosts can reach, or unset the variable";
            group.finding("HCCL_IF_IP", text, "an address of this host", remedy);
        }
    }
    if let Some(text) = variable("HCCL_SOCKET_IFNAME") {
        let names = system.names("/sys/class/net");
        // `=name` is exact, `^name` excludes names, and other values list prefixes.
        let exact = text.strip_prefix('=');
        let wanted: Vec<&str> = exact.unwrap_or(&text).split(',').collect();
        let matches = |name: &String| {
            wanted
                .iter()
                .any(|wanted| if exact.is_some() { name == wanted } else { name.starts_with(wanted) })
        };
        if text.starts_with('^') || names.iter().any(matches) {
            group.well("HCCL_SOCKET_IFNAME", text);
        } else {
            let expected = format!("a prefix of one of {}", names.join(", "));
            group.finding(
                "HCCL_SOCKET_IFNAME",
                text,
                expected,
                "name an interface from `ip link`, or unset the variable",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(addresses: [&str; 3]) -> String {
        let device = |(card, address)| {
            format!(r#"{{"device_id":"{card}","device_ip":"{address}","rank_id":"{card}"}}"#)
        };
        let devices: Vec<String> = addresses.iter().enumerate().map(device).collect();
        format!(
            r#"{{"status":"completed","version":"1.0","server_count":"1","server_list":[{{"server_id":"10.0.0.1","device":[{}]}}]}}"#,
            devices.join(",")
        )
    }

    #[test]
    fn addresses_of_a_table_are_those_of_the_cards() {
        let own: BTreeMap<usize, IpAddr> =
            [(0, "10.1.0.1"), (1, "10.1.0.2")].map(|(c, a)| (c, a.parse().unwrap())).into();
        assert!(wrong_addresses(&table(["10.1.0.1", "10.1.0.2", "10.1.0.3"]), &own).is_empty());
        // Addresses of another host.
        assert!(wrong_addresses(&table(["10.2.0.1", "10.2.0.2", "10.2.0.3"]), &own).is_empty());
        let wrong = wrong_addresses(&table(["10.1.0.1", "10.1.0.9", "10.1.0.256"]), &own);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].0.contains("10.1.0.9 of card 1") && wrong[0].1.contains("10.1.0.2"), "{wrong:?}");
        assert!(wrong[1].0.contains("\"10.1.0.256\""), "{wrong:?}");
        assert_eq!(wrong_addresses(&table(["10.3.0.1", "10.3.0.1", "10.3.0.2"]), &own).len(), 1);
    }
}
