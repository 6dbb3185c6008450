//! Which addresses are public: everything that the registries of special-purpose addresses do not set apart.
//!
//! The tables follow the IANA registries for IPv4 and IPv6. What is in doubt is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Special-purpose blocks of IPv4: first address and length of the prefix.
const SPECIAL_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),       // this network
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // shared by carriers' translators
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local; the metadata services of clouds
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 88, 99, 0], 24),  // relays of 6to4, deprecated
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast
    ([240, 0, 0, 0], 4),     // reserved, and broadcast
    ([255, 255, 255, 255], 32),
];

/// Special-purpose blocks of IPv6 within and beside the part that is handed out (2000::/3).
const SPECIAL_V6: [([u16; 8], u32); 13] = [
    ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), // translators: leads to any IPv4 address
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), // local translators
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64),     // discard
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),    // protocol assignments: Teredo, ORCHID, benchmarks
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),    // 6to4: leads to any IPv4 address
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),    // documentation
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),    // segment routing
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),     // unique local
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),    // link-local
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),    // site-local, deprecated
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),     // multicast
    ([0, 0, 0, 0, 0, 0, 0, 1], 128),        // loopback
];

/// The part of IPv6 that is handed out for use everywhere.
const GLOBAL_V6: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// True for a public address of the internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !SPECIAL_V4.iter().any(|(first, length)| {
        let shift = 32 - length;
        (bits >> shift) == (Ipv4Addr::from(*first).to_bits() >> shift)
    })
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Both old ways to write an IPv4 address as an IPv6 one end up at the IPv4 address.
    let embedded = address.segments()[..6] == [0, 0, 0, 0, 0, 0xffff] || address.segments()[..6] == [0; 6];
    if embedded {
        return is_public_v4(Ipv4Addr::from_bits(address.to_bits() as u32));
    }
    let is_in = |(first, length): &([u16; 8], u32)| {
        let shift = 128 - length;
        (address.to_bits() >> shift) == (Ipv6Addr::from(*first).to_bits() >> shift)
    };
    is_in(&GLOBAL_V6) && !SPECIAL_V6.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First and last address of every special block, and what lies just beside it.
    #[test]
    fn pt_w12_special_addresses_are_not_public_and_their_neighbours_are() {
        let special = [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.255",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.254",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.8",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:1ff:ffff::1",
            "2001:10::1",
            "2001:20::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff02::1",
            "ff0e::1",
            "4000::1",
            "8000::1",
            "1fff::1",
        ];
        for text in special {
            assert!(!is_public(text.parse().unwrap()), "{text} is not public");
        }
        let public = [
            "1.0.0.0",
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:2800:220:1:248:1893:25c8:1946",
            "3ffe:ffff::1",
            "3fff:1000::1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text} is public");
        }
    }
}
