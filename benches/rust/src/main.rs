//! The Rust peers and the floors: `ROLE WORK CALLERS SECONDS URL KEY RATE`, see benches/README.md.
mod floors;
mod local;

use std::time::{Duration, Instant};

use tokio::runtime::Builder;

pub struct Args {
    pub work: String,
    /// The number after the work's colon.
    pub size: usize,
    pub callers: usize,
    pub time: Duration,
    pub url: String,
    pub key: String,
    pub rate: u32,
}

#[derive(Default)]
pub struct Tally {
    pub decisions: u64,
    pub admitted: u64,
    pub seconds: f64,
    pub latencies: Vec<f32>,
    pub bytes_per_key: f64,
    /// From when to when something was held, in microseconds.
    pub holds: Vec<(f64, f64)>,
}

impl Tally {
    pub fn count(&mut self, admitted: bool, began: Instant) {
        self.decisions += 1;
        self.admitted += u64::from(admitted);
        self.latencies.push(began.elapsed().as_nanos() as f32 / 1e3);
    }

    /// Of so many threads that do the same together, since `begin`.
    pub fn of_threads(count: usize, begin: Instant, one: impl Fn() -> Tally + Sync) -> Tally {
        let mut sum = Tally::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(&one)).collect();
            for thread in threads {
                sum.add(thread.join().unwrap());
            }
        });
        sum.seconds = begin.elapsed().as_secs_f64();
        sum
    }

    pub fn add(&mut self, other: Tally) {
        self.decisions += other.decisions;
        self.admitted += other.admitted;
        self.latencies.extend(other.latencies);
        self.holds.extend(other.holds);
    }

    fn print(mut self, judged: bool) {
        self.latencies.sort_by(f32::total_cmp);
        let percentile = |part: f64| {
            let last = self.latencies.len().saturating_sub(1) as f64;
            self.latencies
                .get((part * last) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        let holds: Vec<String> = self
            .holds
            .iter()
            .map(|(from, to)| format!("[{from:.1}, {to:.1}]"))
            .collect();
        println!(
            "{{\"decisions\": {}, \"admitted\": {}, \"seconds\": {:.6}, \"p50_us\": {:.4}, \"p99_us\": {:.4}, \
             \"bytes_per_key\": {:.1}, \"peak_kib\": {}{}}}",
            self.decisions,
            self.admitted,
            self.seconds,
            percentile(0.5),
            percentile(0.99),
            self.bytes_per_key,
            local::peak_kib(),
            if judged {
                format!(", \"holds\": [{}]", holds.join(", "))
            } else {
                String::new()
            },
        );
    }
}

/// Keys of the work: one, or `size` of them, drawn by Zipf's law with exponent 1.
pub struct Keys {
    pub names: Vec<String>,
    draws: Vec<u32>,
}

impl Keys {
    pub fn of(args: &Args) -> Keys {
        if !args.work.contains("zipf") {
            return Keys {
                names: vec![args.key.clone()],
                draws: vec![0],
            };
        }
        let names = (0..args.size).map(|n| format!("user:{n:07}")).collect();
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=args.size)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        let mut state = 88172645463325252_u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 11) as f64 / 9007199254740992.0 * sum;
            sums.partition_point(|sum| *sum <= at).min(args.size - 1) as u32
        };
        Keys {
            names,
            draws: (0..1 << 20).map(|_| draw()).collect(),
        }
    }

    pub fn draw(&self, turn: usize) -> &String {
        &self.names[self.draws[turn % self.draws.len()] as usize]
    }
}

fn main() {
    let argv: Vec<String> = std::env::args().skip(1).collect();
    let [role, work, callers, seconds, url, key, rate] = &argv[..] else {
        eprintln!("usage: ROLE WORK CALLERS SECONDS URL KEY RATE");
        std::process::exit(2);
    };
    let (work, size) = work.split_once(':').unwrap_or((work, "0"));
    let args = Args {
        work: work.into(),
        size: size.parse().expect("a size"),
        callers: callers.parse().expect("callers"),
        time: Duration::from_secs_f64(seconds.parse().expect("seconds")),
        url: url.clone(),
        key: key.clone(),
        rate: rate.parse().expect("a rate"),
    };
    let tally = match role.as_str() {
        "multiplexed" => floors::multiplexed(&args, &mut Builder::new_current_thread()),
        "multiplexed-threads" => floors::multiplexed(&args, &mut Builder::new_multi_thread()),
        "block_on" => floors::block_on(&args),
        "socket" => floors::socket(&args),
        "pool" => floors::pool(&args),
        "blpop" => floors::blpop(&args),
        "governor" => local::governor(&args),
        "leaky-bucket" => local::leaky_bucket(&args),
        _ => panic!("no role {role}"),
    };
    tally.print(args.work == "judged");
}
