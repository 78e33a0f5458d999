//! The table against an independent spelling of it, and every single bit around every row.

use super::*;
use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// Names as the specification abbreviates them.
fn mask(words: &str) -> AttrMask {
    words.split_whitespace().fold(AttrMask::NONE, |mask, word| {
        mask | match word {
            "PK" => AttrMask::PKEY_INDEX,
            "PO" => AttrMask::PORT,
            "QK" => AttrMask::QKEY,
            "AC" => AttrMask::ACCESS_FLAGS,
            "AV" => AttrMask::AV,
            "MTU" => AttrMask::PATH_MTU,
            "DQ" => AttrMask::DEST_QPN,
            "RP" => AttrMask::RQ_PSN,
            "MD" => AttrMask::MAX_DEST_RD_ATOMIC,
            "RNT" => AttrMask::MIN_RNR_TIMER,
            "SP" => AttrMask::SQ_PSN,
            "TO" => AttrMask::TIMEOUT,
            "RC" => AttrMask::RETRY_CNT,
            "RR" => AttrMask::RNR_RETRY,
            "MR" => AttrMask::MAX_QP_RD_ATOMIC,
            "ALT" => AttrMask::ALT_PATH,
            "MIG" => AttrMask::PATH_MIG_STATE,
            "CS" => AttrMask::CUR_STATE,
            "SQDN" => AttrMask::EN_SQD_ASYNC_NOTIFY,
            other => panic!("unknown abbreviation {other}"),
        }
    })
}

/// One row of the specification: from, to, types, required, optional.
type Row = (
    QpState,
    QpState,
    &'static [QpType],
    &'static str,
    &'static str,
);

const CONNECTED: &[QpType] = &[QpType::Rc, QpType::Uc, QpType::XrcSend, QpType::XrcRecv];

const ROWS: &[Row] = &[
    (Reset, Init, CONNECTED, "PK PO AC", ""),
    (Reset, Init, &[QpType::Ud], "PK PO QK", ""),
    (Reset, Init, &[QpType::Gsi], "PK QK", ""),
    (Init, Init, CONNECTED, "", "PK PO AC"),
    (Init, Init, &[QpType::Ud], "", "PK PO QK"),
    (Init, Init, &[QpType::Gsi], "", "PK QK"),
    (
        Init,
        Rtr,
        &[QpType::Rc, QpType::XrcRecv],
        "AV MTU DQ RP MD RNT",
        "ALT AC PK",
    ),
    (
        Init,
        Rtr,
        &[QpType::Uc, QpType::XrcSend],
        "AV MTU DQ RP",
        "ALT AC PK",
    ),
    (Init, Rtr, &[QpType::Ud, QpType::Gsi], "", "PK QK"),
    (
        Rtr,
        Rts,
        &[QpType::Rc],
        "TO RC RR SP MR",
        "CS ALT AC MIG RNT",
    ),
    (
        Rtr,
        Rts,
        &[QpType::XrcSend],
        "TO RC RR SP MR",
        "CS ALT AC MIG",
    ),
    (Rtr, Rts, &[QpType::XrcRecv], "TO SP", "CS ALT AC RNT MIG"),
    (Rtr, Rts, &[QpType::Uc], "SP", "CS ALT AC MIG"),
    (Rtr, Rts, &[QpType::Ud, QpType::Gsi], "SP", "CS QK"),
    (
        Rts,
        Rts,
        &[QpType::Rc, QpType::XrcRecv],
        "",
        "CS AC ALT MIG RNT",
    ),
    (
        Rts,
        Rts,
        &[QpType::Uc, QpType::XrcSend],
        "",
        "CS AC ALT MIG",
    ),
    (Rts, Rts, &[QpType::Ud, QpType::Gsi], "", "CS QK"),
    (Rts, Sqd, &QpType::ALL, "", "SQDN"),
    (
        Sqd,
        Rts,
        &[QpType::Rc, QpType::XrcRecv],
        "",
        "CS ALT AC RNT MIG",
    ),
    (
        Sqd,
        Rts,
        &[QpType::Uc, QpType::XrcSend],
        "",
        "CS ALT AC MIG",
    ),
    (Sqd, Rts, &[QpType::Ud, QpType::Gsi], "", "CS QK"),
    (
        Sqd,
        Sqd,
        &[QpType::Rc],
        "",
        "PO AV TO RC RR MR MD ALT AC PK RNT MIG",
    ),
    (
        Sqd,
        Sqd,
        &[QpType::XrcSend],
        "",
        "PO AV TO RC RR MR ALT AC PK MIG",
    ),
    (
        Sqd,
        Sqd,
        &[QpType::XrcRecv],
        "",
        "PO AV TO MD ALT AC PK RNT MIG",
    ),
    (Sqd, Sqd, &[QpType::Uc], "", "AV ALT AC PK MIG"),
    (Sqd, Sqd, &[QpType::Ud, QpType::Gsi], "", "PK QK"),
    (Sqe, Rts, &[QpType::Ud, QpType::Gsi], "", "CS QK"),
    (Sqe, Rts, &[QpType::Uc], "", "CS AC"),
];

