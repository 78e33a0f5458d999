//! Memory of programs: their allocators, what is not mapped, what is mapped later.

use super::*;
use crate::context::Context;
use crate::device::DeviceConfig;
use crate::qp::Qp;
use crate::wc::{WcStatus, WrId};
use srdma_core::mem::Sge;
use srdma_core::num::{Lkey, Rkey};
use srdma_core::qp::attr::QpType;
use std::alloc::{Layout, alloc, dealloc};
use std::sync::Mutex;

/// Hands out dirty memory, and remembers what is out.
#[derive(Debug, Default)]
struct Program {
    out: Mutex<Vec<(usize, usize)>>,
    asked: Mutex<usize>,
    answer: Mutex<Option<bool>>,
}

// SAFETY: why needed: the promise of the trait. Why sound: memory of the global allocator, of
// that size and alignment, which only `free` gives back.
unsafe impl RingAlloc for Program {
    fn alloc(&self, len: usize, align: usize) -> RingBlock {
        *self.asked.lock().unwrap() += 1;
        match *self.answer.lock().unwrap() {
            Some(true) => return RingBlock::Default,
            Some(false) => return RingBlock::Failed,
            None => {}
        }
        let layout = Layout::from_size_align(len, align).unwrap();
        // SAFETY: why needed: memory to hand out. Why sound: rings are never empty.
        let base = NonNull::new(unsafe { alloc(layout) }).unwrap();
        // SAFETY: why needed: to show that what was there does not matter. Why sound: within
        // the block that was just allocated.
        unsafe { base.write_bytes(0xa5, len) };
        self.out.lock().unwrap().push((base.as_ptr().addr(), len));
        RingBlock::At(base)
    }

    fn free(&self, base: NonNull<u8>, len: usize) {
        let mut out = self.out.lock().unwrap();
        let block = (base.as_ptr().addr(), len);
        let at = out.iter().position(|known| *known == block).unwrap();
        out.swap_remove(at);
        let layout = Layout::from_size_align(len, PAGE).unwrap();
        // SAFETY: why needed: what was handed out comes back. Why sound: of the same layout,
        // and found in the list, from which it is gone now.
        unsafe { dealloc(base.as_ptr(), layout) };
    }
}

#[test]
fn rings_lie_in_the_memory_of_a_program_until_they_are_gone() {
    let program = Arc::new(Program::default());
    let source = || Arc::clone(&program) as Arc<dyn RingAlloc>;
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(16).ring_alloc(source()).build().unwrap();
    let srq = pd.create_srq(8).ring_alloc(source()).build().unwrap();
    let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq);
    let qp = qp.srq(&srq).ring_alloc(source()).build().unwrap();
    assert!(cq.poll().next().is_none(), "old content is no completion");
    assert_eq!(program.out.lock().unwrap().len(), 3);
    cq.resize(64).unwrap();
    drop(qp);
    drop(srq);
    assert_eq!(
        program.out.lock().unwrap().len(),
        2,
        "both buffers of the CQ"
    );
    assert!(cq.poll().next().is_none());
    cq.destroy().unwrap();
    drop(cq);
    assert_eq!(program.out.lock().unwrap().len(), 0);
}

#[test]
fn an_allocator_may_refuse_or_pass() {
    let program = Arc::new(Program::default());
    let source = || Arc::clone(&program) as Arc<dyn RingAlloc>;
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    *program.answer.lock().unwrap() = Some(true);
    ctx.create_cq(16).ring_alloc(source()).build().unwrap();
    *program.answer.lock().unwrap() = Some(false);
    let refused = ctx.create_cq(16).ring_alloc(source()).build();
    assert_eq!(refused.unwrap_err().errno(), libc::ENOMEM);
    assert_eq!(*program.asked.lock().unwrap(), 2);
    assert!(program.out.lock().unwrap().is_empty());
}

/// Pages of the program: mapped, taken away and protected at will.
struct Pages {
    base: *mut u8,
    len: usize,
}

