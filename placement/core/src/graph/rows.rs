//! Compressed rows: a list of lists in two flat vectors, the storage of every adjacency in this crate.

/// Rows of items: row `i` is `items[offsets[i]..offsets[i + 1]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows<T> {
    offsets: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Rows<T> {
    /// Creates a list without rows.
    fn default() -> Self {
        Rows { offsets: vec![0], items: Vec::new() }
    }
}

impl<T: Copy> Rows<T> {
    /// Groups `pairs` of (row, item) into `rows` rows, keeping the order of the pairs within each row. `O(rows +
    /// pairs)`.
    ///
    /// Every row index must be below `rows`, and there must be fewer than 2³² pairs.
    pub(crate) fn group(rows: usize, pairs: impl Iterator<Item = (usize, T)> + Clone) -> Self {
        let mut offsets = vec![0u32; rows + 1];
        for (row, _) in pairs.clone() {
            offsets[row + 1] += 1;
        }
        for row in 0..rows {
            offsets[row + 1] += offsets[row];
        }
        let mut next = offsets.clone();
        let mut items = Vec::new();
        if let Some((_, any)) = pairs.clone().next() {
            items = vec![any; offsets[rows] as usize];
        }
        for (row, item) in pairs {
            items[next[row] as usize] = item;
            next[row] += 1;
        }
        Rows { offsets, items }
    }

    /// Removes all rows, but keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.offsets.truncate(1);
        self.items.clear();
    }

    /// Adds a row after the others.
    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = T>) {
        self.items.extend(row);
        self.offsets.push(self.items.len() as u32);
    }

    pub(crate) fn row(&self, row: usize) -> &[T] {
        &self.items[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }

    /// Returns the number of items in all rows.
    pub(crate) fn item_count(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_grouped_in_their_order() {
        let rows = Rows::group(4, [(2, 'a'), (0, 'b'), (2, 'c'), (3, 'd')].into_iter());
        let listed: Vec<&[char]> = (0..4).map(|row| rows.row(row)).collect();
        assert_eq!(listed, [&['b'][..], &[], &['a', 'c'], &['d']]);
        assert_eq!(rows.item_count(), 4);
    }

    #[test]
    fn no_rows_and_no_pairs_are_fine() {
        assert_eq!(Rows::<u32>::group(0, std::iter::empty()).item_count(), 0);
        assert!(Rows::<u32>::group(2, std::iter::empty()).row(1).is_empty());
    }
}
