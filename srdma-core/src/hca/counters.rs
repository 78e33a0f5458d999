//! Counters: what the device did and what it dropped, by cause.
//!
//! ```text
//! port        what rxe counts, under rxe's names, so that tools find what they expect
//! transport   packets, bytes, acknowledgements, retries
//! drops       one cause each; a dropped packet moves exactly one of them
//! events      CQEs, CEQEs, AEQEs, interrupts, control commands
//! ```
//!
//! Plain `u64`s: whoever holds the device adds to them. Nothing here is shared between threads.

use crate::wire::Malformed;

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident ),* $(,)?) => {
        /// All counters of one device, each named as in [`Counters::iter`].
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub struct Counters {
            $( $(#[$doc])* pub $name: u64, )*
            /// Datagrams that were no packet, by [`Malformed::index`].
            malformed: [u64; Malformed::COUNT],
        }

        impl Counters {
            /// Every counter with its name, in the order of declaration, malformed kinds last.
            // A piece of code for each counter: once is enough.
            #[inline(never)]
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                let named = [$( (stringify!($name), self.$name) ),*];
                let malformed = MALFORMED_NAMES.into_iter().zip(self.malformed);
                named.into_iter().chain(malformed)
            }
        }
    };
}

counters! {
    // ---- rxe's names -----------------------------------------------------------------
    /// Packets sent.
    sent_pkts,
    /// Packets received and accepted.
    rcvd_pkts,
    /// Requests that were received before.
    duplicate_request,
    /// Requests beyond the expected PSN.
    out_of_seq_request,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// PSN sequence NAKs received.
    rcvd_seq_err,
    /// Acknowledgements that waited and were merged with a later one.
    ack_deferred,
    /// QPs that gave up after the last retry.
    retry_exceeded_err,
    /// QPs that gave up after the last RNR retry.
    retry_rnr_exceeded_err,
    /// Times that a requester went back to an earlier PSN.
    completer_retry_err,
    /// SEND messages completed as requester.
    rdma_sends,
    /// SEND messages completed as responder.
    rdma_recvs,
    // ---- transport -------------------------------------------------------------------
    /// Bytes sent, from the BTH to the ICRC.
    sent_bytes,
    /// Bytes received and accepted, from the BTH to the ICRC.
    rcvd_bytes,
    /// Send batches handed to the socket.
    sent_batches,
    /// Positive acknowledgements sent.
    sent_acks,
    /// Positive acknowledgements received.
    rcvd_acks,
    /// NAKs sent, without RNR.
    sent_naks,
    /// NAKs received, without RNR.
    rcvd_naks,
    /// Packets sent again.
    retransmitted_pkts,
    /// Retransmission timers that expired.
    ack_timeouts,
    /// READ requests sent.
    rdma_reads,
    /// WRITE messages completed as requester.
    rdma_writes,
    /// Atomics completed as requester.
    rdma_atomics,
    /// READ requests answered as responder.
    inbound_reads,
    /// WRITE messages executed as responder.
    inbound_writes,
    /// Atomics executed as responder.
    inbound_atomics,
    /// READ responses out of sequence, or acknowledgements that left a gap before them.
    implied_nak,
    /// READ and atomic responses that were placed ahead of their turn.
    responses_ahead,
    /// Request packets from the middle of a message whose payload was placed ahead of their turn.
    requests_ahead,
    /// Datagrams that carried an ECN congestion mark.
    rcvd_ecn_marked,
    /// Congestion notifications received.
    rcvd_cnps,
    // ---- drops -----------------------------------------------------------------------
    /// The ICRC fits no admissible header.
    icrc_error,
    /// Intact, but sent with leave to fragment.
    icrc_df_clear,
    /// Intact with an identification far from the last one of its source.
    icrc_id_jump,
    /// No QP of this number.
    unknown_qpn,
    /// The opcode is of another service than the QP.
    wrong_service,
    /// The QP is in no state to take the packet.
    bad_state,
    /// From another address than the QP is connected to, or to another.
    wrong_source,
    /// The P_Key does not match.
    bad_pkey,
    /// The Q_Key does not match.
    bad_qkey,
    /// Datagrams for a QP without a receive WQE.
    no_recv_wqe,
    /// Messages of an unreliable service with a packet missing.
    uc_dropped,
    /// Datagrams longer than the posted buffer, or to a faulty one.
    ud_dropped,
    /// Responses that answer nothing that is open.
    stale_response,
    /// Duplicate READs and atomics whose record is gone.
    replay_missing,
    /// Multicast packets without an attached QP.
    mcast_dropped,
    /// Packets of an opcode that is not spoken here.
    unsupported_opcode,
    // ---- exception queue -------------------------------------------------------------
    // rule: puda-12
    /// Reliable requests that came ahead of their turn. Each moves one of the next six as well.
    ieq_total,
    /// Of those, dropped: nothing is kept here, or the peer was told to wait.
    ieq_dropped,
    /// Of those, taken in.
    ieq_out_of_order,
    /// Of those, handed to the driver.
    ieq_captured,
    /// Further copies of packets that are held.
    ieq_dup_held,
    /// Packets too far ahead to be held.
    ieq_bad_seq_num,
    /// Packets out of order for which there was no buffer.
    ieq_no_rx_bufs,
    /// Packets that the driver gave back.
    ieq_returned,
    /// Of those taken in or given back, served when their turn came.
    ieq_reinjected,
    /// Of those, given up.
    ieq_discarded,
    /// Damaged packets, no packets, and packets for nobody, copied for the driver.
    ieq_tapped,
    /// Of those, not copied: too many, or no buffer.
    ieq_capture_dropped,
    /// Queue pairs that too many damaged packets ended.
    ieq_latched,
    /// Packets that were missing and sent again alone.
    ieq_mended,
    // ---- events ----------------------------------------------------------------------
    /// Completions written.
    cqes,
    /// Completion queues that overran.
    cq_overruns,
    /// Completion events written.
    ceqes,
    /// Arms that found completions there, in the arm model that reports them.
    arms_missed,
    /// Asynchronous events written.
    aeqes,
    /// Asynchronous events lost for want of room.
    aeqes_lost,
    /// Interrupts raised.
    interrupts,
    /// Doorbells taken.
    doorbells,
    /// Control commands executed.
    cqp_commands,
    /// Control commands refused.
    cqp_errors,
}