fn expected(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    if to == Reset || (to == Error && from != Reset) {
        return Some(Transition::FREE);
    }
    ROWS.iter()
        .find(|row| row.0 == from && row.1 == to && row.2.contains(&qp_type))
        .map(|row| Transition {
            required: mask(row.3),
            optional: mask(row.4),
        })
}

fn all() -> impl Iterator<Item = (QpType, QpState, QpState)> {
    QpType::ALL.into_iter().flat_map(|qp_type| {
        QpState::ALL
            .into_iter()
            .flat_map(move |from| QpState::ALL.into_iter().map(move |to| (qp_type, from, to)))
    })
}

#[test]
fn the_table_is_the_specifications() {
    // proves: xrc-9
    for (qp_type, from, to) in all() {
        assert_eq!(
            transition(qp_type, from, to),
            expected(qp_type, from, to),
            "{qp_type} {from} to {to}"
        );
    }
}

#[test]
fn every_legal_mask_passes_and_every_missing_bit_fails() {
    // proves: roce-129
    for (qp_type, from, to) in all() {
        let Some(row) = expected(qp_type, from, to) else {
            let error = check(qp_type, from, to, AttrMask::STATE).unwrap_err();
            assert_eq!(error, AttrError::NoTransition { qp_type, from, to });
            continue;
        };
        let optional: Vec<AttrMask> = AttrMask::ALL
            .iter()
            .map(|entry| entry.0)
            .filter(|bit| row.optional.contains(*bit))
            .collect();
        for subset in 0u32..1 << optional.len() {
            let chosen = optional
                .iter()
                .enumerate()
                .filter(|(i, _)| subset & (1 << i) != 0)
                .fold(row.required, |mask, (_, bit)| mask | *bit);
            assert_eq!(check(qp_type, from, to, chosen), Ok(()));
            assert_eq!(check(qp_type, from, to, chosen | AttrMask::STATE), Ok(()));
        }
        for &(bit, name) in AttrMask::ALL
            .iter()
            .filter(|entry| row.required.contains(entry.0))
        {
            let error = check(qp_type, from, to, row.required - bit).unwrap_err();
            let AttrError::Attributes { missing, extra, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((missing, extra), (bit, AttrMask::NONE));
            assert!(
                error.to_string().contains(&format!("missing {name}")),
                "{error}"
            );
        }
    }
}

#[test]
fn every_extra_bit_fails() {
    // proves: roce-130
    for (qp_type, from, to) in all() {
        let Some(row) = expected(qp_type, from, to) else {
            continue;
        };
        let allowed = row.required | row.optional | AttrMask::STATE;
        for bit in (0..32)
            .map(|bit| AttrMask(1 << bit))
            .filter(|bit| !allowed.contains(*bit))
        {
            let error = check(qp_type, from, to, row.required | bit).unwrap_err();
            let AttrError::Attributes { missing, extra, .. } = error else {
                panic!("{error}")
            };
            assert_eq!((missing, extra), (AttrMask::NONE, bit));
        }
    }
}

#[test]
fn err_leaves_only_to_reset() {
    // proves: roce-131
    for qp_type in QpType::ALL {
        for to in QpState::ALL {
            let legal = to == Reset || to == Error;
            assert_eq!(
                transition(qp_type, Error, to).is_some(),
                legal,
                "{qp_type} ERR to {to}"
            );
        }
        for (from, to) in [
            (Init, Rts),
            (Rtr, Rtr),
            (Rtr, Sqd),
            (Rts, Rtr),
            (Reset, Error),
        ] {
            assert_eq!(
                transition(qp_type, from, to),
                None,
                "{qp_type} {from} to {to}"
            );
        }
    }
}

#[test]
fn the_claimed_state_is_taken_only_from_rtr_rts_sqd_sqe() {
    for (qp_type, from, to) in all() {
        let Some(row) = transition(qp_type, from, to) else {
            continue;
        };
        if row.optional.contains(AttrMask::CUR_STATE) {
            assert!(
                matches!(from, Rtr | Rts | Sqd | Sqe),
                "{qp_type} {from} to {to}"
            );
        }
    }
}

#[test]
fn values_are_those_of_the_verbs() {
    for (value, state) in QpState::ALL.into_iter().enumerate() {
        assert_eq!(state as usize, value);
        assert_eq!(
            QpState::from_value(u8::try_from(value).unwrap()),
            Some(state)
        );
    }
    for qp_type in QpType::ALL {
        assert_eq!(QpType::from_value(qp_type as u8), Some(qp_type));
    }
    assert_eq!(AttrMask::DEST_QPN.0, 0x10_0000);
    assert_eq!(AttrMask::RATE_LIMIT.0, 0x200_0000);
    assert_eq!(AttrMask::MAX_DEST_RD_ATOMIC.0, 0x2_0000);
    assert_eq!(
        (AttrMask(1) | AttrMask(1 << 30)).to_string(),
        "STATE 0x40000000"
    );
}
