//! Numbers and names in the stored form of an interval.

use laneway_core::Name;

/// Appends a number in groups of seven bits, lowest first.
pub(super) fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number; `None` where it is cut off or too large.
pub(super) fn read_number(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Appends a name with its length.
pub(super) fn write_name(out: &mut Vec<u8>, name: &Name) {
    write_number(out, name.as_str().len() as u64);
    out.extend_from_slice(name.as_str().as_bytes());
}

/// Reads a name; `None` where it is none.
pub(super) fn read_name(input: &mut &[u8]) -> Option<Name> {
    let len = usize::try_from(read_number(input)?).ok()?;
    let (text, rest) = input.split_at_checked(len)?;
    *input = rest;
    Name::new(std::str::from_utf8(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_read_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(read_number(&mut out.as_slice()), Some(number));
        }
        let mut out = Vec::new();
        write_name(&mut out, &Name::fixed("größe"));
        assert_eq!(read_name(&mut out.as_slice()), Some(Name::fixed("größe")));
        assert_eq!(read_name(&mut &out[..out.len() - 1]), None);
        assert_eq!(read_number(&mut [0xff; 11].as_slice()), None);
    }
}
