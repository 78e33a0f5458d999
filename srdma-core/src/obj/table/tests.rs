//! Tests of the object table.

use super::*;
use std::collections::HashMap;

#[test]
fn a_stale_slot_never_matches() {
    let mut table = Table::new(4);
    let old = table.insert(0xff_ffff, 'a').unwrap();
    assert_eq!(table.get(old), Some(&'a'));
    assert_eq!(table.number_of(old), Some(0xff_ffff));
    assert_eq!(table.remove(0xff_ffff), Some('a'));
    let new = table.insert(0xff_ffff, 'b').unwrap();
    assert_eq!(old.index, new.index, "the slab reuses the place");
    assert_eq!(table.get(old), None);
    assert_eq!(table.get_mut(old), None);
    assert_eq!(table.number_of(old), None);
    assert_eq!(table.renew(old), None);
    assert_eq!(table.get(new), Some(&'b'));
    assert_eq!(table.get(Slot::NONE), None);
}

#[test]
fn renewing_cuts_off_kept_slots() {
    let mut table = Table::new(4);
    let old = table.insert(9, 1).unwrap();
    let new = table.renew(old).unwrap();
    assert_eq!(
        (table.get(old), table.get(new), table.find(9)),
        (None, Some(&1), Some(new))
    );
}

#[test]
fn faults_of_inserting() {
    let mut table = Table::new(2);
    table.insert(0, ()).unwrap();
    assert_eq!(table.insert(0, ()), Err(TableFault::Taken));
    assert_eq!(table.insert(1 << 24, ()), Err(TableFault::OutOfRange));
    assert_eq!(table.insert(u32::MAX, ()), Err(TableFault::OutOfRange));
    table.insert(4096, ()).unwrap();
    assert_eq!(table.insert(4097, ()), Err(TableFault::Full));
    assert_eq!(table.find(u32::MAX), None);
    assert_eq!(table.remove(u32::MAX), None);
    assert_eq!(table.len(), 2);
}

#[test]
fn generations_leave_zero_out_when_they_wrap() {
    let mut table = Table::new(4);
    table.generation = u32::MAX - 1;
    let last = table.insert(1, ()).unwrap();
    let first = table.insert(2, ()).unwrap();
    assert_eq!((last.generation, first.generation), (u32::MAX, 1));
    assert!(!first.is_none());
}

#[test]
fn behaves_as_a_map() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut table = Table::new(300);
    let mut model: HashMap<u32, (Slot, u64)> = HashMap::new();
    let mut dead = Vec::new();
    for _ in 0..20_000 {
        let number = rng.u32(0..8) << 21 | rng.u32(0..64);
        if rng.bool() {
            let value = rng.u64(..);
            match table.insert(number, value) {
                Ok(slot) => assert!(model.insert(number, (slot, value)).is_none()),
                Err(TableFault::Taken) => assert!(model.contains_key(&number)),
                Err(fault) => assert_eq!((fault, model.len()), (TableFault::Full, 300)),
            }
        } else {
            let gone = model.remove(&number);
            assert_eq!(table.remove(number), gone.map(|(_, value)| value));
            dead.extend(gone.map(|(slot, _)| slot));
        }
    }
    assert_eq!(table.len(), model.len());
    for (number, (slot, value)) in &model {
        assert_eq!(table.lookup(*number), Some((*slot, value)));
        assert_eq!(table.by_number_mut(*number), Some(&mut value.clone()));
        assert_eq!(table.number_of(*slot), Some(*number));
    }
    assert!(dead.iter().all(|slot| table.get(*slot).is_none()));
    assert_eq!(table.iter().count(), model.len());
    assert!(
        table
            .iter_mut()
            .all(|(slot, number, value)| model[&number] == (slot, *value))
    );
}
