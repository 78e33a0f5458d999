//! One queue pair: its states, its attributes, and the machines that send and receive for it.

pub mod attr;
