//! Rank tables: JSON files that describe all ranks, instead of a root info.
//!
//! Versions 1.0, 1.2 and 2.0 (HCCL user guide, cluster information by rank table).
//!
//! Invariants:
//! - Ranks are 0 to n - 1, without duplicates.
//! - A device of a server appears once.
//! - An inconsistent table is refused with the location in the file.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use crate::base::failure::{Failure, code};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankTableFile {
    pub(crate) ranks: Vec<RankEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankEntry {
    pub(crate) server: String,
    pub(crate) device: u32,
    pub(crate) host: Option<IpAddr>,
}

fn invalid(what: impl Into<String>) -> Failure {
    Failure::new(code::HCCL_PARA, format!("rank table: {}", what.into()))
}

impl RankTableFile {
    /// Parses a table.
    ///
    /// # Errors
    /// The text is not JSON, has an unknown version, is incomplete or inconsistent.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let table: Value =
            serde_json::from_str(text).map_err(|error| invalid(format!("not JSON: {error}")))?;
        let version = table.get("version").and_then(Value::as_str).unwrap_or_default();
        let found = match version {
            "1.0" | "1.2" => servers(&table)?,
            "2.0" => list(&table, "rank_list", "the table")?
                .iter()
                .enumerate()
                .map(|(index, rank)| ranked(index, rank))
                .collect::<Result<_, _>>()?,
            other => {
                return Err(invalid(format!("version is {other:?}; expected \"1.0\", \"1.2\" or \"2.0\"")));
            }
        };
        Self::checked(found)
    }

    fn checked(found: Vec<(u32, RankEntry)>) -> Result<Self, Failure> {
        let world = found.len();
        let mut ranks: Vec<Option<RankEntry>> = vec![None; world];
        let mut devices = BTreeSet::new();
        for (rank, entry) in found {
            if !devices.insert((entry.server.clone(), entry.device)) {
                return Err(invalid(format!(
                    "device {} of server {} is listed twice",
                    entry.device, entry.server
                )));
            }
            match ranks.get_mut(rank as usize) {
                None => {
                    return Err(invalid(format!(
                        "rank_id {rank} in a table of {world}; ranks are 0 to {world} - 1"
                    )));
                }
                Some(Some(_)) => return Err(invalid(format!("rank_id {rank} is listed twice"))),
                Some(place) => *place = Some(entry),
            }
        }
        if world == 0 {
            return Err(invalid("it lists no ranks"));
        }
        Ok(Self { ranks: ranks.into_iter().flatten().collect() })
    }

    pub(crate) fn is_one_server(&self) -> bool {
        self.ranks.iter().all(|entry| entry.server == self.ranks[0].server)
    }
}

fn servers(table: &Value) -> Result<Vec<(u32, RankEntry)>, Failure> {
    let status = table.get("status").and_then(Value::as_str);
    if status != Some("completed") {
        return Err(invalid(format!("status is {}; expected \"completed\"", status.unwrap_or("missing"))));
    }
    let servers = list(table, "server_list", "the table")?;
    if let Some(count) = table.get("server_count") {
        let count = number(count, "server_count")?;
        if count as usize != servers.len() {
            return Err(invalid(format!(
                "server_count is {count}, but server_list has {} servers",
                servers.len()
            )));
        }
    }
    let mut ranks = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let place = format!("server_list[{index}]");
        let id = server.get("server_id").and_then(Value::as_str);
        let id = id.ok_or_else(|| invalid(format!("{place} has no server_id")))?;
        let host = server.get("host_ip").and_then(Value::as_str).unwrap_or(id).parse().ok();
        for (index, device) in list(server, "device", &place)?.iter().enumerate() {
            let place = format!("{place}.device[{index}]");
            let entry = RankEntry { server: id.into(), device: field(device, "device_id", &place)?, host };
            ranks.push((field(device, "rank_id", &place)?, entry));
        }
    }
    Ok(ranks)
}

