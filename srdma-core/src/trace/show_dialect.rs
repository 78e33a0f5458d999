//! Completions, events and arms in the words of other NICs, for readers.
//!
//! What stands in memory is decoded; the words behind the bar are those of memory, so big-endian
//! fields of the mlx5 dialect appear turned over there.

use super::Record;
use super::show::Shown;
use crate::hw::dialect::{SlotWords, hns, mlx5};
use core::fmt::Debug;

/// Shows the fields of words.
macro_rules! fields {
    ($shown:ident, $($word:ty = $bits:expr),* $(,)?) => {{
        $( <$word>::from_bits($bits).each_field(&mut |name, range, overlay, value| {
            if !overlay {
                $shown.bits(name, range, value);
            }
        }); )*
    }};
}

fn entry(what: &'static str, place: &[&str], record: &Record<'_>) -> (Shown, SlotWords) {
    let mut shown = Shown::new(what);
    for (at, name) in place.iter().enumerate() {
        shown.add(name, record.word(at));
    }
    let words = record.rest(place.len());
    shown.words = words.to_vec();
    let word = |at| words.get(at).copied().unwrap_or(0);
    (shown, core::array::from_fn(word))
}

fn name(shown: &mut Shown, field: &str, value: &dyn Debug) {
    shown.add(field, format_args!("{value:?}"));
}

pub(super) fn mlx5_cqe(record: &Record<'_>) -> Shown {
    let (mut shown, words) = entry("cqe", &["cq", "slot"], record);
    let [first, context, _, flags, key, count, time, last] = words.map(u64::swap_bytes);
    let failed = mlx5::cqe::decode(&words).error.is_some();
    fields!(
        shown,
        mlx5::cqe::CqeLast = last,
        mlx5::cqe::CqeFirst = first,
        mlx5::cqe::CqeKey = key,
        mlx5::cqe::CqeCount = count,
    );
    shown.hex("context", context);
    if failed {
        fields!(shown, mlx5::cqe::CqeError = time);
    } else {
        fields!(shown, mlx5::cqe::CqeFlags = flags);
    }
    meaning(&mut shown, &mlx5::cqe::decode(&words));
    shown
}

pub(super) fn hns_cqe(record: &Record<'_>) -> Shown {
    let (mut shown, words) = entry("cqe", &["cq", "slot"], record);
    let [first, queue, len, peer, context, _, _, flags] = words;
    fields!(
        shown,
        hns::cqe::CqeFirst = first,
        hns::cqe::CqeQueue = queue,
        hns::cqe::CqeLen = len,
        hns::cqe::CqePeer = peer,
        hns::cqe::CqeFlags = flags,
    );
    shown.hex("context", context);
    meaning(&mut shown, &hns::cqe::decode(&words));
    shown
}

/// What both dialects mean by their numbers.
fn meaning(shown: &mut Shown, info: &crate::hw::CqeInfo) {
    if let Some(code) = info.flush_code() {
        name(shown, "flush", &code);
    } else if info.sq {
        name(shown, "operation", &crate::hw::SqOp(info.op));
    }
    if let Some(imm) = info.imm {
        shown.hex("immediate", imm.into());
    }
    if let Some(wr_id) = info.srq_wr_id {
        shown.hex("wr_id", wr_id);
    }
    if let Some(time) = info.timestamp {
        shown.add("timestamp_ns", time);
    }
}

pub(super) fn mlx5_eqe(what: &'static str, place: usize, record: &Record<'_>) -> Shown {
    let names: &[&str] = if place == 2 {
        &["eq", "index"]
    } else {
        &["index"]
    };
    let (mut shown, words) = entry(what, names, record);
    let [first, _, _, _, data, more, _, last] = words.map(u64::swap_bytes);
    let event = mlx5::eqe::EqeFirst::from_bits(first).event();
    name(&mut shown, "event", &event);
    fields!(shown, mlx5::eqe::EqeLast = last);
    let data = mlx5::eqe::EqeData::from_bits(data);
    match event {
        mlx5::eqe::EventType::CMD => shown.hex("commands", data.commands().into()),
        mlx5::eqe::EventType::CQ_ERROR => {
            shown.add("cqn", data.cqn());
            fields!(shown, mlx5::eqe::EqeMore = more);
        }
        mlx5::eqe::EventType::PORT_CHANGE => fields!(
            shown,
            mlx5::eqe::EqeFirst = first,
            mlx5::eqe::EqeMore = more
        ),
        mlx5::eqe::EventType::COMP => {}
        _ => fields!(shown, mlx5::eqe::EqeData = data.bits()),
    }
    shown
}

pub(super) fn hns_ceqe(record: &Record<'_>) -> Shown {
    let (mut shown, [word, ..]) = entry("ceqe", &["ceq", "index"], record);
    fields!(shown, hns::eqe::CeqeWord = word);
    shown
}

pub(super) fn hns_aeqe(record: &Record<'_>) -> Shown {
    let (mut shown, [word, state, ..]) = entry("aeqe", &["index"], record);
    fields!(
        shown,
        hns::eqe::AeqeWord = word,
        hns::eqe::AeqeState = state
    );
    shown
}

pub(super) fn mlx5_arm(record: &Record<'_>) -> Shown {
    let (mut shown, [word, ..]) = entry("arm", &["cq"], record);
    fields!(shown, mlx5::ArmWord = word.swap_bytes());
    shown
}

pub(super) fn hns_arm(record: &Record<'_>) -> Shown {
    let (mut shown, [word, ..]) = entry("arm", &["cq"], record);
    fields!(shown, hns::DbWord = word);
    shown
}
