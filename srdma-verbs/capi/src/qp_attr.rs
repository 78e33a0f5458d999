//! Attributes of queue pairs, between C and the safe API. The bits of the mask are the same.

use crate::ah;
use crate::handle::{Errno, Outcome};
use crate::mr;
use crate::types::{ibv_qp_attr, ibv_qp_cap};
use core::ffi::c_int;
use srdma_verbs::{AttrMask, Mtu, Psn, Qkey, QpAttr, QpState, QpType, Qpn};

fn state(value: u32) -> Outcome<QpState> {
    let value = u8::try_from(value).map_err(|_| Errno::INVAL)?;
    QpState::from_value(value).ok_or(Errno::INVAL)
}

fn mtu(value: u32) -> Outcome<Mtu> {
    let found = Mtu::ALL.into_iter().find(|mtu| *mtu as u32 == value);
    found.ok_or(Errno::INVAL)
}

/// The attributes of a call that mean something: programs give the halves of XRC those of RC, and
/// what one half has no use for is left alone, as the kernel does.
pub(crate) fn heeded(qp: &srdma_verbs::Qp, mask: c_int) -> AttrMask {
    let mask = AttrMask(mask.cast_unsigned());
    let unused = match qp.qp_type() {
        QpType::XrcSend => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
        QpType::XrcRecv => AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY,
        _ => AttrMask::NONE,
    };
    mask.without(unused)
}

/// What a modify call changes.
pub(crate) fn change(attr: &ibv_qp_attr, mask: AttrMask) -> Outcome<QpAttr> {
    let has = |bit| mask.contains(bit);
    // Bits without a setter are refused by the table of transitions, which knows them all.
    let mut change = QpAttr::new().also(mask);
    if has(AttrMask::STATE) {
        change = change.state(state(attr.qp_state)?);
    }
    if has(AttrMask::CUR_STATE) {
        change = change.if_state(state(attr.cur_qp_state)?);
    }
    if has(AttrMask::EN_SQD_ASYNC_NOTIFY) {
        change = change.notify_drained(attr.en_sqd_async_notify != 0);
    }
    if has(AttrMask::ACCESS_FLAGS) {
        change = change.access(mr::access(attr.qp_access_flags)?);
    }
    if has(AttrMask::PKEY_INDEX) {
        change = change.pkey_index(attr.pkey_index);
    }
    if has(AttrMask::PORT) {
        change = change.port(attr.port_num);
    }
    if has(AttrMask::QKEY) {
        change = change.qkey(Qkey(attr.qkey));
    }
    if has(AttrMask::AV) {
        change = change.path(ah::path(&attr.ah_attr)?);
    }
    if has(AttrMask::PATH_MTU) {
        change = change.path_mtu(mtu(attr.path_mtu)?);
    }
    if has(AttrMask::DEST_QPN) {
        change = change.dest_qp(Qpn::new(attr.dest_qp_num));
    }
    if has(AttrMask::RQ_PSN) {
        change = change.rq_psn(Psn::new(attr.rq_psn));
    }
    if has(AttrMask::SQ_PSN) {
        change = change.sq_psn(Psn::new(attr.sq_psn));
    }
    Ok(counts(change, attr, mask))
}

/// The attributes that are small numbers.
fn counts(mut change: QpAttr, attr: &ibv_qp_attr, mask: AttrMask) -> QpAttr {
    let has = |bit| mask.contains(bit);
    if has(AttrMask::TIMEOUT) {
        change = change.timeout(attr.timeout);
    }
    if has(AttrMask::RETRY_CNT) {
        change = change.retry_cnt(attr.retry_cnt);
    }
    if has(AttrMask::RNR_RETRY) {
        change = change.rnr_retry(attr.rnr_retry);
    }
    if has(AttrMask::MIN_RNR_TIMER) {
        change = change.min_rnr_timer(attr.min_rnr_timer);
    }
    if has(AttrMask::MAX_QP_RD_ATOMIC) {
        change = change.max_rd_atomic(attr.max_rd_atomic);
    }
    if has(AttrMask::MAX_DEST_RD_ATOMIC) {
        change = change.max_dest_rd_atomic(attr.max_dest_rd_atomic);
    }
    change
}

/// Sizes of a queue pair.
pub(crate) fn cap_of(qp: &srdma_verbs::Qp) -> ibv_qp_cap {
    let caps = qp.caps();
    ibv_qp_cap {
        max_send_wr: caps.max_send_wr,
        max_recv_wr: caps.max_recv_wr,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_recv_sge,
        max_inline_data: caps.max_inline,
    }
}

/// Everything that is known of a queue pair.
pub(crate) fn query(qp: &srdma_verbs::Qp) -> ibv_qp_attr {
    let attr = qp.query();
    let state = attr.current_state() as u32;
    ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: attr.used_path_mtu() as u32,
        qkey: attr.own_qkey().value(),
        rq_psn: attr.first_rq_psn().value(),
        sq_psn: attr.first_sq_psn().value(),
        dest_qp_num: attr.peer_qp().value(),
        qp_access_flags: attr.allowed_access().bits(),
        cap: cap_of(qp),
        ah_attr: ah::attr_of(&attr.used_path()),
        pkey_index: attr.used_pkey_index(),
        en_sqd_async_notify: u8::from(attr.notifies_drained()),
        max_rd_atomic: attr.outbound_rd_atomic(),
        max_dest_rd_atomic: attr.inbound_rd_atomic(),
        min_rnr_timer: attr.rnr_timer_code(),
        port_num: attr.used_port(),
        timeout: attr.timeout_code(),
        retry_cnt: attr.retries(),
        rnr_retry: attr.rnr_retries(),
        ..ibv_qp_attr::default()
    }
}
