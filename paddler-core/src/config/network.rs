//! Which addresses does `10.0.0.0/8` stand for?
//!
//! An address alone stands for itself; with a prefix length, for all that begin with as many equal bits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use super::value::quoted;

/// An address, or all addresses of a network.
///
/// ```
/// use paddler_core::config::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse()?) && !network.contains("11.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Network {
    address: IpAddr,
    /// How many bits at the front are its own: at most 32, or 128.
    prefix: u8,
}

/// Why a text is no network, and how that is mended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidNetwork {
    pub(super) problem: String,
    pub(super) mend: String,
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.mend)
    }
}

impl std::error::Error for InvalidNetwork {}

impl Network {
    /// Whether the address is one of them. An IPv4 address that is written as IPv6 (`::ffff:10.0.0.1`) counts as what it is,
    /// since a socket for both families says it so.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let differ = u32::from(ours) ^ u32::from(other);
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let differ = u128::from(ours) ^ u128::from(other);
                differ.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }

    /// The first of its addresses.
    fn first(address: IpAddr, prefix: u8) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Ipv4Addr::from(u32::from(address) & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                std::net::Ipv6Addr::from(u128::from(address) & mask).into()
            }
        }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Self { address, prefix }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = |problem: String, mend: &str| InvalidNetwork {
            problem,
            mend: mend.to_owned(),
        };
        let form = "write an address (10.0.0.3, \"::1\") or a network (10.0.0.0/8); names are not looked up";
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| {
            invalid(
                format!("{} is neither an address nor a network", quoted(text)),
                form,
            )
        })?;
        if address.to_canonical() != address {
            let mend = format!("write {}", address.to_canonical());
            return Err(invalid(format!("{address} is an IPv4 address in IPv6"), &mend));
        }
        let whole = Self::from(address);
        let Some(prefix) = prefix else { return Ok(whole) };
        let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix
            .parse::<u8>()
            .ok()
            .filter(|bits| digits && *bits <= whole.prefix);
        let Some(prefix) = prefix else {
            let problem = format!("{} has no prefix length of 0 to {}", quoted(text), whole.prefix);
            return Err(invalid(problem, form));
        };
        let first = Self::first(address, prefix);
        if first != address {
            let problem = format!("{text} has bits beyond its prefix");
            let mend = format!("write {first}/{prefix} for the network, or {address} for the one address");
            return Err(invalid(problem, &mend));
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, prefix } = self;
        if *self == Self::from(*address) {
            write!(f, "{address}")
        } else {
            write!(f, "{address}/{prefix}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn contains(text: &str, address: &str) -> bool {
        network(text).contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_what_begins_like_it() {
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.0.0.3", "10.0.0.3") && !contains("10.0.0.3", "10.0.0.2"));
        assert!(contains("0.0.0.0/0", "255.1.2.3") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::1", "::1") && !contains("::1", "127.0.0.1"));
        assert!(contains("fd00::/8", "fdff::7") && !contains("fd00::/8", "fe80::7"));
        assert!(contains("::/0", "fe80::7") && !contains("::/0", "1.2.3.4"));
        assert!(contains("192.168.1.128/25", "192.168.1.200"));
        assert!(!contains("192.168.1.128/25", "192.168.1.127"));
    }

    #[test]
    fn ipv4_in_ipv6_is_ipv4() {
        assert!(contains("10.0.0.0/8", "::ffff:10.0.0.1"));
        assert!(!contains("::/0", "::ffff:10.0.0.1"));
    }

    #[test]
    fn what_is_no_network_is_said_with_its_mend() {
        for (text, said) in [
            ("localhost", "neither an address nor a network"),
            ("", "neither an address nor a network"),
            ("10.0.0.0/33", "no prefix length of 0 to 32"),
            ("::/129", "no prefix length of 0 to 128"),
            ("10.0.0.0/", "no prefix length"),
            ("10.0.0.0/+8", "no prefix length"),
            ("10.0.0.0/8/8", "no prefix length"),
            ("10.0.0.1/8", "write 10.0.0.0/8 for the network"),
            ("::ffff:10.0.0.1", "write 10.0.0.1"),
            ("10.0.0.1:80", "neither an address nor a network"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_network_that_is_shown_as_it_reads_or_a_fault(text in "[0-9a-f:./]{0,24}") {
            if let Ok(network) = text.parse::<Network>() {
                prop_assert_eq!(network.to_string().parse(), Ok(network));
                prop_assert!(network.contains(network.address));
            }
        }
    }
}
