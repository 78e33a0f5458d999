//! The registry: claims, deaths, damage.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path of its own.
fn path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("srdma-registry-{}-{next}", std::process::id()))
}

#[test]
fn a_block_has_one_owner_and_is_free_when_he_is_gone() {
    let path = path();
    let (a, b) = (
        Registry::open(&path).unwrap(),
        Registry::open(&path).unwrap(),
    );
    assert!(!a.has_others() && a.claim(17, Home::from(50_000)).unwrap());
    assert!(!b.claim(17, Home::from(50_001)).unwrap());
    assert!(b.claim(18, Home::from(50_001)).unwrap());
    assert_eq!(
        (b.holder(17).port(), a.holder(18).port()),
        (Some(50_000), Some(50_001))
    );
    assert_eq!(
        (b.holder(19).port(), a.holder(17).port()),
        (None, None),
        "our own is no other's"
    );
    assert!(a.has_others() && b.has_others());
    // As the kernel leaves it when a process is killed: the entry stays, the lock goes.
    let Registry { file, .. } = &a;
    lock::unlock(file.as_fd(), lock_of(17), 1).unwrap();
    assert_eq!(b.holder(17).port(), None);
    assert!(b.claim(17, Home::from(50_001)).unwrap());
    b.release(17);
    let looked = Registry::look(&path).unwrap();
    assert_eq!(
        (looked.holder(17).port(), looked.holder(18).port()),
        (None, Some(50_001))
    );
    drop((a, looked));
    assert!(path.exists(), "b has it");
    drop(b);
    assert!(!path.exists(), "the last one takes it away");
    assert!(Registry::look(&path).is_none());
}

#[test]
fn blocks_are_tried_in_turn() {
    let path = path();
    let registry = Registry::open(&path).unwrap();
    let first = registry.next();
    for n in 1..=5000u16 {
        assert_eq!(registry.next(), (first + n) % BLOCKS);
    }
    // A number that makes no sense is a number.
    registry.write_next(u32::MAX).unwrap();
    assert_eq!(registry.next(), BLOCKS - 1);
    assert_eq!(registry.next(), 0);
    // Whoever has the turn and does not give it back holds nobody up.
    let other = Registry::open(&path).unwrap();
    assert!(other.lock(LOCK_NEXT, 1, Mode::Alone).unwrap());
    assert!(registry.next() < BLOCKS);
}

/// What may stand in a damaged file.
fn damages() -> Vec<Vec<u8>> {
    let size = usize::try_from(SIZE).unwrap();
    let mut wrong = vec![0xa5; size];
    fastrand::Rng::with_seed(7).fill(&mut wrong);
    let mut version = vec![0; size];
    version[..8].copy_from_slice(b"srdma\0r9");
    let mut short = MAGIC.to_vec();
    short.resize(size - 1, 0);
    let mut long = MAGIC.to_vec();
    long.resize(size + 1, 0);
    vec![Vec::new(), vec![1], wrong, version, short, long]
}

#[test]
fn a_damaged_file_is_made_anew_unless_it_is_in_use() {
    for damage in damages() {
        let path = path();
        std::fs::write(&path, &damage).unwrap();
        let a = Registry::open(&path).unwrap();
        assert!(a.is_sound().unwrap());
        assert!(a.claim(5, Home::from(50_000)).unwrap());
        std::fs::write(&path, &damage).unwrap();
        let error = Registry::open(&path).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, NetError::RegistryDamaged { .. }), "{text}");
        assert!(
            text.contains(path.to_str().unwrap()) && text.contains("fuser"),
            "{text}"
        );
        // Who has it goes on as well as can be.
        assert_eq!(a.holder(6), Holder::Nobody);
        assert_eq!(Registry::look(&path).unwrap().holder(5), Holder::Unknown);
        assert!(a.next() < BLOCKS);
        a.release(5);
        drop(a);
        std::fs::write(&path, &damage).unwrap();
        drop(Registry::open(&path).unwrap());
        assert!(!path.exists());
    }
}

#[test]
fn entries_that_make_no_sense_lead_nowhere() {
    let path = path();
    let (a, b) = (
        Registry::open(&path).unwrap(),
        Registry::open(&path).unwrap(),
    );
    assert!(a.claim(9, Home::from(50_000)).unwrap());
    for entry in [
        [0; 8],
        [0xff; 8],
        [1, 2, 3, 4, 5, 6, 7, 8],
        [0, 0, 9, 0, 0xff, 0xff, 0xf6, 0xff],
    ] {
        a.file.write_all_at(&entry, entry_at(9)).unwrap();
        assert_eq!(b.holder(9), Holder::Unknown, "{entry:?}");
    }
}

#[test]
fn links_and_folders_are_no_registries() {
    let (path, target) = (path(), path());
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(matches!(
        Registry::open(&path),
        Err(NetError::Registry { .. })
    ));
    assert!(Registry::look(&path).is_none() && !target.exists());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = Registry::open(&path).unwrap_err();
    assert!(matches!(error, NetError::Registry { .. }), "{error}");
    std::fs::remove_dir(&path).unwrap();
}

#[test]
fn many_open_and_close_at_once() {
    let path = path();
    std::thread::scope(|scope| {
        for thread in 0..8u16 {
            let path = &path;
            scope.spawn(move || {
                for turn in 0..50u16 {
                    let registry = Registry::open(path).unwrap();
                    let block = thread * 100 + turn;
                    assert!(registry.claim(block, Home::from(50_000 + thread)).unwrap());
                    let looked = Registry::look(path).unwrap();
                    assert_eq!(looked.holder(block).port(), Some(50_000 + thread));
                }
            });
        }
    });
    assert!(!path.exists());
}

#[test]
fn what_nobody_uses_is_swept() {
    let (used, left) = (path(), path());
    let registry = Registry::open(&used).unwrap();
    std::fs::write(&left, b"left behind").unwrap();
    sweep(&used);
    sweep(&left);
    sweep(&path());
    assert!(used.exists() && !left.exists());
    drop(registry);
}
