//! Visible, durable and pending states of a file or directory.

use std::collections::BTreeMap;

use crate::random::Random;

const SECTOR_BYTES: usize = 512;

/// Contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    pending: Vec<Write>,
    /// True after a failed sync: some pages may be gone from memory, and a read then returns the
    /// durable content.
    has_lost: bool,
}

#[derive(Clone, Debug)]
enum Write {
    At(usize, Vec<u8>),
    Cut(usize),
}

impl Write {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::At(at, written) => {
                let end = at + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(written);
            }
            Self::Cut(len) => bytes.resize(*len, 0),
        }
    }
}

impl Contents {
    pub(super) fn read(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.write(Write::At(self.seen.len(), bytes.to_vec()));
        }
    }

    pub(super) fn cut(&mut self, len: usize) {
        if self.seen.len() != len {
            self.write(Write::Cut(len));
        }
    }

    fn write(&mut self, write: Write) {
        write.apply(&mut self.seen);
        self.pending.push(write);
    }

    pub(super) fn sync(&mut self) {
        for write in self.pending.drain(..) {
            write.apply(&mut self.durable);
        }
    }

    /// Simulates a failed sync: some pending writes become durable; the rest is marked clean and
    /// lost.
    pub(super) fn lose_pages(&mut self, random: &mut Random) {
        self.durable = self.torn(random);
        self.pending.clear();
        self.has_lost = true;
    }

    /// After a failed sync, sometimes evicts the clean pages from memory. Reads then return the
    /// durable content.
    pub(super) fn forget_some(&mut self, random: &mut Random) {
        if self.has_lost && self.pending.is_empty() && random.happens(300) {
            let len = self.seen.len();
            self.seen.clone_from(&self.durable);
            self.seen.resize(len, 0);
            self.has_lost = false;
        }
    }

    pub(super) fn lose_power(&mut self, random: &mut Random) {
        if !self.pending.is_empty() {
            self.durable = self.torn(random);
            self.pending.clear();
        }
        self.seen.clone_from(&self.durable);
        self.has_lost = false;
    }

    /// Returns a possible durable content: each sector, and the length, is as after some number of
    /// the pending writes.
    fn torn(&self, random: &mut Random) -> Vec<u8> {
        let writes = self.pending.len();
        let longest = self.pending.iter().fold(self.durable.len(), |len, write| {
            len.max(match write {
                Write::At(at, bytes) => at + bytes.len(),
                Write::Cut(len) => *len,
            })
        });
        // All sectors as after none, after all or after some number of the writes, or each sector
        // by itself.
        let alike = match random.below(6) {
            0 => Some(0),
            1 => Some(writes),
            2 => Some(random.below(writes + 1)),
            _ => None,
        };
        let mut pick = || alike.unwrap_or_else(|| random.below(writes + 1));
        let len_after = pick();
        let after: Vec<usize> = (0..longest.div_ceil(SECTOR_BYTES))
            .map(|_| pick())
            .collect();
        let mut now = self.durable.clone();
        let mut torn = now.clone();
        torn.resize(longest, 0);
        let mut len = torn_len(&now, len_after, 0).unwrap_or(now.len());
        for (number, write) in self.pending.iter().enumerate() {
            write.apply(&mut now);
            len = torn_len(&now, len_after, number + 1).unwrap_or(len);
            for (sector, &after) in after.iter().enumerate() {
                if after == number + 1 {
                    let from = sector * SECTOR_BYTES;
                    let to = (from + SECTOR_BYTES).min(longest);
                    torn[from..to].fill(0);
                    let end = to.min(now.len());
                    if from < end {
                        torn[from..end].copy_from_slice(&now[from..end]);
                    }
                }
            }
        }
        torn.truncate(len);
        torn
    }
}

fn torn_len(now: &[u8], len_after: usize, number: usize) -> Option<usize> {
    (len_after == number).then_some(now.len())
}

/// A changed name or, for a rename, two names, with their new targets.
type Change = Vec<(String, Option<usize>)>;

/// Names in a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    seen: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    pending: Vec<Change>,
}

fn apply(change: &Change, names: &mut BTreeMap<String, usize>) {
    for (name, leads_to) in change {
        match leads_to {
            Some(at) => drop(names.insert(name.clone(), *at)),
            None => drop(names.remove(name)),
        }
    }
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<usize> {
        self.seen.get(name).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.seen.iter().map(|(name, &at)| (name.as_str(), at))
    }

    pub(super) fn change(&mut self, change: Change) {
        apply(&change, &mut self.seen);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            apply(&change, &mut self.durable);
        }
    }

    pub(super) fn lose_power(&mut self, random: &mut Random) {
        // None, all, a prefix or any subset of the changes.
        let (kept, is_any) = match random.below(6) {
            0 => (0, false),
            1 => (self.pending.len(), false),
            2 => (random.below(self.pending.len() + 1), false),
            _ => (0, true),
        };
        for (number, change) in self.pending.drain(..).enumerate() {
            if number < kept || is_any && random.happens(500) {
                apply(&change, &mut self.durable);
            }
        }
        self.seen.clone_from(&self.durable);
    }
}
