//! Requests that name an XRC shared receive queue: where the number stands, and that it comes back.

use super::*;
use crate::hw::{Polarity, SgeList};
use crate::limits::MAX_SGE;
use crate::mem::Sge;
use crate::num::{Lkey, SrqId};
use proptest::prelude::*;

const SRQ: SrqId = SrqId(0x00ab_cdef);

fn parsed(wqe: &WqeBuf) -> SqCmd {
    let mut cmd = SqCmd::new();
    let words: Vec<u64> = (0..wqe.quanta() as usize * QUANTUM_WORDS)
        .map(|at| wqe.word(at, Polarity::ONE))
        .collect();
    cmd.parse(&words).unwrap();
    cmd
}

fn naming() -> WqeBuf {
    let mut wqe = WqeBuf::new();
    wqe.set_xrc_srq(Some(SRQ));
    wqe
}

fn sges(count: usize) -> Vec<Sge> {
    (1..)
        .take(count)
        .map(|n| Sge {
            addr: u64::from(n) << 12,
            len: n,
            lkey: Lkey(n),
        })
        .collect()
}

#[test]
fn the_number_stands_where_fragment_0_would() {
    let mut wqe = naming();
    let wr = SendWr {
        imm: Some(7),
        ..SendWr::default()
    };
    wqe.send(&wr, &sges(1)).unwrap();
    assert_eq!(wqe.words()[0], 0x00ab_cdef_0000_0007);
    assert_eq!(wqe.header().bits() >> 45 & 1, 1);
    wqe.fetch_add(WrFlags::SIGNALED, (0, Lkey(1)), RemoteAddr::default(), 5);
    assert_eq!(wqe.words()[6], 0x00ab_cdef);
    wqe.set_xrc_srq(None);
    wqe.fetch_add(WrFlags::SIGNALED, (0, Lkey(1)), RemoteAddr::default(), 5);
    assert_eq!((wqe.words()[6], wqe.header().xrc()), (0, false));
}

proptest! {
    #[test]
    fn every_request_gives_its_number_back(
        count in 0..=MAX_SGE, imm: Option<u32>,
        bytes in prop::collection::vec(any::<u8>(), 0..=101),
    ) {
        let (mut wqe, list) = (naming(), sges(count));
        let same = |cmd: &SqCmd| {
            assert_eq!(cmd.xrc_srq, Some(SRQ));
            assert_eq!(cmd.sges.as_slice(), &list[..]);
        };
        let send = SendWr { imm, ..SendWr::default() };
        wqe.send(&send, &list).unwrap();
        same(&parsed(&wqe));
        prop_assert_eq!(parsed(&wqe).imm, imm);
        let write = WriteWr { imm, ..WriteWr::default() };
        wqe.write(&write, &list).unwrap();
        same(&parsed(&wqe));
        wqe.read(&ReadWr::default(), &list).unwrap();
        same(&parsed(&wqe));
        wqe.send_inline(&send, &bytes).unwrap();
        let cmd = parsed(&wqe);
        prop_assert_eq!((cmd.xrc_srq, cmd.imm), (Some(SRQ), imm));
        prop_assert_eq!(cmd.inline_data(), Some(&bytes[..]));
        wqe.atomic_write(WrFlags::SIGNALED, RemoteAddr::default(), [9; 8]);
        let cmd = parsed(&wqe);
        prop_assert_eq!(cmd.xrc_srq, Some(SRQ));
        prop_assert_eq!(cmd.inline_data(), Some(&[9; 8][..]));
        wqe.compare_swap(WrFlags::SIGNALED, (8, Lkey(3)), RemoteAddr::default(), 1, 2);
        let cmd = parsed(&wqe);
        prop_assert_eq!(cmd.xrc_srq, Some(SRQ));
        prop_assert_eq!(cmd.atomic, AtomicOperands { swap_or_add: 2, compare: 1 });
        wqe.nop(WrFlags::SIGNALED);
        prop_assert_eq!(parsed(&wqe).xrc_srq, None);
        wqe.set_xrc_srq(None);
        wqe.send(&send, &list).unwrap();
        prop_assert_eq!(parsed(&wqe).xrc_srq, None);
    }
}

/// A list is what both ends carry fragments in.
#[test]
fn thirteen_fragments_and_an_immediate_fit() {
    let mut list = SgeList::EMPTY;
    for sge in sges(MAX_SGE) {
        assert!(list.push(sge));
    }
    let mut wqe = naming();
    let wr = SendWr {
        imm: Some(1),
        ..SendWr::default()
    };
    wqe.send(&wr, list.as_slice()).unwrap();
    assert_eq!(
        wqe.quanta(),
        8,
        "the number shares the place of the immediate"
    );
}
