//! Orientation of photographs: how a viewer turns and mirrors the stored pixels (EXIF, tag 0x0112).

/// Changes from the stored image to the one that is shown, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Whether rows become columns.
    transposed: bool,
    /// Whether the rows and the columns are then reversed.
    reversed: [bool; 2],
}

/// Number of the entry that holds the orientation.
const ORIENTATION: u16 = 0x0112;

impl Turn {
    /// Reads the orientation from the EXIF data of a file. Data without one, or that cannot be read, change nothing.
    pub(super) fn of(exif: &[u8]) -> Self {
        let (transposed, reversed) = match orientation(exif) {
            Some(2) => (false, [false, true]),
            Some(3) => (false, [true, true]),
            Some(4) => (false, [true, false]),
            Some(5) => (true, [false, false]),
            Some(6) => (true, [false, true]),
            Some(7) => (true, [true, true]),
            Some(8) => (true, [true, false]),
            _ => return Self::default(),
        };
        Self { transposed, reversed }
    }

    /// Returns height and width as shown.
    pub(super) fn size(self, [height, width]: [usize; 2]) -> [usize; 2] {
        if self.transposed { [width, height] } else { [height, width] }
    }

    /// Returns the stored row and column of a row and column that are shown. `stored` is height and width as stored.
    pub(super) fn source(self, shown: [usize; 2], stored: [usize; 2]) -> [usize; 2] {
        let size = self.size(stored);
        let [row, column] =
            [0, 1].map(|axis| if self.reversed[axis] { size[axis] - 1 - shown[axis] } else { shown[axis] });
        if self.transposed { [column, row] } else { [row, column] }
    }
}

/// Returns the orientation that EXIF data, which are a TIFF file, have in their first directory.
fn orientation(exif: &[u8]) -> Option<u16> {
    let is_little = match exif.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = exif.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = exif.get(at..at + 4)?.try_into().ok()?;
        Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) } as usize)
    };
    let directory = long(4)?;
    let entries = usize::from(short(directory)?);
    let entry = |number: usize| directory + 2 + 12 * number;
    (0..entries).map(entry).find(|at| short(*at) == Some(ORIENTATION)).and_then(|at| short(at + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exif(orientation: u16, is_little: bool) -> Vec<u8> {
        let short = |value: u16| if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        let long = |value: u32| if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        let mark: &[u8] = if is_little { b"II" } else { b"MM" };
        [
            mark,
            &short(42),
            &long(8),
            &short(1),
            &short(ORIENTATION),
            &short(3),
            &long(1),
            &short(orientation),
            &short(0),
        ]
        .concat()
    }

    #[test]
    fn stored_pixels_are_shown_as_the_file_says() {
        // Stored as "ab" over "cd" over "ef"; as shown by the eight orientations of the standard.
        let stored = ["ab", "cd", "ef"];
        let shown = ["ab cd ef", "ba dc fe", "fe dc ba", "ef cd ab", "ace bdf", "eca fdb", "fdb eca", "bdf ace"];
        for (orientation, expected) in (1..).zip(shown) {
            for is_little in [true, false] {
                let turn = Turn::of(&exif(orientation, is_little));
                let [height, width] = turn.size([3, 2]);
                let pixel = |row, column| {
                    let [row, column] = turn.source([row, column], [3, 2]);
                    &stored[row][column..=column]
                };
                let row = |row| (0..width).map(|column| pixel(row, column)).collect::<String>();
                assert_eq!((0..height).map(row).collect::<Vec<_>>().join(" "), expected, "{orientation}");
            }
        }
    }

    #[test]
    fn broken_data_change_nothing() {
        let whole = exif(6, true);
        for end in 0..whole.len() - 4 {
            assert_eq!(Turn::of(&whole[..end]), Turn::default(), "{end}");
        }
        let mut far = whole;
        far[4..8].copy_from_slice(&[255; 4]);
        assert_eq!(Turn::of(&far), Turn::default());
        assert_eq!(Turn::of(&exif(9, false)), Turn::default());
    }
}
