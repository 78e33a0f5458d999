//! A reader of capture files in the classic pcap format.
//!
//! ```text
//!  file    magic 4 │ version 4 │ zone, accuracy 8 │ snap length 4 │ link type 4 │ records
//!  record  seconds 4 │ fraction 4 │ captured 4 │ original 4 │ bytes
//! ```
//!
//! Either byte order; the fraction is of micro- or nanoseconds. Not pcapng, and no dissecting.

use thiserror::Error;

/// Link type of Ethernet frames.
pub const ETHERNET: u16 = 1;

/// Why a file is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The first four bytes are none of the four magic numbers.
    #[error("not a pcap file")]
    Magic,
    /// A header or a frame ends behind the end of the file.
    #[error("the file ends in the middle of something")]
    Truncated,
}

/// A capture: its frames, in the order of the file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Capture<'a> {
    /// What the frames begin with; see [`ETHERNET`].
    pub link: u16,
    /// The frames.
    pub frames: Vec<Frame<'a>>,
}

/// One captured frame.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes that the frame had on the wire.
    pub original: u32,
    /// The bytes that were kept.
    pub bytes: &'a [u8],
}

/// Reads a whole file.
pub fn read(file: &[u8]) -> Result<Capture<'_>, PcapError> {
    let (magic, rest) = file.split_first_chunk::<4>().ok_or(PcapError::Magic)?;
    let (big_endian, fraction_ns) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000),
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
        _ => return Err(PcapError::Magic),
    };
    let mut reader = Reader { rest, big_endian };
    reader.bytes(16)?;
    let [.., hi, lo] = reader.word()?.to_be_bytes();
    let mut capture = Capture {
        link: u16::from_be_bytes([hi, lo]),
        frames: Vec::new(),
    };
    while !reader.rest.is_empty() {
        let seconds = u64::from(reader.word()?);
        let fraction = u64::from(reader.word()?);
        let kept = reader.word()?;
        let original = reader.word()?;
        let bytes = reader.bytes(usize::try_from(kept).map_err(|_| PcapError::Truncated)?)?;
        let time_ns = seconds * 1_000_000_000 + fraction * fraction_ns;
        capture.frames.push(Frame {
            time_ns,
            original,
            bytes,
        });
    }
    Ok(capture)
}

struct Reader<'a> {
    rest: &'a [u8],
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], PcapError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(PcapError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u32, PcapError> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(PcapError::Truncated)?;
        self.rest = rest;
        Ok(if self.big_endian {
            u32::from_be_bytes(*word)
        } else {
            u32::from_le_bytes(*word)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one frame of three bytes, of which five were on the wire.
    fn file(word: fn(u32) -> [u8; 4], magic: u32) -> Vec<u8> {
        let head = [magic, 0, 0, 0, 65_535, 1, 7, 9, 3, 5];
        let mut file: Vec<u8> = head.into_iter().flat_map(word).collect();
        file.extend([1, 2, 3]);
        file
    }

    #[test]
    fn both_byte_orders_and_both_fractions() {
        for (magic, time_ns) in [(0xa1b2_c3d4, 7_000_009_000), (0xa1b2_3c4d, 7_000_000_009)] {
            for word in [u32::to_be_bytes as fn(u32) -> [u8; 4], u32::to_le_bytes] {
                let file = file(word, magic);
                let capture = read(&file).unwrap();
                assert_eq!((capture.link, capture.frames.len()), (ETHERNET, 1));
                let frame = capture.frames[0];
                assert_eq!((frame.time_ns, frame.original), (time_ns, 5));
                assert_eq!(frame.bytes, [1, 2, 3]);
            }
        }
    }

    #[test]
    fn a_cut_file_is_refused() {
        let file = file(u32::to_le_bytes, 0xa1b2_c3d4);
        for len in (0..file.len()).filter(|&len| len != 24) {
            let error = if len < 4 {
                PcapError::Magic
            } else {
                PcapError::Truncated
            };
            assert_eq!(read(&file[..len]).unwrap_err(), error, "{len} bytes");
        }
    }
}
