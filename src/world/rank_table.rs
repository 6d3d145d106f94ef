//! Parser of HCCL's rank table file. Versions 1.0 and 1.2 list servers with devices, with numbers
//! as strings (HCCL user guide, "rank table", Atlas A2 and A3). Version 2.0 lists ranks (Atlas
//! 350).
//!
//! Invariants: ranks are 0 to n - 1, each once. No card occurs twice.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankRow {
    pub(super) rank: usize,
    pub(super) server: String,
    pub(super) card: usize,
    pub(super) address: Option<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankTable {
    pub(super) rows: Vec<RankRow>,
}

#[derive(Deserialize)]
struct File {
    status: Option<String>,
    version: Option<String>,
    server_count: Option<Value>,
    #[serde(default)]
    server_list: Vec<ServerEntry>,
    rank_count: Option<Value>,
    #[serde(default)]
    rank_list: Vec<TableRank>,
}

#[derive(Deserialize)]
struct ServerEntry {
    server_id: String,
    host_ip: Option<String>,
    #[serde(default)]
    device: Vec<DeviceEntry>,
}

#[derive(Deserialize)]
struct DeviceEntry {
    device_id: Value,
    rank_id: Value,
}

#[derive(Deserialize)]
struct TableRank {
    rank_id: Value,
    device_id: Option<Value>,
    local_id: Option<Value>,
    #[serde(default)]
    level_list: Vec<LevelEntry>,
}

#[derive(Deserialize)]
struct LevelEntry {
    net_layer: Option<Value>,
    net_instance_id: Option<String>,
}

pub(super) const MOST_BYTES: u64 = 256 << 20;

pub(super) fn read(path: &Path) -> Result<String, String> {
    let unreadable = |what: &dyn std::fmt::Display| format!("cannot be read: {what}");
    let found = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !found.is_file() {
        return Err(unreadable(&"expected a regular file, found a folder, a device or a pipe"));
    }
    if found.len() > MOST_BYTES {
        return Err(format!("is too long: expected at most {MOST_BYTES} bytes, found {}", found.len()));
    }
    fs::read_to_string(path).map_err(|error| unreadable(&error))
}

impl RankTable {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| format!("is no rank table: {error}"))?;
        if let Some(status) = file.status.as_deref().filter(|status| *status != "completed") {
            return Err(format!("is not ready: expected status \"completed\", found \"{status}\""));
        }
        let mut rows = match file.version.as_deref() {
            Some("1.0" | "1.2") => Self::servers(&file)?,
            Some("2.0") => Self::ranks(&file)?,
            other => {
                let found =
                    other.map_or_else(|| "no version".to_owned(), |version| format!("version \"{version}\""));
                return Err(format!("has {found}: expected \"1.0\", \"1.2\" or \"2.0\""));
            }
        };
        rows.sort_by_key(|row| row.rank);
        if rows.is_empty() {
            return Err("lists no rank".to_owned());
        }
        if let Some((at, row)) = rows.iter().enumerate().find(|(at, row)| row.rank != *at) {
            let what = if row.rank < at { "is there twice" } else { "has no rank before it" };
            return Err(format!("rank {} {what}: expected each of 0 to {} once", row.rank, rows.len() - 1));
        }
        let mut cards = BTreeMap::new();
        for row in &rows {
            if let Some(other) = cards.insert((&row.server, row.card), row.rank) {
                let RankRow { rank, server, card, .. } = row;
                return Err(format!("gives card {card} of server {server} to ranks {other} and {rank}"));
            }
        }
        Ok(Self { rows })
    }

    fn servers(file: &File) -> Result<Vec<RankRow>, String> {
        count("server_count", file.server_count.as_ref(), file.server_list.len(), "servers")?;
        let mut rows = Vec::new();
        for server in &file.server_list {
            let address = server.host_ip.as_deref().or(Some(server.server_id.as_str()));
            for device in &server.device {
                rows.push(RankRow {
                    rank: number("rank_id", &device.rank_id)?,
                    server: server.server_id.clone(),
                    card: number("device_id", &device.device_id)?,
                    address: address.and_then(|address| address.parse().ok()),
                });
            }
        }
        Ok(rows)
    }

    fn ranks(file: &File) -> Result<Vec<RankRow>, String> {
        count("rank_count", file.rank_count.as_ref(), file.rank_list.len(), "ranks")?;
        let row = |rank: &TableRank| {
            let innermost = rank
                .level_list
                .iter()
                .find(|level| level.net_layer.as_ref().is_some_and(|layer| number("", layer) == Ok(0)));
            let card =
                rank.device_id.as_ref().or(rank.local_id.as_ref()).ok_or("has a rank without device_id")?;
            Ok(RankRow {
                rank: number("rank_id", &rank.rank_id)?,
                server: innermost.and_then(|level| level.net_instance_id.clone()).unwrap_or_default(),
                card: number("device_id", card)?,
                address: None,
            })
        };
        file.rank_list.iter().map(row).collect()
    }

    /// Position of a rank on its server, and number of ranks there.
    pub(super) fn local(&self, rank: usize) -> Option<(usize, usize)> {
        let server = &self.rows.get(rank)?.server;
        let here = self.rows.iter().filter(|row| row.server == *server);
        Some((here.clone().position(|row| row.rank == rank)?, here.count()))
    }
}

