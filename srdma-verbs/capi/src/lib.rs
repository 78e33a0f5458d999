//! Drop-in `libibverbs.so.1` and `librdmacm.so.1`: unmodified verbs programs on srdma.
//!
//! ```text
//! program ─ exported symbol ─► trampoline in its version node (exports*.rs) ─┐
//!         ─ inline verb ─► table in or before ibv_context (vtable.rs) ───────┤
//!                                                                            ▼
//!             borrow the handle (handle.rs) ─► srdma_verbs ─► errno or object
//! ```
//!
//! | file | what |
//! |---|---|
//! | `types/` | the structures of `<infiniband/verbs.h>`, checked while compiling |
//! | `exports`, `exports_private`, `exports_cm` | symbols and version nodes |
//! | `ffi`, `handle` | raw memory, handles, errors |
//! | `device`, `context`, `vtable`, `query`, `gid` | devices, what they can do, the tables |
//! | `pd`, `domain`, `xrcd`, `mr`, `dm`, `mw`, `ah`, `import` | domains, memory, addresses, sharing of handles |
//! | `channel`, `cq`, `cq_poll`, `event` | completions and events |
//! | `qp`, `qp_attr`, `qp_build`, `srq`, `post` | queues and work requests |
//! | `text`, `rate`, `sysfs`, `kern`, `fork`, `exit` | helpers that programs call, and the process's end |
//! | `cm`, `unsupported` | what answers that it is not supported |
//!
//! Every function is `extern "C"`, so a panic ends the process and never unwinds into C. What this
//! does *not* do: keep state of its own beyond what C needs to see, or check what the safe API
//! checks. A program that breaks the contract of verbs (see `ffi`) harms only itself.

macro_rules! slot {
    ($function:path) => {
        $function as *const ()
    };
}

mod ah;
mod channel;
mod cm;
mod context;
mod cq;
mod cq_poll;
mod device;
mod dm;
mod domain;
mod event;
mod exit;
mod exports;
mod exports_cm;
mod exports_private;
mod ffi;
mod fork;
mod gid;
mod handle;
mod import;
mod kern;
mod mr;
mod mw;
mod pd;
mod post;
mod qp;
mod qp_attr;
mod qp_build;
mod query;
mod rate;
mod srq;
mod sysfs;
mod text;
mod types;
mod unsupported;
mod vtable;
mod xrcd;
