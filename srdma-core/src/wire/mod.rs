//! RoCEv2 packets: bytes in, meaning out. No state.
