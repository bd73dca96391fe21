//! Memory, the scripts of Redis, and a model that is neither: the same calls get the same answers, number by
//! number. The model follows the description of each kind in exact fractions, and shares nothing with
//! src/limit but the constants that the interface promises.
#[path = "../scripts/random.rs"]
#[allow(dead_code)] // this test program uses a part
mod random;
#[path = "../scripts/server.rs"]
#[allow(dead_code)]
mod server;

mod buckets;
mod exact;
mod law;
mod model;
mod pacer;
mod run;
mod spec;
mod story;
mod windows;
