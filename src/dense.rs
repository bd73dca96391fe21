//! Values in pages, numbered from 0 on without a gap: the last one takes the place of one that is taken out. So
//! there is never more room than a page beyond what is used, and no call moves or frees more than a page.

/// Values of pages that are made as they are needed.
pub struct Dense<T> {
    /// Full but for the last, and one that may lie ready behind it.
    pages: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Dense<T> {
    fn default() -> Dense<T> {
        Dense {
            pages: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Dense<T> {
    const BYTES: usize = 32 * 1024;
    /// Values of a full page.
    const PAGE: usize = {
        let fit = Self::BYTES / size_of::<T>();
        if fit < 16 { 16 } else { fit }
    };

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        self.pages.get(index / Self::PAGE)?.get(index % Self::PAGE)
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let page = self.pages.get_mut(index / Self::PAGE)?;
        page.get_mut(index % Self::PAGE)
    }

    /// Adds a value and answers its number.
    pub fn push(&mut self, value: T) -> usize {
        let index = self.len;
        if self.pages.len() == index / Self::PAGE {
            self.pages.push(Vec::new());
        }
        let page = &mut self.pages[index / Self::PAGE];
        if page.len() == page.capacity() {
            // What is few stays small; who has many needs the page.
            let most = match index < Self::PAGE {
                true => page.len().max(4).min(Self::PAGE - page.len()),
                false => Self::PAGE,
            };
            page.reserve_exact(most);
        }
        page.push(value);
        self.len += 1;
        index
    }

    /// Takes a value out. The last one has its number from then on.
    pub fn swap_remove(&mut self, index: usize) -> T {
        assert!(index < self.len, "a value that is there");
        self.len -= 1;
        let last = self.pages[self.len / Self::PAGE].pop();
        let last = last.expect("the last page with any has one");
        let removed = match self.get_mut(index) {
            Some(place) => std::mem::replace(place, last),
            None => last,
        };
        // Who goes back and forth over an edge keeps the page.
        if self.len + Self::PAGE / 2 <= (self.pages.len() - 1) * Self::PAGE {
            self.pages.pop();
        }
        if let [page] = &mut *self.pages
            && page.len() * 4 < page.capacity()
        {
            page.shrink_to(page.len() * 2);
        }
        removed
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Large = [u64; 100];

    #[test]
    fn it_is_what_a_vector_is_and_gives_up_its_pages() {
        let (mut dense, mut vector) = (Dense::<Large>::default(), Vec::new());
        let page = Dense::<Large>::PAGE;
        let mut dice = 1u64;
        for round in 0..3 {
            for n in 0..10_000u64 {
                dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1);
                let grows = (dice >> 33) % 100 < [70, 30, 50][round];
                if grows || vector.is_empty() {
                    assert_eq!(dense.push([n; 100]), vector.len());
                    vector.push([n; 100]);
                } else {
                    let index = (dice >> 40) as usize % vector.len();
                    assert_eq!(dense.swap_remove(index), vector.swap_remove(index));
                }
                assert_eq!(dense.len, vector.len());
                assert!(dense.pages.len() <= vector.len() / page + 2);
            }
            assert!(dense.iter().eq(&vector));
        }
        while let Some(last) = vector.pop() {
            assert_eq!(dense.get(vector.len()), Some(&last));
            assert_eq!(dense.get_mut(vector.len() + 1), None);
            assert_eq!(dense.swap_remove(vector.len()), last);
        }
        let room: usize = dense.pages.iter().map(Vec::capacity).sum();
        assert!(room <= 16, "{room}");
    }
}
