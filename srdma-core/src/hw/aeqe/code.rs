//! Every asynchronous event code of the E810.                          [E810 5.3]
//!
//! Names are Intel's without the `AE_` prefix. What a code leads to: [`AeCode::class`].

open_enum! {
    /// Asynchronous event code, 12 bits.                              [E810 5.3]
    pub struct AeCode: u16 {
        /// No event; never written by a device.
        NONE = 0,
        /// Stag not allocated.
        AMP_UNALLOCATED_STAG = 0x0102,
        /// Stag in an invalid state.
        AMP_INVALID_STAG = 0x0103,
        /// Stag not bound to this QP.
        AMP_BAD_QP = 0x0104,
        /// Protection domains differ.
        AMP_BAD_PD = 0x0105,
        /// Key byte differs.
        AMP_BAD_STAG_KEY = 0x0106,
        /// Index out of range.
        AMP_BAD_STAG_INDEX = 0x0107,
        /// Outside of base and bound.
        AMP_BOUNDS_VIOLATION = 0x0108,
        /// Access rights.
        AMP_RIGHTS_VIOLATION = 0x0109,
        /// Address and length wrap.
        AMP_TO_WRAP = 0x010a,
        /// Target already valid.
        AMP_FASTREG_VALID_STAG = 0x010c,
        /// Target is a window.
        AMP_FASTREG_MW_STAG = 0x010d,
        /// Bad rights.
        AMP_FASTREG_INVALID_RIGHTS = 0x010e,
        /// Bad length.
        AMP_FASTREG_INVALID_LENGTH = 0x0110,
        /// Invalidate of a shared region.
        AMP_INVALIDATE_SHARED = 0x0111,
        /// Remote invalidate without rights.
        AMP_INVALIDATE_NO_REMOTE_ACCESS_RIGHTS = 0x0112,
        /// Region still has windows.
        AMP_INVALIDATE_MR_WITH_BOUND_WINDOWS = 0x0113,
        /// Bind of an already valid window.
        AMP_MWBIND_VALID_STAG = 0x0114,
        /// Window stag is a region.
        AMP_MWBIND_OF_MR_STAG = 0x0115,
        /// Parent is zero-based.
        AMP_MWBIND_TO_ZERO_BASED_STAG = 0x0116,
        /// Parent is a window.
        AMP_MWBIND_TO_MW_STAG = 0x0117,
        /// Bad rights.
        AMP_MWBIND_INVALID_RIGHTS = 0x0118,
        /// Bad bounds.
        AMP_MWBIND_INVALID_BOUNDS = 0x0119,
        /// Parent is not valid.
        AMP_MWBIND_TO_INVALID_PARENT = 0x011a,
        /// Parent lacks the bind right.
        AMP_MWBIND_BIND_DISABLED = 0x011b,
        /// Privileged operation on a user QP.
        PRIV_OPERATION_DENIED = 0x011c,
        /// Invalidate of a type 1 window.
        AMP_INVALIDATE_TYPE1_MW = 0x011d,
        /// Zero-based type 1 window.
        AMP_MWBIND_ZERO_BASED_TYPE1_MW = 0x011e,
        /// Bad page list.
        AMP_FASTREG_INVALID_PBL_HPS_CFG = 0x011f,
        /// Wrong type of window.
        AMP_MWBIND_WRONG_TYPE = 0x0120,
        /// Page list differs.
        AMP_FASTREG_PBLE_MISMATCH = 0x0121,
        /// Datagram longer than the MTU.
        UDA_XMIT_DGRAM_TOO_LONG = 0x0132,
        /// Domains of address handle and QP differ.
        UDA_XMIT_BAD_PD = 0x0133,
        /// Datagram too short.
        UDA_XMIT_DGRAM_TOO_SHORT = 0x0134,
        /// Bad header length.
        UDA_L4LEN_INVALID = 0x0135,
        /// Data received while closing.
        BAD_CLOSE = 0x0201,
        /// Peer closed with work pending.
        RDMAP_ROE_BAD_LLP_CLOSE = 0x0202,
        /// Completion queue overflow or fault.
        CQ_OPERATION_ERROR = 0x0203,
        /// READ with no outbound READs allowed.
        RDMA_READ_WHILE_ORD_ZERO = 0x0205,
        /// Stag 0 without privilege.
        STAG_ZERO_INVALID = 0x0206,
        /// More inbound READs than allowed.
        IB_RREQ_AND_Q1_FULL = 0x0207,
        /// NAK invalid request.
        IB_INVALID_REQUEST = 0x0208,
        /// Shared receive queue below its limit.
        SRQ_LIMIT = 0x0209,
        /// Opcode unknown or not for this QP.
        WQE_UNEXPECTED_OPCODE = 0x020a,
        /// Bad field in a WQE.
        WQE_INVALID_PARAMETER = 0x020b,
        /// Bad fragments in a WQE.
        WQE_INVALID_FRAG_DATA = 0x020c,
        /// NAK remote access.
        IB_REMOTE_ACCESS_ERROR = 0x020d,
        /// NAK remote operational.
        IB_REMOTE_OP_ERROR = 0x020e,
        /// Shared receive queue fault.
        SRQ_CATASTROPHIC_ERROR = 0x020f,
        /// IWARP.
        WQE_LSMM_TOO_LONG = 0x0220,
        /// Atomic on an unaligned address.
        ATOMIC_ALIGNMENT = 0x0221,
        /// Bad atomic mask.
        ATOMIC_MASK = 0x0222,
        /// Invalid request.
        INVALID_REQUEST = 0x0223,
        /// Atomics are off.
        PCIE_ATOMIC_DISABLE = 0x0224,
        /// IWARP.
        DDP_INVALID_MSN_GAP_IN_MSN = 0x0301,
        /// Receive buffer too small.
        DDP_UBE_DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER = 0x0303,
        /// IWARP.
        DDP_UBE_INVALID_DDP_VERSION = 0x0304,
        /// Bad message offset.
        DDP_UBE_INVALID_MO = 0x0305,
        /// IWARP: no receive WQE.
        DDP_UBE_INVALID_MSN_NO_BUFFER_AVAILABLE = 0x0306,
        /// IWARP.
        DDP_UBE_INVALID_QN = 0x0307,
        /// IWARP.
        DDP_NO_L_BIT = 0x0308,
        /// IWARP.
        RDMAP_ROE_INVALID_RDMAP_VERSION = 0x0311,
        /// Opcode out of sequence or not enabled.
        RDMAP_ROE_UNEXPECTED_OPCODE = 0x0312,
        /// Bad READ request.
        ROE_INVALID_RDMA_READ_REQUEST = 0x0313,
        /// Bad WRITE or READ response.
        ROE_INVALID_RDMA_WRITE_OR_READ_RESP = 0x0314,
        /// READ response of a wrong length.
        ROCE_RSP_LENGTH_ERROR = 0x0316,
        /// Multicast group without members.
        ROCE_EMPTY_MCG = 0x0380,
        /// Bad multicast address.
        ROCE_BAD_MC_IP_ADDR = 0x0381,
        /// Bad multicast member.
        ROCE_BAD_MC_QPID = 0x0382,
        /// Multicast member of another protocol.
        MCG_QP_PROTOCOL_MISMATCH = 0x0383,
        /// No address entry.
        INVALID_ARP_ENTRY = 0x0401,
        /// IWARP.
        INVALID_TCP_OPTION_RCVD = 0x0402,
        /// Stale address entry.
        STALE_ARP_ENTRY = 0x0403,
        /// No address handle.
        INVALID_AH_ENTRY = 0x0406,
        /// Graceful close done.
        LLP_CLOSE_COMPLETE = 0x0501,
        /// Reset by the peer.
        LLP_CONNECTION_RESET = 0x0502,
        /// Peer closes.
        LLP_FIN_RECEIVED = 0x0503,
        /// IWARP.
        LLP_RECEIVED_MARKER_AND_LENGTH_FIELDS_DONT_MATCH = 0x0504,
        /// CRC error.
        LLP_RECEIVED_MPA_CRC_ERROR = 0x0505,
        /// Segment too small.
        LLP_SEGMENT_TOO_SMALL = 0x0507,
        /// IWARP.
        LLP_SYN_RECEIVED = 0x0508,
        /// IWARP.
        LLP_TERMINATE_RECEIVED = 0x0509,
        /// Transport retries exhausted.
        LLP_TOO_MANY_RETRIES = 0x050a,
        /// Keep-alive retries exhausted.
        LLP_TOO_MANY_KEEPALIVE_RETRIES = 0x050b,
        /// Address entry needs a refresh.
        LLP_DOUBT_REACHABILITY = 0x050c,
        /// Connection established.
        LLP_CONNECTION_ESTABLISHED = 0x050e,
        /// RNR retries exhausted.
        LLP_TOO_MANY_RNRS = 0x050f,
        /// Resources exhausted.
        RESOURCE_EXHAUSTION = 0x0520,
        /// Reset sent.
        RESET_SENT = 0x0601,
        /// Terminate sent.
        TERMINATE_SENT = 0x0602,
        /// Reset not sent.
        RESET_NOT_SENT = 0x0603,
        /// Local engine: QP fault.
        LCE_QP_CATASTROPHIC = 0x0700,
        /// Local engine: function fault.
        LCE_FUNCTION_CATASTROPHIC = 0x0701,
        /// Local engine: CQ fault.
        LCE_CQ_CATASTROPHIC = 0x0702,
        /// Remote QP fault.
        REMOTE_QP_CATASTROPHIC = 0x0703,
        /// Local QP fault.
        LOCAL_QP_CATASTROPHIC = 0x0704,
        /// Remote engine: QP fault.
        RCE_QP_CATASTROPHIC = 0x0705,
        /// A QP is suspended.
        QP_SUSPEND_COMPLETE = 0x0900,
        /// Late result of a control command.
        CQP_DEFERRED_COMPLETE = 0x0901,
        /// The QP takes nothing more from its shared receive queue. `[srdma]`
        LAST_WQE_REACHED = 0x0910,
        /// A request named a shared receive queue that is not of the target's XRC domain. `[srdma]`
        XRC_DOMAIN_VIOLATION = 0x0911,
        /// The port carries packets again. `[srdma]`
        PORT_ACTIVE = 0x0920,
        /// The port carries packets no longer. `[srdma]`
        PORT_DOWN = 0x0921,
        /// An entry of the GID table came or went. `[srdma]`
        GID_CHANGE = 0x0922,
        /// Adapter fault.
        ADAPTER_CATASTROPHIC = 0x0b0b,
    }
}
