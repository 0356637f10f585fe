//! Which addresses a granted origin may resolve to.
//!
//! Public ones, and those that its grant names. IPv6 is an allow-list (2000::/3) minus what in it
//! is special, so that an embedding of IPv4 (mapped, compatible, NAT64, 6to4, Teredo) that this
//! table does not know is refused too; IPv4 is the special-purpose registry of IANA (RFC 6890) plus
//! the clouds' metadata addresses that are not in it.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

const REFUSED_V4: &[(Ipv4Net, &str)] = &[
    (v4(0, 0, 0, 0, 8), "an unspecified address"),
    (v4(10, 0, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 0, 10), "a carrier's private address"),
    (v4(127, 0, 0, 0, 8), "a loopback address"),
    (v4(168, 63, 129, 16, 32), "a metadata address"),
    (v4(169, 254, 169, 254, 32), "a metadata address"),
    (v4(169, 254, 0, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 0, 12), "a private address"),
    (v4(192, 0, 0, 0, 24), "a special-purpose address"),
    (v4(192, 0, 2, 0, 24), "a documentation address"),
    (v4(192, 88, 99, 0, 24), "a relay address"),
    (v4(192, 168, 0, 0, 16), "a private address"),
    (v4(198, 18, 0, 0, 15), "a benchmarking address"),
    (v4(198, 51, 100, 0, 24), "a documentation address"),
    (v4(203, 0, 113, 0, 24), "a documentation address"),
    (v4(224, 0, 0, 0, 4), "a multicast address"),
    (v4(240, 0, 0, 0, 4), "a reserved address"),
];

/// For the message; every address outside [`GLOBAL_V6`] is refused anyway.
const NAMED_V6: &[(Ipv6Net, &str)] = &[
    (
        v6(0, 0, 0, 96),
        "a loopback, unspecified or IPv4-compatible address",
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
        "an IPv4-mapped address",
    ),
    (v6(0x64, 0xff9b, 0, 32), "a NAT64 address"),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128),
        "a metadata address",
    ),
    (v6(0xfc00, 0, 0, 7), "a unique-local address"),
    (v6(0xfe80, 0, 0, 10), "a link-local address"),
    (v6(0xff00, 0, 0, 8), "a multicast address"),
];

const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

const REFUSED_GLOBAL_V6: &[(Ipv6Net, &str)] = &[
    (v6(0x2001, 0, 0, 23), "a special-purpose address"),
    (v6(0x2001, 0xdb8, 0, 32), "a documentation address"),
    (v6(0x2002, 0, 0, 16), "a 6to4 address"),
    (v6(0x3fff, 0, 0, 20), "a documentation address"),
];

/// Why an address is refused unless a grant names it.
fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => first(REFUSED_V4, |net| net.contains(&address)),
        IpAddr::V6(address) if GLOBAL_V6.contains(&address) => {
            first(REFUSED_GLOBAL_V6, |net| net.contains(&address))
        }
        IpAddr::V6(address) => {
            Some(first(NAMED_V6, |net| net.contains(&address)).unwrap_or("not a public address"))
        }
    }
}

fn first<N>(table: &[(N, &'static str)], contains: impl Fn(&N) -> bool) -> Option<&'static str> {
    table
        .iter()
        .find(|(net, _)| contains(net))
        .map(|(_, why)| *why)
}

/// The addresses of one grant.
#[derive(Debug, Clone, Default)]
pub(super) struct AddressPolicy {
    named: Vec<IpNet>,
}

impl AddressPolicy {
    /// Reads addresses and networks as a grant names them.
    pub(super) fn parse(named: &[String]) -> Result<Self, String> {
        let parse = |text: &String| {
            let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
            let net = text.parse::<IpNet>().ok().or_else(address);
            net.ok_or_else(|| {
                format!("{text:?} is neither an address nor a network such as 10.0.0.0/8")
            })
        };
        Ok(Self {
            named: named.iter().map(parse).collect::<Result<_, _>>()?,
        })
    }

    /// Also allows one address: an origin that is an address names it.
    pub(super) fn name(&mut self, address: IpAddr) {
        self.named.push(address.into());
    }

    /// Whether a connection may be made. `Err`: what kind of address it is.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        match refusal(address) {
            Some(why) if !self.named.iter().any(|net| net.contains(&address)) => Err(why),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(named: &[&str]) -> AddressPolicy {
        AddressPolicy::parse(
            &named
                .iter()
                .map(|net| (*net).to_owned())
                .collect::<Vec<_>>(),
        )
        .unwrap()
    }

    #[test]
    fn special_addresses_are_refused() {
        let refused = "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 127.0.0.1 127.255.0.9 \
            168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 \
            192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 \
            255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:169.254.169.254 \
            ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::8.8.8.8 64:ff9b:1::1 100::1 2001::1 2001:10::1 2001:db8::1 \
            2002:7f00:1::1 3fff::1 5f00::1 4000::1 fc00::1 fd00:ec2::254 fd12:3456::1 fe80::1 febf::1 fec0::1 \
            ff02::1 ff0e::1";
        for address in refused.split_whitespace() {
            assert!(
                policy(&[]).check(address.parse().unwrap()).is_err(),
                "{address}"
            );
        }
        for address in "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 100.63.0.1 100.128.0.1 126.1.1.1 128.0.0.1 172.15.0.1 \
            172.32.0.1 192.167.0.1 192.169.0.1 198.17.0.1 223.255.255.255 2606:4700::1111 2a00:1450::1 2001:4860::8888"
            .split_whitespace()
        {
            assert_eq!(policy(&[]).check(address.parse().unwrap()), Ok(()), "{address}");
        }
    }

    #[test]
    fn a_grant_allows_exactly_what_it_names() {
        let policy = policy(&["127.0.0.1", "10.1.0.0/16", "fd00::/8"]);
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.1.2.3", true),
            ("10.2.0.1", false),
            ("fd12::1", true),
            ("fc00::1", false),
            ("::ffff:127.0.0.1", false),
            ("8.8.8.8", true),
        ] {
            assert_eq!(
                policy.check(address.parse().unwrap()).is_ok(),
                allowed,
                "{address}"
            );
        }
    }

    #[test]
    fn a_misspelt_network_is_named() {
        for text in ["10.0.0.0/33", "localhost", "", "10.0.0"] {
            let error = AddressPolicy::parse(&[text.to_owned()]).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
