//! Records come out as they went in, whoever writes; fields are those of the words.

use super::*;
use crate::hw::{CqeInfo, Polarity, SqHeader, SqOp};
use crate::num::{Qpn, Rkey};
use std::sync::atomic::AtomicU64;

fn record(kind: Kind, words: &[u64], bytes: &[u8]) -> Shown {
    let ring = Ring::new(256);
    let header = Record::header(kind, 3, words.len(), bytes.len());
    assert!(ring.push(&[header, 77], words, bytes));
    let mut out = Vec::new();
    assert!(ring.pop(&mut out) && !ring.pop(&mut Vec::new()));
    let record = Record::parse(&out).unwrap();
    assert_eq!((record.kind, record.device, record.time_ns), (kind, 3, 77));
    assert_eq!((record.words, &record.bytes[..]), (words, bytes));
    show(&record)
}

#[test]
fn a_full_ring_counts_what_it_loses() {
    let ring = Ring::new(16);
    let header = Record::header(Kind::INTERRUPT, 0, 1, 0);
    for _ in 0..5 {
        assert!(ring.push(&[header, 1], &[9], &[]));
    }
    assert!(!ring.push(&[header, 2], &[9], &[]));
    assert_eq!((ring.take_lost(), ring.take_lost()), (1, 0));
    let mut out = Vec::new();
    assert!(ring.pop(&mut out));
    assert!(ring.push(&[header, 3], &[9], &[]), "room again");
    assert!(
        !ring.push(&[header, 3], &[9; 5000], &[]),
        "longer than any record"
    );
}

#[test]
fn many_writers_lose_nothing_that_is_not_counted() {
    const EACH: u64 = 20_000;
    let ring = Ring::new(1024);
    let pushed = AtomicU64::new(0);
    let mut seen = [0u64; 3];
    let mut count = 0;
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            let (ring, pushed) = (&ring, &pushed);
            scope.spawn(move || {
                for n in 1..=EACH {
                    let extra = usize::try_from(n % 40).unwrap();
                    let header = Record::header(Kind::OUT, 0, 2, extra);
                    let bytes = vec![u8::try_from(writer).unwrap() + 1; extra];
                    ring.push(&[header, n], &[writer, n], &bytes);
                    pushed.fetch_add(1, Ordering::Release);
                }
            });
        }
        let mut out = Vec::new();
        loop {
            let done = pushed.load(Ordering::Acquire) == 3 * EACH;
            while ring.pop(&mut out) {
                let record = Record::parse(&out).unwrap();
                let (writer, n) = (usize::try_from(record.word(0)).unwrap(), record.word(1));
                assert!(n > seen[writer], "in order for each writer");
                seen[writer] = n;
                let fill = u8::try_from(writer).unwrap() + 1;
                assert!(record.bytes.iter().all(|byte| *byte == fill));
                assert_eq!(record.bytes.len() as u64, n % 40);
                count += 1;
            }
            if done {
                break;
            }
        }
    });
    assert_eq!(count + ring.take_lost(), 3 * EACH);
}

#[test]
fn a_wqe_is_decoded_field_by_field() {
    let header = SqHeader::ZERO
        .with_op(SqOp::WRITE)
        .with_key(Rkey(0x1234))
        .with_signaled(true)
        .with_valid(Polarity::ONE);
    let words = [0x12001, 5, 0x1000, 64 << 32 | 0x99, 0xabc0, header.bits()];
    let shown = record(Kind::WQE, &words, &[]);
    assert_eq!(shown.what, "wqe");
    assert_eq!(shown.field("op"), Some("WRITE"));
    assert_eq!(shown.field("remote_addr"), Some("0xabc0"));
    assert_eq!(shown.field("signaled"), Some("true"));
    assert_eq!(shown.field("ah"), None, "the same bits are a key here");
    assert!(shown.field("sge0").unwrap().contains("0x1000+64"));
    assert_eq!(shown.words, words[2..]);
    assert!(shown.text().contains("op[37:32]=WRITE"), "{}", shown.text());
}

#[test]
fn a_completion_shows_its_extension() {
    let info = CqeInfo {
        qpn: Qpn::new(9),
        imm: Some(0xcafe),
        len: 12,
        ..CqeInfo::default()
    };
    let mut words = vec![4, 1];
    words.extend(info.encode());
    words.extend(info.encode_ext());
    let shown = record(Kind::CQE, &words, &[]);
    assert_eq!(shown.field("bytes"), Some("12"));
    assert_eq!(shown.field("immediate"), Some("0xcafe"));
    assert_eq!(shown.field("extended"), Some("true"));
}

