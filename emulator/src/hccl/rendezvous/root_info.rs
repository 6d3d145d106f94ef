//! Encoding of a root info: its creator and the creator's addresses.
//!
//! Layout: 16 magic bytes, version (u32), length (u32), process and number (postcard), zeros.

use crate::base::failure::{Failure, code};
use crate::hccl::tcp::wire::{ProcessAddress, VERSION};

/// Size of a root info (`HCCL_ROOT_INFO_BYTES`).
pub(crate) const BYTES: usize = 4108;
const MAGIC: &[u8; 16] = b"ascend-emulator\0";
const HEADER_BYTES: usize = 24;

/// Fails if the host has more addresses than fit.
pub(crate) fn encode(process: &ProcessAddress, root: u64) -> Result<[u8; BYTES], Failure> {
    let mut bytes = [0; BYTES];
    let content =
        postcard::to_slice(&(process, root), &mut bytes[HEADER_BYTES..]).map(|content| content.len());
    let content = content.map_err(|_| {
        let count = process.addresses.len();
        let what =
            format!("this host's {count} addresses do not fit a root info; choose with HCCL_SOCKET_IFNAME");
        Failure::new(code::HCCL_NETWORK, what)
    })?;
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
    bytes[20..24].copy_from_slice(&(content as u32).to_le_bytes());
    Ok(bytes)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<(ProcessAddress, u64), Failure> {
    let invalid = |what: String| Failure::new(code::HCCL_PARA, what);
    let foreign = || invalid("the root info was not made by HcclGetRootInfo of this emulator".into());
    let (header, content) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(foreign)?;
    if header[..16] != MAGIC[..] {
        return Err(foreign());
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if word(16) != VERSION {
        return Err(invalid(format!(
            "the root info is of version {} of the emulator's protocol, this process speaks version {VERSION}; use one \
             emulator on all ranks",
            word(16)
        )));
    }
    let content = content.get(..word(20) as usize).ok_or_else(foreign)?;
    postcard::from_bytes(content).map_err(|_| foreign())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> ProcessAddress {
        ProcessAddress {
            id: 1 << 100,
            pid: 77,
            host: "node-3".into(),
            host_id: "boot".into(),
            addresses: vec!["10.0.0.1".parse().expect("an address"), "fd00::1".parse().expect("an address")],
            port: 4242,
            secret: 99,
        }
    }

    #[test]
    fn a_root_info_says_who_made_it() {
        let bytes = encode(&process(), 5).expect("it fits");
        assert_eq!(decode(&bytes), Ok((process(), 5)));
    }

    #[test]
    fn what_is_not_a_root_info_of_this_version_is_refused() {
        let good = encode(&process(), 5).expect("it fits");
        let refused = |bytes: &[u8]| decode(bytes).expect_err("refused").message;
        assert!(refused(&[0; BYTES]).contains("was not made by HcclGetRootInfo"));
        let mut other = good;
        other[16] += 1;
        let later = format!("is of version {}", VERSION + 1);
        assert!(refused(&other).contains(&later), "{}", refused(&other));
        let mut longer = good;
        longer[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(refused(&longer).contains("was not made by"));
        let many = ProcessAddress { addresses: vec![process().addresses[1]; 400], ..process() };
        assert!(encode(&many, 1).expect_err("too many").message.contains("400 addresses"));
    }
}
