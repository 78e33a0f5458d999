//! Protection domains: an id, and how many objects use it.
//!
//! A domain is nothing but the number that keys, windows, QPs and address handles are compared by.
//! What this does *not* do: the comparing (see `mem/` and the QPs).

use super::table::{Table, TableFault};
use crate::limits::MAX_PD;
use crate::num::PdId;

/// Why a command on a domain is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PdFault {
    /// No such domain.
    #[error("no such protection domain")]
    NotFound,
    /// Regions, windows, QPs, SRQs or address handles still use it.
    #[error("protection domain is in use")]
    InUse,
    /// The id could not be taken.
    #[error(transparent)]
    Table(#[from] TableFault),
}

/// The domains of the device, each with a count of its users.
#[derive(Debug)]
pub struct PdTable {
    users: Table<u32>,
}

impl Default for PdTable {
    fn default() -> Self {
        Self::new()
    }
}

impl PdTable {
    /// Without domains.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            users: Table::new(MAX_PD),
        }
    }

    /// Takes an id, chosen by the driver half.                      [E810 1.7]
    pub fn alloc(&mut self, pd: PdId) -> Result<(), PdFault> {
        if pd.value() >= MAX_PD {
            return Err(TableFault::OutOfRange.into());
        }
        self.users.insert(pd.value(), 0)?;
        Ok(())
    }

    /// Gives an id back; refused while objects use it.
    pub fn dealloc(&mut self, pd: PdId) -> Result<(), PdFault> {
        match self.users.by_number(pd.value()) {
            None => Err(PdFault::NotFound),
            Some(0) => {
                self.users.remove(pd.value());
                Ok(())
            }
            Some(_) => Err(PdFault::InUse),
        }
    }

    /// One more object uses the domain.
    pub fn add_user(&mut self, pd: PdId) -> Result<(), PdFault> {
        let users = self
            .users
            .by_number_mut(pd.value())
            .ok_or(PdFault::NotFound)?;
        *users = users.saturating_add(1);
        Ok(())
    }

    /// An object of the domain is gone.
    pub fn remove_user(&mut self, pd: PdId) {
        if let Some(users) = self.users.by_number_mut(pd.value()) {
            assert!(*users > 0, "a domain loses no more users than it had");
            *users -= 1;
        }
    }

    /// True if the domain exists.
    #[must_use]
    pub fn exists(&self, pd: PdId) -> bool {
        self.users.by_number(pd.value()).is_some()
    }

    /// How many objects use the domain.
    #[must_use]
    pub fn users(&self, pd: PdId) -> Option<u32> {
        self.users.by_number(pd.value()).copied()
    }

    /// How many domains there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True without domains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_in_use_stays() {
        let mut pds = PdTable::new();
        pds.alloc(PdId(3)).unwrap();
        assert_eq!(pds.alloc(PdId(3)), Err(PdFault::Table(TableFault::Taken)));
        pds.add_user(PdId(3)).unwrap();
        assert_eq!(pds.dealloc(PdId(3)), Err(PdFault::InUse));
        pds.remove_user(PdId(3));
        assert_eq!(pds.users(PdId(3)), Some(0));
        assert_eq!(pds.dealloc(PdId(3)), Ok(()));
        assert_eq!(pds.dealloc(PdId(3)), Err(PdFault::NotFound));
        assert!(pds.is_empty() && !pds.exists(PdId(3)));
    }

    #[test]
    fn ids_have_18_bits() {
        let mut pds = PdTable::new();
        assert_eq!(
            pds.alloc(PdId(MAX_PD)),
            Err(PdFault::Table(TableFault::OutOfRange))
        );
        assert_eq!(pds.alloc(PdId(MAX_PD - 1)), Ok(()));
        assert_eq!(pds.add_user(PdId(5)), Err(PdFault::NotFound));
    }
}
