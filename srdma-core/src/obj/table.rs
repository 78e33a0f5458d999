//! Objects keyed by a number of up to 24 bits.
//!
//! ```text
//! number ──► page (4096 numbers, made on first use) ──► slab entry { generation, number, value }
//! Slot   ───────────────────────────────────────────►  the same entry, if its generation is equal
//! ```
//!
//! A number is what the other side knows (QPN, stag index, id); a [`Slot`] is what the device keeps
//! for itself. Generations come from one counter of the table, so a slot kept from before a removal
//! never matches what took its place. What this does *not* do: choose numbers (the driver half
//! does), or give memory of an emptied page back.

use slab::Slab;

/// Numbers of one page of the index.
const PAGE: usize = 4096;
/// Pages of the whole 24-bit space.
const PAGES: usize = 4096;

/// Index entry without an object; others are the slab index plus one.
const FREE: u32 = 0;

/// Where an object is, and which one of those that were there: the device's own handle.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash, Default)]
pub struct Slot {
    /// Place in the slab.
    pub index: u32,
    /// Which of the objects that had this place; never 0 for one that exists.
    pub generation: u32,
}

impl Slot {
    /// A slot that never matches anything.
    pub const NONE: Self = Self {
        index: 0,
        generation: 0,
    };

    /// True for [`Slot::NONE`] and its like: no table gives out generation 0.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.generation == 0
    }
}

/// Why an object could not enter a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableFault {
    /// The number names another object.
    #[error("number is taken")]
    Taken,
    /// As many objects as the device may have.
    #[error("no room for another object")]
    Full,
    /// The number has more than 24 bits.
    #[error("number is out of range")]
    OutOfRange,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    number: u32,
    value: T,
}

/// Objects by number: a slab with generations behind a two-level index.
#[derive(Debug)]
pub struct Table<T> {
    pages: Vec<Option<Box<[u32]>>>,
    slab: Slab<Entry<T>>,
    limit: u32,
    generation: u32,
}

impl<T> Table<T> {
    /// A table of at most `limit` objects, with any numbers of 24 bits.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            pages: Vec::new(),
            slab: Slab::new(),
            limit,
            generation: 0,
        }
    }

    /// Puts `value` in under `number`.
    pub fn insert(&mut self, number: u32, value: T) -> Result<Slot, TableFault> {
        if self.slab.len() >= self.limit as usize {
            return Err(TableFault::Full);
        }
        let generation = self.next_generation();
        let index = u32::try_from(self.slab.vacant_key()).map_err(|_| TableFault::Full)?;
        let marker = index.checked_add(1).ok_or(TableFault::Full)?;
        let place = self.place_mut(number).ok_or(TableFault::OutOfRange)?;
        if *place != FREE {
            return Err(TableFault::Taken);
        }
        *place = marker;
        self.slab.insert(Entry {
            generation,
            number,
            value,
        });
        Ok(Slot { index, generation })
    }

    /// The slot of a number.
    #[inline]
    #[must_use]
    pub fn find(&self, number: u32) -> Option<Slot> {
        self.lookup(number).map(|(slot, _)| slot)
    }

    /// Slot and object of a number, with one look. Cost: three dependent loads.
    #[inline]
    #[must_use]
    pub fn lookup(&self, number: u32) -> Option<(Slot, &T)> {
        let index = self.index_of(number)?;
        let entry = self.slab.get(index as usize)?;
        Some((
            Slot {
                index,
                generation: entry.generation,
            },
            &entry.value,
        ))
    }

    /// The object of a slot, unless it is gone. Cost: one load and a compare before the object.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&T> {
        let entry = self.slab.get(slot.index as usize)?;
        (entry.generation == slot.generation).then_some(&entry.value)
    }

    /// The object of a slot, to change it.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        let entry = self.slab.get_mut(slot.index as usize)?;
        (entry.generation == slot.generation).then_some(&mut entry.value)
    }

    /// The object of a number.
    #[inline]
    #[must_use]
    pub fn by_number(&self, number: u32) -> Option<&T> {
        self.lookup(number).map(|(_, value)| value)
    }

    /// The object of a number, to change it.
    #[inline]
    pub fn by_number_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index_of(number)?;
        self.slab
            .get_mut(index as usize)
            .map(|entry| &mut entry.value)
    }

    /// Takes the object of a number out; its slots match nothing from here on.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.index_of(number)?;
        let entry = self.slab.try_remove(index as usize)?;
        if let Some(place) = self.place_mut(number) {
            *place = FREE;
        }
        Some(entry.value)
    }

    /// Gives the object another generation, so that slots kept so far stop matching.
    pub fn renew(&mut self, slot: Slot) -> Option<Slot> {
        let generation = self.next_generation();
        let entry = self.slab.get_mut(slot.index as usize)?;
        if entry.generation != slot.generation {
            return None;
        }
        entry.generation = generation;
        Some(Slot {
            index: slot.index,
            generation,
        })
    }

    /// The number of a slot's object.
    #[inline]
    #[must_use]
    pub fn number_of(&self, slot: Slot) -> Option<u32> {
        let entry = self.slab.get(slot.index as usize)?;
        (entry.generation == slot.generation).then_some(entry.number)
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// True without objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// All objects with slot and number, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, u32, &T)> {
        self.slab.iter().filter_map(|(index, entry)| {
            let slot = Slot {
                index: u32::try_from(index).ok()?,
                generation: entry.generation,
            };
            Some((slot, entry.number, &entry.value))
        })
    }

    /// All objects with slot and number, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, u32, &mut T)> {
        self.slab.iter_mut().filter_map(|(index, entry)| {
            let slot = Slot {
                index: u32::try_from(index).ok()?,
                generation: entry.generation,
            };
            Some((slot, entry.number, &mut entry.value))
        })
    }

    #[inline]
    fn index_of(&self, number: u32) -> Option<u32> {
        let page = self.pages.get(number as usize / PAGE)?.as_deref()?;
        page.get(number as usize % PAGE)?.checked_sub(1)
    }

    fn place_mut(&mut self, number: u32) -> Option<&mut u32> {
        let (page, entry) = (number as usize / PAGE, number as usize % PAGE);
        if page >= PAGES {
            return None;
        }
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages.get_mut(page)?;
        page.get_or_insert_with(|| vec![FREE; PAGE].into_boxed_slice())
            .get_mut(entry)
    }

    /// The next generation; 0 is left out, for it stands for "none".
    const fn next_generation(&mut self) -> u32 {
        self.generation = match self.generation.wrapping_add(1) {
            0 => 1,
            next => next,
        };
        self.generation
    }
}

#[cfg(test)]
mod tests;