#[test]
fn entries_of_other_dialects_are_decoded_as_theirs() {
    use crate::hw::dialect::{hns, mlx5};
    let info = CqeInfo {
        op: 5,
        qpn: Qpn::new(9),
        imm: Some(0xcafe),
        len: 12,
        ..CqeInfo::default()
    };
    let at = |place: &[u64], words: &[u64]| [place, words].concat();
    let words = at(&[4, 1], &mlx5::cqe::encode(&info));
    let shown = record(Kind::MLX5_CQE, &words, &[]);
    assert_eq!(shown.what, "cqe");
    assert_eq!(shown.field("opcode"), Some("RESP_SEND_IMM"));
    assert_eq!(shown.field("byte_cnt"), Some("12"));
    assert_eq!(shown.field("immediate"), Some("0xcafe"));
    assert_eq!(shown.words, words[2..]);
    let shown = record(Kind::HNS_CQE, &at(&[4, 1], &hns::cqe::encode(&info)), &[]);
    assert_eq!(shown.field("recv"), Some("true"));
    assert_eq!(shown.field("byte_cnt"), Some("12"));
    assert!(shown.text().contains("opcode[4:0]=2"), "{}", shown.text());

    let failed = CqeInfo::flush(true, Qpn::new(9), 5, 3, crate::hw::FlushCode::RETRY_EXC);
    let shown = record(
        Kind::MLX5_CQE,
        &at(&[4, 1], &mlx5::cqe::encode(&failed)),
        &[],
    );
    assert_eq!(shown.field("syndrome"), Some("21"));
    assert_eq!(shown.field("flush"), Some("RETRY_EXC"));

    let eqe = mlx5::eqe::Eqe::commands(6).encode();
    let shown = record(Kind::MLX5_EQE, &at(&[1023, 0], &eqe), &[]);
    assert_eq!(
        (shown.field("event"), shown.field("commands")),
        (Some("CMD"), Some("0x6"))
    );
    let shown = record(Kind::HNS_CEQE, &at(&[1, 0], &hns::eqe::encode_ce(77)), &[]);
    assert_eq!(shown.field("cqn"), Some("77"));
    let lost = crate::hw::Aeqe {
        code: crate::hw::AeCode::CQ_OPERATION_ERROR,
        source: crate::hw::AeSource::CQ,
        id: 77,
        ..crate::hw::Aeqe::default()
    };
    let eqe = mlx5::eqe::Eqe::from_aeqe(&lost).encode();
    let shown = record(Kind::MLX5_ASYNC, &at(&[0], &eqe), &[]);
    assert_eq!(shown.field("event"), Some("CQ_ERROR"));
    assert_eq!(
        (shown.field("cqn"), shown.field("syndrome")),
        (Some("77"), Some("1"))
    );
    let shown = record(Kind::HNS_AEQE, &at(&[0], &hns::eqe::encode_ae(&lost)), &[]);
    assert_eq!(shown.field("event"), Some("CQ_OVERFLOW"));

    let arm = mlx5::arm_word(0, 5, 2, 9, true).bits().swap_bytes();
    let shown = record(Kind::MLX5_ARM, &[5, arm], &[]);
    assert_eq!(
        (shown.field("sn"), shown.field("ci")),
        (Some("2"), Some("9"))
    );
    let arm = hns::arm_word(0, [5, 8], 2, 9, true).bits();
    let shown = record(Kind::HNS_ARM, &[5, arm], &[]);
    assert_eq!(
        (shown.field("cmd"), shown.field("solicited")),
        (Some("CQ_NTR"), Some("true"))
    );
}

#[test]
fn a_path_survives() {
    for (source, target) in [
        ("127.0.0.1:5", "10.1.2.3:4791"),
        ("[::1]:7", "[fe80::1]:4791"),
    ] {
        let path = PacketPath {
            source: source.parse().unwrap(),
            target: target.parse().unwrap(),
            tclass: 2,
            hop_limit: 63,
            ip_id: 0xbeef,
            note: PacketNote::NONE,
        };
        let note = PacketNote::NONE.with_dropped(true).with_held_us(5);
        let words = path.words(note);
        let header = Record::header(Kind::FAULT_IN, 0, words.len(), 0);
        let all = [&[header, 1][..], &words].concat();
        let parsed = Record::parse(&all).unwrap().path().unwrap();
        assert_eq!(parsed, PacketPath { note, ..path });
        assert_eq!(note.faults(), "dropped, held back 5 us");
    }
}

#[test]
fn odd_words_are_shown_and_not_believed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..20_000 {
        let words: Vec<u64> = (0..random.usize(0..40)).map(|_| random.u64(..)).collect();
        let bytes: Vec<u8> = (0..random.usize(0..80)).map(|_| random.u8(..)).collect();
        let kind = Kind(random.u8(1..40));
        let shown = record(kind, &words, &bytes);
        assert!(!shown.text().is_empty());
    }
}
