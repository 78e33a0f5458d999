//! How prompt a thread is.

use std::io;

/// The slice that the engine's thread asks for, ns. The shortest that the kernel takes; a thread
/// that wakes up runs before one that is busy if its slice is the shorter.
const SLICE_NS: u64 = 100_000;
/// How late its timers may come, ns; usually 50 µs.
const SLACK_NS: libc::c_ulong = 1;

/// The kernel's `struct sched_attr`, in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes this thread run soon after it is woken, and on time. Its share of the processor stays what
/// it was, and no privilege is needed; kernels before 6.12 take no slice from it.
pub(crate) fn be_prompt() -> io::Result<()> {
    // SAFETY: why needed: no safe wrapper. Why sound: numbers alone.
    syscall!(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0) })?;
    let size = u32::try_from(size_of::<SchedAttr>()).unwrap_or(0);
    let mut attr = SchedAttr {
        size,
        ..SchedAttr::default()
    };
    // SAFETY: why needed: not in libc's wrappers. Why sound: the kernel writes at most `size` bytes
    // into a local structure of that size; 0 is this thread.
    syscall!(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) })?;
    // Only for the usual policy: another was chosen by somebody who knew why.
    if attr.policy != 0 {
        return Ok(());
    }
    attr.size = size;
    attr.runtime = SLICE_NS;
    // SAFETY: why needed: as above. Why sound: the kernel reads `size` bytes of a local structure.
    syscall!(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_thread_may_be_prompt() {
        std::thread::spawn(|| be_prompt().unwrap()).join().unwrap();
    }
}
