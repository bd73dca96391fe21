//! Random numbers that are the seed's alone, on every machine.

/// A small generator: the sequence is the seed's alone, on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// How many sequences of each; `LIMITER_SEEDS` asks for another number.
pub fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("LIMITER_SEEDS").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(usual)
}
