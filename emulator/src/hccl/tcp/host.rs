//! Name, identity and addresses of this host.
//!
//! HCCL's variables `HCCL_IF_IP`, `HCCL_SOCKET_IFNAME` and `HCCL_SOCKET_FAMILY` select the
//! addresses. Source: CANN environment variable reference.
//!
//! Invariant: two processes have the same host id only if they can open each other's memory (same
//! boot, network namespace and process namespace).

use std::net::IpAddr;

use crate::base::failure::{Failure, code};

pub(crate) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub(crate) fn is_one_of_several() -> bool {
    const SIZES: [&str; 5] = ["WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
    let size = |name: &&str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    SIZES.iter().filter_map(size).any(|size| size > 1)
}

/// Processes with equal host ids can open each other's memory.
pub(crate) fn id() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |kind: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{kind}"));
        link.map(|link| link.display().to_string()).unwrap_or_default()
    };
    format!("{} {} {}", boot.trim(), namespace("net"), namespace("pid"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
}

#[derive(Debug, Default)]
struct HcclVariables {
    ip: Option<String>,
    names: Option<String>,
    family: Option<String>,
}

/// Returns addresses in the order to try them.
pub(crate) fn addresses() -> Result<Vec<IpAddr>, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let wishes = HcclVariables {
        ip: variable("HCCL_IF_IP"),
        names: variable("HCCL_SOCKET_IFNAME"),
        family: variable("HCCL_SOCKET_FAMILY"),
    };
    let listed = if_addrs::get_if_addrs().map_err(|error| {
        Failure::new(
            code::HCCL_SYSCALL,
            format!("the system does not list this host's network interfaces: {error}"),
        )
    })?;
    let interfaces =
        listed.into_iter().map(|found| Interface { address: found.ip(), name: found.name }).collect();
    choose(&wishes, interfaces)
}

fn choose(wishes: &HcclVariables, mut interfaces: Vec<Interface>) -> Result<Vec<IpAddr>, Failure> {
    let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
    if let Some(text) = &wishes.ip {
        let address = text.trim().parse();
        return address.map(|address| vec![address]).map_err(|_| {
            invalid(format!(
                "HCCL_IF_IP is {text:?}; expected one IPv4 or IPv6 address of this host, like 10.10.10.1"
            ))
        });
    }
    let prefers_v6 = match wishes.family.as_deref() {
        None | Some("AF_INET") => false,
        Some("AF_INET6") => true,
        Some(other) => {
            return Err(invalid(format!("HCCL_SOCKET_FAMILY is {other:?}; expected AF_INET or AF_INET6")));
        }
    };
    // Link-local addresses need their interface.
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    interfaces.retain(|interface| is_usable(&interface.address));
    let all: Vec<String> = interfaces.iter().map(|interface| interface.name.clone()).collect();
    if let Some(rule) = &wishes.names {
        interfaces.retain(|interface| is_named(rule, &interface.name));
        if interfaces.is_empty() {
            return Err(invalid(format!(
                "HCCL_SOCKET_IFNAME is {rule:?}, but no interface of this host matches; it has {all:?}"
            )));
        }
    }
    let class = |name: &str| match name {
        "lo" => 2,
        name if name.starts_with("docker") => 1,
        _ => 0,
    };
    interfaces.sort_by_key(|interface| {
        (interface.address.is_ipv6() != prefers_v6, class(&interface.name), interface.name.clone())
    });
    Ok(interfaces.into_iter().map(|interface| interface.address).collect())
}

/// Rules of `HCCL_SOCKET_IFNAME`: `eth,enp` prefixes, `^eth` excluded prefixes, `=eth0` exact
/// names, `^=eth0` excluded names.
fn is_named(rule: &str, name: &str) -> bool {
    let (is_excluding, rule) = rule.strip_prefix('^').map_or((false, rule), |rest| (true, rest));
    let (is_exact, rule) = rule.strip_prefix('=').map_or((false, rule), |rest| (true, rest));
    let fits = |pattern: &str| if is_exact { name == pattern } else { name.starts_with(pattern) };
    rule.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()).any(fits) != is_excluding
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface { name: name.into(), address: address.parse().expect("an address") }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", "127.0.0.1"),
            interface("docker0", "172.17.0.1"),
            interface("eth1", "10.0.1.1"),
            interface("eth0", "10.0.0.1"),
            interface("eth0", "fd00::1"),
            interface("eth0", "fe80::1"),
        ]
    }

    fn chosen(wishes: &HcclVariables) -> Vec<String> {
        choose(wishes, host()).expect("addresses").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_documented_order_is_network_then_docker_then_loopback() {
        let plain = chosen(&HcclVariables::default());
        assert_eq!(plain, ["10.0.0.1", "10.0.1.1", "172.17.0.1", "127.0.0.1", "fd00::1"]);
        let v6 = chosen(&HcclVariables { family: Some("AF_INET6".into()), ..HcclVariables::default() });
        assert_eq!(v6[0], "fd00::1");
    }

    #[test]
    fn an_address_wins_over_names_and_names_follow_the_four_rules() {
        let names =
            |rule: &str| chosen(&HcclVariables { names: Some(rule.into()), ..HcclVariables::default() });
        assert_eq!(names("eth"), ["10.0.0.1", "10.0.1.1", "fd00::1"]);
        assert_eq!(names("=eth1,docker0"), ["10.0.1.1", "172.17.0.1"]);
        assert_eq!(names("^eth,lo"), ["172.17.0.1"]);
        assert_eq!(names("^=eth0,lo"), ["10.0.1.1", "172.17.0.1"]);
        let both = HcclVariables { ip: Some("10.9.9.9".into()), names: Some("eth".into()), family: None };
        assert_eq!(chosen(&both), ["10.9.9.9"]);
    }

    #[test]
    fn wishes_that_fit_nothing_are_named() {
        let refused = |wishes: HcclVariables| choose(&wishes, host()).expect_err("refused").message;
        let names = refused(HcclVariables { names: Some("ib".into()), ..HcclVariables::default() });
        assert!(names.contains("\"ib\"") && names.contains("docker0"), "{names}");
        assert!(
            refused(HcclVariables { ip: Some("host7".into()), ..HcclVariables::default() })
                .contains("HCCL_IF_IP is \"host7\"")
        );
        assert!(
            refused(HcclVariables { family: Some("AF_IB".into()), ..HcclVariables::default() })
                .contains("AF_INET6")
        );
    }
}
