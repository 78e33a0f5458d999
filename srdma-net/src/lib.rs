//! srdma-net
