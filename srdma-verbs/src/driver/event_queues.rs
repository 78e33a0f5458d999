//! The event queues of a device: their memory, their reading ends, and the commands that make them.
//!
//! ```text
//!              E810              mlx5                    hns
//! completions  65,536 a vector   1024 and spare          4096      one queue a vector
//! other events 4096              4096 and spare          4096      vector 0
//! commands     with completions  32 and spare            with completions
//! ```
//!
//! An E810's completion event queue has an entry for every completion queue; those of the others
//! may have less room, and events wait then.                        [events 4.1, 4.8]
//!
//! The mlx5 dialect has no queue for requests for memory: this device makes none, and its driver
//! skips the queue then.

use super::alloc::RingMem;
use super::engine::Engine;
use super::irq::Irq;
use crate::error::Reason;
use srdma_core::hca::vectors::Layout;
use srdma_core::hw::cqp::{CreateAeq, CreateCeq};
use srdma_core::hw::dialect::mlx5;
use srdma_core::hw::{Aeqe, Ceqe, CqpCmd, Dialect};
use srdma_core::num::{CeqId, MsixVector};
use srdma_core::ring::{CommandsDone, Consumer, Entry};

/// Entries of an E810's completion event queue: as many CQs may report to it, so a device has no
/// more.
const CEQ_ENTRIES: u32 = 65_536;
/// Completion queues of a program: one entry is the control queue's.
pub(crate) const MAX_CQ: u32 = CEQ_ENTRIES - 1;
const _: () = assert!(2 + MAX_CQ < srdma_core::limits::MAX_CQ);
/// Entries of an E810's and hns's asynchronous event queue, and of hns's for completions.
const EQ_ENTRIES: u32 = 4096;

/// Entries of a completion event queue.
const fn ceq_entries(dialect: Dialect) -> u32 {
    match dialect {
        Dialect::Mlx5 => (1024 + mlx5::EQ_SPARE).next_power_of_two(),
        Dialect::Hns => EQ_ENTRIES,
        _ => CEQ_ENTRIES,
    }
}

/// Entries of the asynchronous event queue.
const fn aeq_entries(dialect: Dialect) -> u32 {
    match dialect {
        Dialect::Mlx5 => (EQ_ENTRIES + mlx5::EQ_SPARE).next_power_of_two(),
        _ => EQ_ENTRIES,
    }
}

/// Entries of the queue for completed commands.
const COMMAND_ENTRIES: u32 = (32 + mlx5::EQ_SPARE).next_power_of_two();

/// Alignment of a queue.                                               [E810 1.7]
const ALIGN: usize = 256;

/// Memory and reading ends of the event queues, and the commands that create them, in the order in
/// which they are given.
pub(super) fn event_queues(
    engine: &Engine,
    dialect: Dialect,
    layout: Layout,
) -> Result<(Irq, Vec<CqpCmd>), Reason> {
    let ceqs = layout.ceqs();
    let (ceq_size, aeq_size) = (ceq_entries(dialect), aeq_entries(dialect));
    let bytes = |len: usize| len.next_multiple_of(ALIGN);
    let ceq_len = bytes(Ceqe::ring_bytes(dialect, ceq_size));
    let aeq_len = bytes(Aeqe::ring_bytes(dialect, aeq_size));
    let has_commands = dialect == Dialect::Mlx5;
    let command_len = if has_commands {
        bytes(CommandsDone::ring_bytes(dialect, COMMAND_ENTRIES))
    } else {
        0
    };
    let aeq_at = ceq_len * usize::from(ceqs);
    let command_at = aeq_at + aeq_len;
    let mem = RingMem::new(engine, command_at + command_len)?;
    let mut cmds = Vec::new();
    let mut commands = None;
    if has_commands {
        commands = Some(consumer(
            dialect,
            &mem,
            [command_at, command_len],
            COMMAND_ENTRIES,
        )?);
        cmds.push(CqpCmd::CreateCeq(CreateCeq {
            id: mlx5::COMMANDS,
            entries: COMMAND_ENTRIES,
            addr: mem.addr(command_at),
            vector: MsixVector(0),
        }));
    }
    let mut consumers = Vec::new();
    for ceq in 0..ceqs {
        let at = ceq_len * usize::from(ceq);
        consumers.push(consumer(dialect, &mem, [at, ceq_len], ceq_size)?);
        cmds.push(CqpCmd::CreateCeq(CreateCeq {
            id: CeqId(ceq),
            entries: ceq_size,
            addr: mem.addr(at),
            vector: layout.vector_of(CeqId(ceq)),
        }));
    }
    let aeq = consumer(dialect, &mem, [aeq_at, aeq_len], aeq_size)?;
    cmds.push(CqpCmd::CreateAeq(CreateAeq {
        entries: aeq_size,
        addr: mem.addr(aeq_at),
        vector: MsixVector(0),
    }));
    Ok((Irq::new(consumers, aeq, commands, mem), cmds))
}

fn consumer<E: Entry>(
    dialect: Dialect,
    mem: &RingMem,
    [at, len]: [usize; 2],
    entries: u32,
) -> Result<Consumer<E>, Reason> {
    let words = mem.words(at, len)?;
    Consumer::speaking(dialect, words, entries)
        .map_err(|_| Reason::Host(srdma_core::mem::HostFault::OutOfRange))
}