/// The server in version 2.0 is the network instance of the innermost layer.
fn ranked(index: usize, rank: &Value) -> Result<(u32, RankEntry), Failure> {
    let place = format!("rank_list[{index}]");
    let layers = rank.get("level_list").and_then(Value::as_array);
    let inner =
        layers.into_iter().flatten().find(|layer| layer.get("net_layer").and_then(Value::as_u64) == Some(0));
    let server =
        inner.and_then(|layer| layer.get("net_instance_id")).and_then(Value::as_str).unwrap_or_default();
    let entry = RankEntry { server: server.into(), device: field(rank, "device_id", &place)?, host: None };
    Ok((field(rank, "rank_id", &place)?, entry))
}

fn list<'a>(of: &'a Value, name: &str, place: &str) -> Result<&'a Vec<Value>, Failure> {
    let found = of.get(name).and_then(Value::as_array);
    found.ok_or_else(|| invalid(format!("{place} has no list {name}")))
}

fn field(of: &Value, name: &str, place: &str) -> Result<u32, Failure> {
    let found = of.get(name).ok_or_else(|| invalid(format!("{place} has no {name}")))?;
    number(found, &format!("{place}.{name}"))
}

/// Version 1.0 writes numbers as strings, version 2.0 as JSON numbers.
fn number(value: &Value, place: &str) -> Result<u32, Failure> {
    let found = match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    found.ok_or_else(|| invalid(format!("{place} is {value}; expected a whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &str, device: u32, host: Option<&str>) -> RankEntry {
        RankEntry { server: server.into(), device, host: host.map(|host| host.parse().expect("an address")) }
    }

    const TWO: &str = r#"{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [
        {"server_id": "10.0.0.10", "device": [{"device_id": "1", "device_ip": "192.1.1.8", "rank_id": "0"}]},
        {"server_id": "node-b", "host_ip": "10.0.0.11", "device": [{"device_id": "0", "rank_id": "1"}]}]}"#;

    #[test]
    fn both_versions_are_read() {
        let table = RankTableFile::parse(TWO).expect("a table");
        let expected = [entry("10.0.0.10", 1, Some("10.0.0.10")), entry("node-b", 0, Some("10.0.0.11"))];
        assert_eq!(table.ranks, expected);
        assert!(!table.is_one_server());
        let second = r#"{"version": "2.0", "rank_count": 2, "rank_list": [
            {"rank_id": 1, "device_id": 3, "local_id": 3, "level_list": [{"net_layer": 0, "net_instance_id": "az0"}]},
            {"rank_id": 0, "device_id": 2, "local_id": 2, "level_list": [{"net_layer": 0, "net_instance_id": "az0"}]}]}"#;
        let table = RankTableFile::parse(second).expect("a table");
        assert_eq!(table.ranks, [entry("az0", 2, None), entry("az0", 3, None)]);
        assert!(table.is_one_server());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let refused = |text: &str| RankTableFile::parse(text).expect_err("refused").message;
        assert!(refused("{").starts_with("rank table: not JSON"));
        assert!(refused(&TWO.replace("\"1.0\"", "\"3.0\"")).contains("version is \"3.0\""));
        assert!(refused(&TWO.replace("completed", "initializing")).contains("status is initializing"));
        assert!(
            refused(&TWO.replace("\"server_count\": \"2\"", "\"server_count\": \"3\""))
                .contains("server_count is 3")
        );
        assert!(
            refused(&TWO.replace("\"rank_id\": \"1\"", "\"rank_id\": \"0\""))
                .contains("rank_id 0 is listed twice")
        );
        assert!(
            refused(&TWO.replace("\"rank_id\": \"1\"", "\"rank_id\": \"2\""))
                .contains("ranks are 0 to 2 - 1")
        );
        let text = refused(&TWO.replace("\"device_id\": \"0\"", "\"device_id\": \"x\""));
        assert!(text.contains("server_list[1].device[0].device_id is \"x\""), "{text}");
    }
}
