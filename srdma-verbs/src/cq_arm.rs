//! Arming with an answer: whether completions are there that give no event.   [events 3.2]

use crate::cq::Cq;
use crate::driver::ids::lock;
use crate::error::Result;

impl Cq {
    /// As [`arm`](Self::arm), and says whether completions are in the queue that may give no event:
    /// true means "poll again". False means that any completion that comes from here on gives one
    /// (with `solicited_only`, any that is solicited or failed).
    // rule: mcq-2
    pub fn arm_reporting(&self, solicited_only: bool) -> Result<bool> {
        self.arm(solicited_only)?;
        // The device has taken the arm: what it published before is visible, what it publishes
        // afterwards gives the event.
        Ok(lock(&self.inner.state).reaper.has_next())
    }
}
