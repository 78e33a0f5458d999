//! E810-format descriptors: words in, meaning out. No state.
