//! Turns, weights and threads, with queues that only count.

use super::*;
use crate::DeviceConfig;
use std::sync::Mutex;

/// Has so much work, and writes down who was served.
struct Fake {
    name: char,
    poller: Arc<Poller>,
    left: AtomicUsize,
    served: Arc<Mutex<String>>,
}

impl Polled for Fake {
    fn poll(self: Arc<Self>, weight: usize) -> usize {
        lock(&self.served).push(self.name);
        let left = self.left.load(Ordering::Acquire);
        let used = left.min(weight);
        self.left.store(left - used, Ordering::Release);
        if used < weight {
            self.poller.gate.complete();
        }
        used
    }
}

fn fake(name: char, weight: usize, work: usize, served: &Arc<Mutex<String>>) -> Arc<Fake> {
    let fake = Arc::new(Fake {
        name,
        poller: Poller::new(weight),
        left: AtomicUsize::new(work),
        served: Arc::clone(served),
    });
    let target: Weak<dyn Polled> = Arc::downgrade(&(Arc::clone(&fake) as Arc<dyn Polled>));
    fake.poller.aim(target);
    fake
}

#[test]
fn whoever_uses_its_weight_up_goes_to_the_end() {
    // proves: mcq-10, mcq-9
    let (list, served) = (List::default(), Arc::default());
    let all = [
        fake('a', 10, 25, &served),
        fake('b', 10, 3, &served),
        fake('c', 10, 10, &served),
    ];
    for fake in &all {
        fake.poller.schedule(&list);
        fake.poller.schedule(&list);
    }
    let mut used = Vec::new();
    while let Some(poller) = list.pop() {
        used.push(poller.turn(&list));
    }
    assert_eq!(*lock(&served), "abcaca");
    assert_eq!(used, [10, 3, 10, 10, 0, 5]);
}

#[test]
fn a_closed_queue_has_no_turn() {
    let (list, served) = (List::default(), Arc::default());
    let fake = fake('a', 4, 100, &served);
    fake.poller.schedule(&list);
    assert!(fake.poller.gate.close());
    assert_eq!(list.pop().unwrap().turn(&list), 0);
    fake.poller.schedule(&list);
    assert!(list.pop().is_none());
    // Nor has one that is gone.
    let poller = Poller::new(4);
    poller.schedule(&list);
    assert_eq!(list.pop().unwrap().turn(&list), 0);
    assert!(poller.gate.enter(), "and it is free");
    assert_eq!(*lock(&served), "");
}

#[test]
fn threads_come_with_the_first_queue_and_go_with_the_last() {
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let (crews, engine) = (Crews::default(), &ctx.inner.driver.engine);
    let crew = crews.join(CrewKey::Bound(0), engine).unwrap();
    assert!(Arc::ptr_eq(
        &crew,
        &crews.join(CrewKey::Bound(0), engine).unwrap()
    ));
    let (list, served) = (Arc::clone(&crew.list), Arc::default());
    let fake = fake('a', 10, 35, &served);
    fake.poller.schedule(&list);
    crew.nudge();
    while lock(&served).len() < 4 {
        std::thread::yield_now();
    }
    drop(crew);
    // The thread has ended, and its handle on the list with it.
    assert_eq!(Arc::strong_count(&list), 1);
    assert!(
        lock(&crews.crews)
            .values()
            .all(|crew| crew.upgrade().is_none())
    );
    crews.join(CrewKey::Bound(0), engine).unwrap();
}

/// Waits in its turn until it is let go.
struct Stuck(Arc<Poller>, Arc<(Mutex<(usize, bool)>, Condvar)>);

impl Polled for Stuck {
    fn poll(self: Arc<Self>, _weight: usize) -> usize {
        let mut state = lock(&self.1.0);
        state.0 += 1;
        drop(
            self.1
                .1
                .wait_while(state, |state| !state.1)
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.0.gate.complete();
        0
    }
}

#[test]
fn an_unbound_crew_grows_when_one_of_it_waits() {
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let engine = &ctx.inner.driver.engine;
    let crew = Crews::default().join(CrewKey::Unbound, engine).unwrap();
    let gate = Arc::new((Mutex::new((0, false)), Condvar::new()));
    let all: Vec<Arc<Stuck>> = (0..2)
        .map(|_| {
            let stuck = Arc::new(Stuck(Poller::new(8), Arc::clone(&gate)));
            let target: Weak<dyn Polled> = Arc::downgrade(&(Arc::clone(&stuck) as Arc<dyn Polled>));
            stuck.0.aim(target);
            stuck
        })
        .collect();
    for stuck in &all {
        stuck.0.schedule(&crew.list);
    }
    crew.nudge();
    while lock(&gate.0).0 < 2 {
        std::thread::yield_now();
    }
    assert_eq!(lock(&crew.threads).len(), 2);
    lock(&gate.0).1 = true;
    gate.1.notify_all();
}
