//! Benchmarks of srdma that need no device on the other side: formats, rings, checksums.
//!
//! Instruction counts with budgets are in `tests/counts`. Whole-path figures come from `srdma-cli
//! perf`; BENCHMARKING.md says how each is made.
