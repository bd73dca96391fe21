//! Scripts that Redis forgets all the time: nobody notices.
use std::time::Instant;

use crate::kit::PATIENT;
use crate::load::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

#[test]
fn b_106_scripts_flushed_every_50_ms_under_load_cost_no_caller_anything() {
    let server = Server::start();
    let url = server.url();
    // The second client is counted among those that use a limiter, by one more script.
    let doors: [Door; 2] = [
        (&url, &[PATIENT]),
        (&url, &[PATIENT, ("on_failure", "local")]),
    ];
    let shapes = [rates(), semaphores(2)].concat();
    let names: Vec<&str> = shapes.iter().map(|shape| shape.name).collect();
    let mut flushes = 0;
    let loaded = load(shapes, &doors, || {
        let began = Instant::now();
        while began.elapsed() < secs(5) || flushes <= 30 {
            server.ask::<()>(&["SCRIPT", "FLUSH"]);
            flushes += 1;
            std::thread::sleep(ms(50));
        }
        eventually("it is counted on every limiter", secs(10), || {
            server.ask::<()>(&["SCRIPT", "FLUSH"]);
            let keys: Vec<String> = server.ask(&["KEYS", "*:n"]);
            keys.len() == names.len()
        });
    });
    let all = adds_up(&url, &loaded);
    report(&format!("{flushes} times SCRIPT FLUSH"), &all);
    for Outcome { shape, told } in &loaded.outcomes {
        let not = told.backend + told.unknown + told.degraded + told.denied;
        assert_eq!(not, 0, "{}: {told:?}", shape.name);
    }
}
