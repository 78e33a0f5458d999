//! Names of numbers, for messages of programs.

use core::ffi::{CStr, c_char, c_int};

/// Names by number, from `first` on.
fn name(
    names: &'static [&'static CStr],
    first: c_int,
    value: c_int,
    none: &'static CStr,
) -> *const c_char {
    let index = value
        .checked_sub(first)
        .and_then(|index| usize::try_from(index).ok());
    index
        .and_then(|index| names.get(index))
        .unwrap_or(&none)
        .as_ptr()
}

/// `ibv_node_type_str`
pub(crate) extern "C" fn node_type_str(value: c_int) -> *const c_char {
    const NAMES: [&CStr; 7] = [
        c"channel adapter",
        c"switch",
        c"router",
        c"iWARP adapter",
        c"usNIC",
        c"usNIC over UDP",
        c"unspecified",
    ];
    name(&NAMES, 1, value, c"unknown")
}

/// `ibv_port_state_str`
pub(crate) extern "C" fn port_state_str(value: c_int) -> *const c_char {
    const NAMES: [&CStr; 6] = [
        c"no state change",
        c"down",
        c"initializing",
        c"armed",
        c"active",
        c"active, deferred",
    ];
    name(&NAMES, 0, value, c"unknown")
}

/// `ibv_event_type_str`
pub(crate) extern "C" fn event_type_str(value: c_int) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"completion queue error",
        c"queue pair failed",
        c"invalid request of the peer",
        c"access of the peer refused",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration failed",
        c"device failed",
        c"port active",
        c"port down",
        c"LID changed",
        c"P_Key table changed",
        c"subnet manager changed",
        c"shared receive queue error",
        c"limit of the shared receive queue reached",
        c"last receive of the queue pair taken",
        c"client must register again",
        c"GID table changed",
        c"work queue failed",
    ];
    name(&NAMES, 0, value, c"unknown")
}

/// `ibv_wc_status_str`
pub(crate) extern "C" fn wc_status_str(value: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"work request flushed",
        c"memory window bind error",
        c"bad response",
        c"local access error",
        c"remote invalid request",
        c"remote access error",
        c"remote operation error",
        c"transport retries exceeded",
        c"RNR retries exceeded",
        c"local RDD violation",
        c"remote invalid RD request",
        c"operation aborted by the peer",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    name(&NAMES, 0, value, c"unknown")
}