impl Pages {
    fn new(pages: usize) -> Self {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let len = pages * PAGE;
        // SAFETY: why needed: pages that can be taken away. Why sound: a new mapping.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base.cast::<u8>();
        base.expose_provenance();
        Self { base, len }
    }

    fn protect(&self, page: usize, prot: i32) {
        let at = self.base.wrapping_add(page * PAGE).cast();
        // SAFETY: why needed: pages that the program protects. Why sound: of our own mapping.
        assert_eq!(unsafe { libc::mprotect(at, PAGE, prot) }, 0);
    }

    fn addr(&self, offset: usize) -> u64 {
        self.base.addr() as u64 + offset as u64
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        let at = self.base.wrapping_add(offset);
        // SAFETY: why needed: memory without an owner in Rust. Why sound: within the mapping, and
        // tests write where they have not protected it.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        let mut bytes = vec![0; len];
        let at = self.base.wrapping_add(offset);
        // SAFETY: why needed: memory without an owner in Rust. Why sound: within the mapping.
        unsafe { at.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: why needed: gives the pages back. Why sound: nobody refers to them but regions
        // on demand, which ask.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

fn register(pd: &Pd, pages: &Pages, access: Access) -> core::result::Result<Mr, i32> {
    // SAFETY: why needed: the verb under test. Why sound: regions are dropped before their pages,
    // or are on demand; tests hold no references to them.
    let made = unsafe { pd.register_foreign(pages.base, pages.len, access) };
    made.map_err(|error| error.errno())
}

fn everything(pd: &Pd) -> Mr {
    let access = Access::LOCAL_WRITE | Access::REMOTE | Access::ON_DEMAND;
    // SAFETY: why needed: the verb under test. Why sound: tests use it for their own pages.
    unsafe { pd.register_foreign(core::ptr::null_mut(), usize::MAX, access) }.unwrap()
}

const WRITE: Access = Access::LOCAL_WRITE;

/// A connection of a device with itself.
fn pair(ctx: &Context, pd: &Pd) -> (crate::cq::Cq, Qp, Qp) {
    let cq = ctx.create_cq(64).build().unwrap();
    let build = || {
        let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq);
        qp.build().unwrap()
    };
    let (a, b) = (build(), build());
    let (ea, eb) = (a.endpoint(), b.endpoint());
    (cq.clone(), a.connect(&eb).unwrap(), b.connect(&ea).unwrap())
}

/// A WRITE and what became of it.
fn write(cq: &crate::cq::Cq, qp: &Qp, sge: Sge, to: (u64, Rkey)) -> WcStatus {
    let mut batch = qp.post_send();
    let wr = batch.write(WrId(1)).local(sge);
    let _ = wr.remote(to.0, to.1).signaled();
    batch.ring().unwrap();
    loop {
        if let Some(wc) = cq.poll().next() {
            return wc.status();
        }
    }
}

#[test]
fn only_mapped_memory_can_be_registered() {
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let pages = Pages::new(3);
    register(&pd, &pages, WRITE).unwrap();
    pages.protect(1, libc::PROT_READ);
    assert_eq!(register(&pd, &pages, WRITE).unwrap_err(), libc::EFAULT);
    register(&pd, &pages, Access::REMOTE_READ).unwrap();
    pages.protect(2, libc::PROT_NONE);
    let refused = register(&pd, &pages, Access::REMOTE_READ);
    assert_eq!(refused.unwrap_err(), libc::EFAULT);
    let wrong = register(&pd, &pages, Access::REMOTE_WRITE);
    assert_eq!(wrong.unwrap_err(), libc::EINVAL, "rights are checked first");
    // SAFETY: why needed: the verb under test. Why sound: it is refused.
    let nowhere = unsafe { pd.register_foreign(core::ptr::without_provenance_mut(PAGE), 8, WRITE) };
    assert_eq!(nowhere.unwrap_err().errno(), libc::EFAULT);
    register(&pd, &pages, WRITE | Access::ON_DEMAND).unwrap();
}

#[test]
fn a_region_is_registered_again_over_other_memory_or_stays() {
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let (pages, other) = (Pages::new(1), Pages::new(2));
    let mut mr = register(&pd, &pages, Access::LOCAL_READ).unwrap();
    // SAFETY: why needed: the verb under test. Why sound: the region ends before the pages.
    let change = unsafe { Rereg::new().foreign(other.base, other.len) };
    mr.rereg(change.access(WRITE)).unwrap();
    other.put(5000, b"moved");
    assert_eq!((mr.addr(), mr.len()), (other.addr(0), 2 * PAGE));
    assert_eq!(mr.to_vec(5000, 5).unwrap(), b"moved");
    other.protect(1, libc::PROT_NONE);
    // SAFETY: why needed: the verb under test. Why sound: it is refused.
    let change = unsafe { Rereg::new().foreign(other.base, other.len) };
    assert_eq!(mr.rereg(change).unwrap_err().errno(), libc::EFAULT);
    assert!(mr.is_registered(), "what is refused early changes nothing");
}

#[test]
fn an_implicit_region_reaches_what_is_there_and_fails_on_what_is_not() {
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let mr = everything(&pd);
    let pages = Pages::new(4);
    pages.put(100, b"across the address space");
    let sge = |offset: usize, len| Sge {
        addr: pages.addr(offset),
        len,
        lkey: mr.lkey(),
    };
    let (cq, a, _b) = pair(&ctx, &pd);
    let to = |offset| (pages.addr(offset), mr.rkey());
    assert_eq!(write(&cq, &a, sge(100, 24), to(8000)), WcStatus::Success);
    assert_eq!(pages.get(8000, 24), b"across the address space");

    pages.protect(3, libc::PROT_READ);
    let status = write(&cq, &a, sge(100, 24), to(3 * PAGE));
    assert_eq!(status, WcStatus::RemAccessErr);
    let (cq, a, _b) = pair(&ctx, &pd);
    assert_eq!(write(&cq, &a, sge(3 * PAGE, 8), to(0)), WcStatus::Success);
    pages.protect(3, libc::PROT_NONE);
    let status = write(&cq, &a, sge(3 * PAGE - 1, 8), to(0));
    assert_eq!(status, WcStatus::LocProtErr);
}

#[test]
fn advice_checks_keys_and_memory() {
    use crate::advise::Advice::{Prefetch, PrefetchNoFault, PrefetchWrite};
    let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
    let (pd, other) = (ctx.alloc_pd().unwrap(), ctx.alloc_pd().unwrap());
    let pages = Pages::new(2);
    let mr = everything(&pd);
    pages.protect(1, libc::PROT_READ);
    let sge = |offset, lkey| Sge {
        addr: pages.addr(offset),
        len: 8,
        lkey,
    };
    let errno = |pd: &Pd, advice, sge| pd.advise(advice, &[sge]).map_err(|error| error.errno());
    let (writable, fixed) = (sge(0, mr.lkey()), sge(PAGE, mr.lkey()));
    assert_eq!(errno(&pd, PrefetchWrite, writable), Ok(()));
    assert_eq!(errno(&pd, Prefetch, fixed), Ok(()));
    assert_eq!(errno(&pd, PrefetchWrite, fixed), Err(libc::EFAULT));
    assert_eq!(errno(&pd, PrefetchNoFault, fixed), Ok(()));
    assert_eq!(errno(&other, Prefetch, writable), Err(libc::EPERM));
    let unknown = sge(0, Lkey(mr.lkey().value() ^ 0xff00_0000));
    assert_eq!(errno(&pd, Prefetch, unknown), Err(libc::ENOENT));
    let region = register(&pd, &pages, Access::LOCAL_READ).unwrap();
    let beyond = sge(2 * PAGE, region.lkey());
    assert_eq!(errno(&pd, Prefetch, beyond), Err(libc::EFAULT));
    let reading = sge(0, region.lkey());
    assert_eq!(errno(&pd, PrefetchWrite, reading), Err(libc::EPERM));
    assert_eq!(pd.advise(Prefetch, &[]).unwrap_err().errno(), libc::EINVAL);
}