/// Names of the malformed kinds, at [`Malformed::index`].
const MALFORMED_NAMES: [&str; Malformed::COUNT] = [
    "malformed_too_short",
    "malformed_version",
    "malformed_opcode",
    "malformed_pad",
    "malformed_length",
];

/// What counts dropped packets, beside the malformed kinds.
const DROPS: [&str; 15] = [
    "icrc_error",
    "icrc_id_jump",
    "unknown_qpn",
    "wrong_service",
    "bad_state",
    "wrong_source",
    "bad_pkey",
    "bad_qkey",
    "no_recv_wqe",
    "uc_dropped",
    "ud_dropped",
    "stale_response",
    "replay_missing",
    "mcast_dropped",
    "unsupported_opcode",
];

/// Where a packet that left the fast path ends.
const EXCEPTIONS: [&str; 8] = [
    "ieq_dropped",
    "ieq_out_of_order",
    "ieq_captured",
    "ieq_dup_held",
    "ieq_bad_seq_num",
    "ieq_no_rx_bufs",
    "ieq_tapped",
    "ieq_capture_dropped",
];

fn is_drop(name: &str) -> bool {
    DROPS.contains(&name) || MALFORMED_NAMES.contains(&name)
}

impl Counters {
    /// Counts one datagram that was no packet.
    #[allow(
        clippy::indexing_slicing,
        reason = "an index of a kind is below the number of kinds"
    )]
    pub const fn malformed(&mut self, kind: Malformed) {
        self.malformed[kind.index()] += 1;
    }

    /// The counter of drops that moved since `before`, malformed kinds included.
    #[must_use]
    pub fn drop_since(&self, before: &Self) -> Option<&'static str> {
        self.moved(before, is_drop)
    }

    /// The bucket of the exception queue that moved since `before`.
    #[must_use]
    pub fn exception_since(&self, before: &Self) -> Option<&'static str> {
        self.moved(before, |name| EXCEPTIONS.contains(&name))
    }

    /// The first wanted counter that moved since `before`.
    fn moved(&self, before: &Self, wanted: impl Fn(&str) -> bool) -> Option<&'static str> {
        let both = self.iter().zip(before.iter());
        let mut moved = both.filter_map(|((name, now), (_, then))| (now != then).then_some(name));
        moved.find(|name| wanted(name))
    }

    /// The counter called `name`.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<u64> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_cause_has_its_own_name() {
        let mut counters = Counters {
            icrc_error: 3,
            ..Counters::default()
        };
        for kind in Malformed::ALL {
            counters.malformed(kind);
        }
        let names: HashSet<_> = counters.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), counters.iter().count());
        assert_eq!(counters.named("icrc_error"), Some(3));
        assert_eq!(counters.named("malformed_pad"), Some(1));
        assert_eq!(counters.named("no such"), None);
        let before = Counters::default();
        assert_eq!(counters.drop_since(&before), Some("icrc_error"));
        assert!(EXCEPTIONS.iter().all(|name| counters.named(name).is_some()));
        assert!(DROPS.iter().all(|name| counters.named(name).is_some()));
    }
}
