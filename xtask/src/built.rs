//! Executables in the output of `cargo build --message-format=json-render-diagnostics`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) is_test: bool,
    pub(crate) path: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Built {
    pub(crate) fn all(messages: &[u8]) -> Result<Vec<Self>> {
        String::from_utf8_lossy(messages).lines().filter_map(|line| Self::of(line).transpose()).collect()
    }

    fn of(line: &str) -> Result<Option<Self>> {
        let message: serde_json::Value =
            serde_json::from_str(line).context("cargo's messages are not JSON")?;
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let Some(path) = text(&message["executable"]) else { return Ok(None) };
        let (name, kind) = (text(&message["target"]["name"]), text(&message["target"]["kind"][0]));
        let (name, kind) = name.zip(kind).context("a message of cargo has no target")?;
        let manifest = text(&message["manifest_path"]).context("a message of cargo has no manifest")?;
        let folder = Path::new(&manifest).parent().unwrap_or(Path::new("")).into();
        Ok(Some(Self { name, kind, is_test: message["profile"]["test"] == true, path: path.into(), folder }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_run_is_taken_from_cargo() {
        let line = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"abi"},"profile":{"test":true},"executable":"/t/abi","manifest_path":"/w/sys/Cargo.toml"}"#;
        let built = Built::of(line).unwrap().unwrap();
        assert_eq!((built.name.as_str(), built.kind.as_str(), built.is_test), ("abi", "test", true));
        assert_eq!(built.folder, Path::new("/w/sys"));
        assert!(Built::of(r#"{"reason":"build-finished","success":true}"#).unwrap().is_none());
        assert!(Built::of("warning").is_err());
    }
}
