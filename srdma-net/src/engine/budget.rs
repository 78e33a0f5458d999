//! How much may be under way towards a socket.

/// Most bytes of READ responses under way: what waits in the socket longer has left the processor's
/// caches when it is read, and whoever falls behind once stays behind.
const MAX_RESPONSES: u32 = 5 << 19;

/// How much may be in flight: requests towards a peer whose socket holds `rmem` bytes, and READ
/// responses towards ours, which holds `granted`.
///
/// ```text
/// rmem | 2/5: requests of one peer | a fifth: READ responses | 3/20: ACKs | quarter: see below |
/// ```
///
/// The kernel gives a quarter of the memory back late (its reader's `forward_deficit`). What the
/// device counts is right for packets that are sent together and share memory. Without GSO each has
/// its own, rounded up to a power of two, up to 7/4 of what is counted. Acknowledgements, a
/// kilobyte each, have a share of their own with GSO, and without it the margin of that rounding.
pub(super) fn budgets(rmem: u32, granted: u32, gso: bool) -> (u32, u32) {
    let (counted, requests, acks): (fn(u32) -> u32, _, _) = if gso {
        (|bytes| bytes, rmem / 5 * 2, rmem / 20 * 3)
    } else {
        (|bytes| bytes / 5 * 2, rmem / 2, 0)
    };
    let others = requests + acks;
    let responses = (granted / 4 * 3).saturating_sub(others);
    let responses = responses.min(MAX_RESPONSES).max(rmem / 8);
    (counted(requests), counted(responses))
}

#[cfg(test)]
mod tests {
    use super::{MAX_RESPONSES, budgets};

    #[test]
    fn what_is_in_flight_fits_the_socket() {
        const RMEM: u32 = 212_992;
        const LARGE: u32 = 4096 + 768;
        const SMALL: u32 = 64 + 768;
        // What the kernel charges for 4 KiB packets: alone, and beside others in one send.
        for (gso, charged) in [(false, 8448), (true, 4096 + 960)] {
            let (requests, responses) = budgets(RMEM, RMEM, gso);
            let packets = requests / LARGE + responses / LARGE;
            assert!(packets * charged <= RMEM / 4 * 3, "{packets} packets");
            assert!(requests / LARGE >= 8, "requests starve: {requests}");
            assert!(responses / LARGE >= 4, "responses starve: {responses}");
        }
        // Small ones alone, each with its answer.
        let (requests, responses) = budgets(RMEM, RMEM, false);
        assert!((requests + responses) / SMALL * 2 * 960 <= RMEM / 4 * 3);
        let (requests, responses) = budgets(RMEM, 2 << 20, true);
        let others = requests + RMEM / 20 * 3;
        assert_eq!((requests, responses), (RMEM / 5 * 2, (3 << 19) - others));
        assert_eq!(budgets(RMEM, 8 << 20, true), (requests, MAX_RESPONSES));
    }
}
