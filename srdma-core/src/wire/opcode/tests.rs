//! Tests of the table: rows, names and what finds them agree.

use super::*;
use crate::wire::tests::defined;

#[test]
fn an_opcode_is_found_by_what_it_is() {
    for opcode in defined() {
        let info = opcode.info().unwrap();
        if let Some((known, more)) = opcode.own() {
            let with = known.with_rider().or_else(|| known.evened());
            assert_eq!(with, Some(opcode));
            let headers = known.info().unwrap().headers;
            assert!(!headers.contains(more));
            assert_eq!(info.headers, headers.with(more));
            continue;
        }
        let found = Opcode::of(
            info.service,
            info.verb,
            info.position,
            info.has_imm,
            info.has_inv,
        );
        assert_eq!(found, Some(opcode));
    }
    let of = Opcode::of;
    assert_eq!(
        of(Service::Ud, Verb::Send, Position::First, false, false),
        None
    );
    assert_eq!(
        of(Service::Uc, Verb::ReadRequest, Position::Only, false, false),
        None
    );
    assert_eq!(
        of(Service::Rc, Verb::Send, Position::Only, true, true),
        None
    );
    assert_eq!(
        of(Service::Rc, Verb::Cnp, Position::Only, false, false),
        None
    );
    assert_eq!(
        of(Service::Cnp, Verb::Send, Position::Middle, false, false),
        None
    );
}

#[test]
fn names_say_what_the_table_says() {
    for opcode in defined() {
        let (name, info) = (opcode.name().unwrap(), opcode.info().unwrap());
        let own = opcode.own().map(|(_, more)| match more {
            HeaderSet::RIDER => "_ACK",
            HeaderSet::AETH => "_AETH",
            _ => "_RETH",
        });
        let name = own.map_or(Some(name), |with| name.strip_suffix(with));
        let name = name.unwrap();
        assert_eq!(name.ends_with("_IMM"), info.has_imm, "{name}");
        assert_eq!(name.ends_with("_INV"), info.has_inv, "{name}");
        let responds = ["_RESP_", "_ACKNOWLEDGE", "_ATOMIC_ACK"]
            .iter()
            .any(|r| name.contains(r));
        assert_eq!(info.is_response, responds, "{name}");
        let position = match info.position {
            Position::First => name.contains("_FIRST"),
            Position::Middle => name.contains("_MIDDLE"),
            Position::Last => name.contains("_LAST"),
            Position::Only => !["_FIRST", "_MIDDLE", "_LAST"]
                .iter()
                .any(|p| name.contains(p)),
        };
        assert!(position, "{name}");
        let takes = match info.verb {
            Verb::Send => name.contains("SEND_FIRST") || name.contains("SEND_ONLY"),
            Verb::Write => name.ends_with("_IMM"),
            _ => false,
        };
        assert_eq!(info.takes_rwqe, takes, "{name}");
    }
}
