//! Control commands: order, refusals, garbage.
