//! Division, tracker and layout against tables that were worked out by hand.

use super::*;

const fn demand(hardware: u32, cpus: u32, flow_director: bool, rdma: bool) -> Demand {
    Demand {
        hardware,
        cpus,
        flow_director,
        rdma,
    }
}

#[test]
fn vectors_are_divided_as_ice_does() {
    // proves: event-82
    for (hardware, cpus, flow, rdma, expected) in [
        // Enough: others 1 + 1 (+ 2), LAN = CPUs, RDMA = CPUs + 4.
        (1024, 8, true, true, (8, 12, 4)),
        (24, 8, true, true, (8, 12, 4)),
        (22, 8, false, true, (8, 12, 2)),
        (1024, 8, true, false, (8, 0, 4)),
        // One short: 19 remain, RDMA (19 - 4) / 2 + 4.
        (23, 8, true, true, (8, 11, 4)),
        (21, 8, false, true, (8, 11, 2)),
        (14, 8, true, true, (3, 7, 4)),
        // Fewer than twice five remain: the least for RDMA.
        (13, 8, true, true, (7, 2, 4)),
        (9, 8, true, true, (3, 2, 4)),
        (7, 8, true, true, (1, 2, 4)),
        // Fewer than three remain: RDMA is off.
        (6, 8, true, true, (1, 0, 4)),
        (5, 8, true, true, (1, 0, 4)),
        (2, 8, true, true, (1, 0, 4)),
        (4, 8, false, true, (1, 0, 2)),
        // Without RDMA the packets get it all.
        (10, 8, true, false, (6, 0, 4)),
        (2, 8, true, false, (1, 0, 4)),
    ] {
        let got = demand(hardware, cpus, flow, rdma).divide().unwrap();
        let got = (got.lan, got.rdma, got.other);
        assert_eq!(
            got, expected,
            "{hardware} vectors, {cpus} CPUs, {flow} {rdma}"
        );
    }
    for hardware in [0, 1] {
        assert_eq!(demand(hardware, 8, true, true).divide(), Err(TooFew));
    }
}

#[test]
fn a_grant_of_fewer_divides_again() {
    // proves: event-82
    let demand = demand(1024, 8, true, true);
    let wish = demand.divide().unwrap();
    assert_eq!(demand.granted(wish, wish.total()), Ok(wish));
    let less = demand.granted(wish, 14).unwrap();
    assert_eq!((less.lan, less.rdma), (3, 7));
    let least = demand.granted(wish, 7).unwrap();
    assert_eq!((least.lan, least.rdma), (1, 2));
    assert_eq!(demand.granted(wish, 5).unwrap().rdma, 0);
    assert_eq!(demand.granted(wish, 1), Err(TooFew));
}

#[test]
fn the_tracker_gives_the_lowest_and_tells_when_there_is_none() {
    // proves: event-79
    let mut tracker = Tracker::new(5, 2, true);
    let map = |index, dynamic| IrqMap { index, dynamic };
    assert_eq!(tracker.max_used(), 1);
    assert_eq!(tracker.alloc(true), map(2, true));
    assert_eq!(tracker.alloc(false), map(0, false));
    assert_eq!(tracker.alloc(false), map(1, false));
    assert_eq!(tracker.alloc(false), map(3, true));
    assert_eq!(tracker.max_used(), 3);
    assert!(tracker.free(map(0, false)) && !tracker.free(map(0, false)));
    assert!(!tracker.free(IrqMap::NONE) && !tracker.free(map(99, true)));
    assert_eq!(tracker.alloc(true), map(4, true));
    assert_eq!(tracker.alloc(true), IrqMap::NONE);
    assert_eq!(tracker.alloc(false), map(0, false));
    assert_eq!(tracker.alloc(false).index, -2);
    // Without vectors that are made when wanted; and with some that belong to others.
    let mut tracker = Tracker::new(5, 2, false);
    assert_eq!(tracker.alloc(true), IrqMap::NONE);
    assert_eq!(tracker.for_rdma(6).len(), 2, "those obtained so far");
    let mut tracker = Tracker::new(8, 2, true);
    tracker.reserve_from(4);
    let got: Vec<_> = tracker.for_rdma(6).iter().map(|map| map.index).collect();
    assert_eq!(got, [0, 1, 2, 3]);
    assert_eq!(tracker.alloc(false), IrqMap::NONE, "those are not ours");
}

#[test]
fn vectors_serve_queues_and_processors_in_order() {
    // proves: event-80, event-81
    let row = |layout: Layout| -> Vec<_> {
        let uses = layout.uses();
        uses.map(|u| (u.vector.0, u.aeq, u.ceq.map(|ceq| ceq.0), u.cpu))
            .collect()
    };
    // Enough: one for asynchronous events, one for each processor, and no more.
    for granted in [5, 8, 12] {
        let layout = Layout::new(granted, 4).unwrap();
        assert!(!layout.is_shared());
        assert_eq!((layout.vectors(), layout.ceqs()), (5, 4));
        let expected = [
            (0, true, None, 0),
            (1, false, Some(0), 0),
            (2, false, Some(1), 1),
            (3, false, Some(2), 2),
            (4, false, Some(3), 3),
        ];
        assert_eq!(row(layout), expected, "{granted}");
    }
    // No more than there are processors: vector 0 does both.
    let layout = Layout::new(3, 4).unwrap();
    assert!(layout.is_shared());
    assert_eq!((layout.vectors(), layout.ceqs()), (3, 3));
    let expected = [
        (0, true, Some(0), 0),
        (1, false, Some(1), 1),
        (2, false, Some(2), 2),
    ];
    assert_eq!(row(layout), expected);
    for layout in [layout, Layout::new(9, 4).unwrap()] {
        for each in layout.uses() {
            assert_eq!(
                each.ceq.map_or(each.vector, |ceq| layout.vector_of(ceq)),
                each.vector
            );
        }
        assert_eq!(layout.use_of(MsixVector(layout.vectors())), None);
    }
    assert_eq!(Layout::new(1, 4), Err(TooFew));
    assert_eq!(Layout::new(0, 4), Err(TooFew));
    assert_eq!(Layout::new(200, 128).unwrap().at_most(64).ceqs(), 63);
}
