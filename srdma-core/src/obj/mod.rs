//! Objects of the device.