fn number(field: &str, value: &Value) -> Result<usize, String> {
    let read = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    read.ok_or_else(|| format!("has {field} {value}: expected a whole number from 0 on"))
}

fn count(field: &str, said: Option<&Value>, found: usize, what: &str) -> Result<(), String> {
    match said.map(|said| number(field, said)).transpose()? {
        Some(said) if said != found => Err(format!("says {field} {said} and lists {found} {what}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::world) const TWO_SERVERS: &str = r#"{
        "status": "completed", "version": "1.0", "server_count": "2",
        "server_list": [
            {"server_id": "10.0.0.1", "device": [
                {"device_id": "4", "device_ip": "192.168.1.8", "rank_id": "0"},
                {"device_id": "5", "device_ip": "192.168.1.9", "rank_id": "1"}]},
            {"server_id": "node_1", "host_ip": "10.0.0.2", "device": [
                {"device_id": "0", "device_ip": "192.168.2.8", "rank_id": "2"},
                {"device_id": "1", "device_ip": "192.168.2.9", "rank_id": "3"}]}]}"#;

    const RANKS: &str = r#"{"version": "2.0", "rank_count": 2, "rank_list": [
        {"rank_id": 0, "device_id": 0, "local_id": 0, "level_list": [
            {"net_layer": 0, "net_instance_id": "az0-rack0", "net_type": "TOPO_FILE_DESC", "rank_addr_list": []}]},
        {"rank_id": 1, "device_id": 1, "local_id": 1, "level_list": [
            {"net_layer": 0, "net_instance_id": "az0-rack0"}, {"net_layer": 1, "net_instance_id": "az0"}]}]}"#;

    #[test]
    fn servers_with_devices() {
        let table = RankTable::parse(TWO_SERVERS).unwrap();
        assert_eq!(table.rows.len(), 4);
        assert_eq!((table.rows[1].card, table.rows[1].address), (5, "10.0.0.1".parse().ok()));
        assert_eq!(table.rows[3].address, "10.0.0.2".parse().ok());
        assert_eq!((table.local(1), table.local(2), table.local(4)), (Some((1, 2)), Some((0, 2)), None));
    }

    #[test]
    fn ranks_with_levels() {
        let table = RankTable::parse(RANKS).unwrap();
        assert_eq!((table.rows[1].card, table.local(1)), (1, Some((1, 2))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, expected) in [
            (
                "\"completed\"",
                "\"initializing\"",
                "is not ready: expected status \"completed\", found \"initializing\"",
            ),
            ("\"1.0\"", "\"3.0\"", "has version \"3.0\": expected"),
            ("\"server_count\": \"2\"", "\"server_count\": \"3\"", "says server_count 3 and lists 2 servers"),
            (
                "\"rank_id\": \"3\"",
                "\"rank_id\": \"2\"",
                "rank 2 is there twice: expected each of 0 to 3 once",
            ),
            ("\"rank_id\": \"3\"", "\"rank_id\": \"4\"", "rank 4 has no rank before it"),
            (
                "\"device_id\": \"5\"",
                "\"device_id\": \"4\"",
                "gives card 4 of server 10.0.0.1 to ranks 0 and 1",
            ),
            (
                "\"device_id\": \"5\"",
                "\"device_id\": \"five\"",
                "has device_id \"five\": expected a whole number",
            ),
            ("}]}]}", "}]}", "is no rank table"),
        ] {
            let error = RankTable::parse(&TWO_SERVERS.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
