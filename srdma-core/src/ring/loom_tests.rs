//! Both ends at once, in every order that the memory model allows. Rings of two or three entries.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p srdma-core --release --lib loom`

use super::{Consumer, CqConsumer, CqProducer, CqShadow, Producer, Words};
use crate::hw::cqe::CqeInfo;
use crate::hw::{AeCode, AeSource, Aeqe};
use crate::sync::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// Words that loom watches.
#[derive(Clone, Debug)]
pub(crate) struct LoomWords {
    words: Arc<Vec<AtomicU64>>,
    /// What "release" stores with: plain stores must be found out.
    publish: Ordering,
}

pub(crate) fn memory(words: usize) -> LoomWords {
    LoomWords {
        words: Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()),
        publish: Ordering::Release,
    }
}

impl Words for LoomWords {
    fn len(&self) -> usize {
        self.words.len()
    }
    fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }
    fn load_acquire(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }
    fn store(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }
    fn store_release(&self, index: usize, value: u64) {
        self.words[index].store(value, self.publish);
    }
}

fn event(tag: u32) -> Aeqe {
    Aeqe {
        code: AeCode::NONE,
        source: AeSource::NONE,
        id: tag,
        context: u64::from(tag) << 32,
        ..Aeqe::default()
    }
}

/// Two slots, three entries: the third goes over the first, when the reader has given it back.
#[test]
fn loom_entries_are_seen_whole_and_in_order() {
    // proves: e810-2, e810-3
    loom::model(|| {
        let words = memory(4);
        let read = Arc::new(AtomicU64::new(0));
        let mut producer = Producer::<Aeqe, _>::new(words.clone(), 2, 2).unwrap();
        let mut consumer = Consumer::<Aeqe, _>::new(words, 2).unwrap();
        let credit = Arc::clone(&read);
        let writer = thread::spawn(move || {
            producer.try_push(event(1)).unwrap();
            producer.try_push(event(2)).unwrap();
            if credit.load(Ordering::Acquire) > 0 {
                producer.release(1);
                producer.try_push(event(3)).unwrap();
            }
        });
        let mut next = 1;
        for _ in 0..3 {
            if let Some(got) = consumer.pop() {
                assert_eq!(got, event(next));
                next += 1;
                read.store(1, Ordering::Release);
            }
        }
        writer.join().unwrap();
        while let Some(got) = consumer.pop() {
            assert_eq!(got, event(next));
            next += 1;
        }
        assert!(next == 3 || next == 4);
    });
}

/// The model is able to fail: a header that is published plainly shows a torn entry.
#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn loom_finds_a_plain_publish() {
    loom::model(|| {
        let mut words = memory(4);
        words.publish = Ordering::Relaxed;
        let mut producer = Producer::<Aeqe, _>::new(words.clone(), 2, 2).unwrap();
        let mut consumer = Consumer::<Aeqe, _>::new(words, 2).unwrap();
        let writer = thread::spawn(move || producer.try_push(event(1)).unwrap());
        if let Some(got) = consumer.pop() {
            assert_eq!(got, event(1));
        }
        writer.join().unwrap();
    });
}

/// A CQ of three slots: an extended entry and a plain one, which goes over slot 0 when the shadow
/// head says that the first was read.
#[test]
fn loom_extended_completions_are_seen_whole() {
    // proves: e810-2, e810-3
    loom::model(|| {
        let words = memory(12);
        let shadow = CqShadow::new(memory(8)).unwrap();
        let mut device = CqProducer::new(words.clone(), 3, false, shadow.clone(), 3).unwrap();
        let mut driver = CqConsumer::new(words, 3, false, shadow).unwrap();
        let info = |tag: u32, imm| CqeInfo {
            len: tag,
            context: tag.into(),
            imm,
            ..CqeInfo::default()
        };
        let first = info(1, Some(7));
        let second = info(2, Some(8));
        let writer = thread::spawn(move || {
            device.push(&first).unwrap();
            device.push(&second).is_ok()
        });
        let mut seen = 0;
        for _ in 0..2 {
            if let Some(got) = driver.peek() {
                assert_eq!(got, if seen == 0 { first } else { second });
                driver.advance(got.extended());
                seen += 1;
            }
        }
        let fitted = writer.join().unwrap();
        while let Some(got) = driver.peek() {
            assert_eq!(got, if seen == 0 { first } else { second });
            driver.advance(got.extended());
            seen += 1;
        }
        assert_eq!(seen, if fitted { 2 } else { 1 });
    });
}
