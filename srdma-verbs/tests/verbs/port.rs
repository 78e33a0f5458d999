//! Events of the port, as injected; real ones need a namespace (the package `srdma-tests`).

use crate::common::*;
use srdma_core::hca::Injection;
use srdma_verbs::{AsyncKind, Context, Element, LinkState};

fn heard(ctx: &Context, kind: AsyncKind) {
    let event = ctx.wait_async_event();
    assert_eq!(event.kind(), kind);
    // Never acknowledged.
    let (_, element) = event.defer_ack();
    assert!(matches!(element, Element::Port(1)), "{element:?}");
}

#[test]
fn every_context_hears_of_edges_and_owes_nothing() {
    // proves: event-44, event-45, event-53
    let config = config();
    let side = Side::new(config.clone());
    let other = config.open().unwrap();
    assert!(side.ctx.same_device(&other));
    for up in [false, false, true, true, false] {
        assert!(side.ctx.inject(Injection::Port { up }));
    }
    for ctx in [&side.ctx, &other] {
        heard(ctx, AsyncKind::PortErr);
        heard(ctx, AsyncKind::PortActive);
        heard(ctx, AsyncKind::PortErr);
        assert!(ctx.try_async_event().unwrap_err().is_would_block());
    }
    // Its interface is up, and so is the port when somebody looks.
    assert_eq!(other.query_port(1).unwrap().state, LinkState::Active);
    heard(&other, AsyncKind::PortActive);
    side.cq.destroy().unwrap();
}
