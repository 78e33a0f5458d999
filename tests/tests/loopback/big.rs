//! The longest message there is: 2^31 bytes, one more than a scatter/gather entry can name.

use crate::common::*;
use srdma_verbs::{Mr, QpType, WrId};

const CHUNK: usize = 1 << 20;

/// Memory that may be taken without harm, in bytes.
fn memory_available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.map_or(0, |kib| kib.parse().unwrap_or(0)) * 1024
}

fn seed(chunk: usize) -> u8 {
    (chunk as u8).wrapping_mul(7) ^ (chunk >> 8) as u8
}

fn check(mr: &Mr, chunk: usize, bytes: &mut [u8], base: &[u8]) {
    mr.read(chunk * CHUNK, bytes).unwrap();
    let key = seed(chunk);
    let same = bytes.iter().zip(base).all(|(got, want)| *got == want ^ key);
    assert!(same, "wrong data in MiB {chunk}");
}

#[test]
fn the_longest_write() {
    let size: usize = if memory_available() > 10 << 30 {
        1 << 31
    } else {
        println!("less than 10 GiB of memory to spare: 256 MiB instead of 2 GiB");
        256 << 20
    };
    let p = pair(QpType::Rc, Sockets::DEFAULT, (address(), address()));
    let (source, target) = (p.a.mr(size), p.b.mr(size));
    let base = pattern(CHUNK, 0);
    for chunk in 0..size / CHUNK {
        let bytes: Vec<u8> = base.iter().map(|byte| byte ^ seed(chunk)).collect();
        source.write(chunk * CHUNK, &bytes).unwrap();
    }
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(..size / 2))
        .local(source.sge(size / 2..))
        .remote(target.addr(), target.rkey())
        .signaled();
    batch.ring().unwrap();
    let wc = done(&p.a.cq);
    assert_eq!(wc.byte_len() as usize, size);
    let mut bytes = vec![0; CHUNK];
    for chunk in 0..size / CHUNK {
        check(&target, chunk, &mut bytes, &base);
    }
    // The end comes back, into what is overwritten first.
    let part = size.min(256 << 20);
    let first = (size - part) / CHUNK;
    for chunk in first..size / CHUNK {
        source.write(chunk * CHUNK, &base).unwrap();
    }
    let mut batch = p.qa.post_send();
    batch
        .read(WrId(2))
        .local(source.sge(size - part..))
        .remote(target.addr() + (size - part) as u64, target.rkey())
        .signaled();
    batch.ring().unwrap();
    assert_eq!(done(&p.a.cq).byte_len() as usize, part);
    for chunk in first..size / CHUNK {
        check(&source, chunk, &mut bytes, &base);
    }
    assert_eq!([p.a.dropped(), p.b.dropped()], [0, 0]);
}
