//! What verbs make of an asynchronous event.                            [E810 5.5; RoCEv2 3.9]
//!
//! What a completion reports is no event: errors of the send queue, and of receives that were
//! taken.

use super::{AeCode, AeSource, Aeqe, EventClass};
use crate::hw::FlushCode;

/// An event of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// None; the state of the queue pair may have changed.
    Nothing,
    /// `CQ_ERR`.
    CqError,
    /// `SRQ_LIMIT_REACHED`.
    SrqLimit,
    /// `SRQ_ERR`.
    SrqError,
    /// `DEVICE_FATAL`.
    DeviceFatal,
    /// `PORT_ACTIVE`.
    PortActive,
    /// `PORT_ERR`.
    PortDown,
    /// `GID_CHANGE`.
    GidChange,
    /// `SQ_DRAINED`.
    SqDrained,
    /// `COMM_EST`.
    CommEst,
    /// `QP_LAST_WQE_REACHED`.
    LastWqe,
    /// `QP_REQ_ERR`.
    Request,
    /// `QP_ACCESS_ERR`.
    Access,
    /// `QP_FATAL`.
    Fatal,
}

impl Aeqe {
    /// What verbs make of it.
    #[must_use]
    pub fn report(&self) -> Report {
        match self.code {
            _ if self.is_cq() => Report::CqError,
            AeCode::SRQ_LIMIT => Report::SrqLimit,
            AeCode::SRQ_CATASTROPHIC_ERROR => Report::SrqError,
            AeCode::ADAPTER_CATASTROPHIC => Report::DeviceFatal,
            AeCode::PORT_ACTIVE => Report::PortActive,
            AeCode::PORT_DOWN => Report::PortDown,
            AeCode::GID_CHANGE => Report::GidChange,
            AeCode::QP_SUSPEND_COMPLETE => Report::SqDrained,
            AeCode::LLP_CONNECTION_ESTABLISHED => Report::CommEst,
            AeCode::LAST_WQE_REACHED => Report::LastWqe,
            // It goes on; its owner is to stop it within a moment.
            // rule: irq-3
            AeCode::RDMAP_ROE_BAD_LLP_CLOSE => Report::Request,
            AeCode::NONE
            | AeCode::LLP_SYN_RECEIVED
            | AeCode::LLP_DOUBT_REACHABILITY
            | AeCode::RESOURCE_EXHAUSTION
            | AeCode::RESET_NOT_SENT
            | AeCode::CQP_DEFERRED_COMPLETE => Report::Nothing,
            code => of_queue_pair(code, self.source),
        }
    }
}

// rule: event-56, irq-1
fn of_queue_pair(code: AeCode, source: AeSource) -> Report {
    let (flush, class) = code.class();
    let completed = match source.class() {
        AeSource::SQ => true,
        AeSource::RQ => {
            flush == FlushCode::PROT
                || flush == FlushCode::LOC_LEN
                || code == AeCode::AMP_INVALIDATE_NO_REMOTE_ACCESS_RIGHTS
        }
        _ => false,
    };
    match class {
        _ if completed => Report::Nothing,
        _ if is_request_fault(code) => Report::Request,
        EventClass::Access => Report::Access,
        EventClass::Request => Report::Request,
        EventClass::Catastrophic => Report::Fatal,
    }
}

/// The peer sent what it may not: sequence, length, resources, alignment. [RoCEv2 3.9]
fn is_request_fault(code: AeCode) -> bool {
    matches!(
        code,
        AeCode::IB_RREQ_AND_Q1_FULL
            | AeCode::IB_INVALID_REQUEST
            | AeCode::INVALID_REQUEST
            | AeCode::ATOMIC_ALIGNMENT
            | AeCode::ATOMIC_MASK
            | AeCode::RDMAP_ROE_UNEXPECTED_OPCODE
            | AeCode::ROE_INVALID_RDMA_READ_REQUEST
            | AeCode::ROE_INVALID_RDMA_WRITE_OR_READ_RESP
            | AeCode::DDP_UBE_INVALID_MO
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(code: AeCode, source: AeSource) -> Report {
        Aeqe {
            code,
            source,
            ..Aeqe::default()
        }
        .report()
    }

    #[test]
    fn what_a_completion_reports_is_no_event() {
        for source in [AeSource::SQ, AeSource(7)] {
            assert_eq!(
                report(AeCode::LLP_TOO_MANY_RETRIES, source),
                Report::Nothing
            );
            assert_eq!(
                report(AeCode::AMP_BOUNDS_VIOLATION, source),
                Report::Nothing
            );
        }
        let long = AeCode::DDP_UBE_DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER;
        assert_eq!(report(long, AeSource::RQ), Report::Nothing);
        assert_eq!(
            report(AeCode::AMP_RIGHTS_VIOLATION, AeSource::RQ),
            Report::Nothing
        );
    }

    #[test]
    fn faults_of_the_peer_become_events() {
        for code in [
            AeCode::AMP_BOUNDS_VIOLATION,
            AeCode::AMP_BAD_PD,
            AeCode::AMP_TO_WRAP,
        ] {
            assert_eq!(report(code, AeSource::INBOUND), Report::Access, "{code:?}");
        }
        let code = AeCode::RDMAP_ROE_UNEXPECTED_OPCODE;
        assert_eq!(report(code, AeSource::RQ), Report::Request);
        let code = AeCode::IB_RREQ_AND_Q1_FULL;
        assert_eq!(report(code, AeSource::INBOUND), Report::Request);
        let code = AeCode::LOCAL_QP_CATASTROPHIC;
        assert_eq!(report(code, AeSource::NONE), Report::Fatal);
    }
}
