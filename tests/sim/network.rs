//! The network, as the link in `src/redis/link` meets it: what may run twice is sent again when no answer
//! comes, the rest is not; both may get lost, come late, or be run when nobody waits any more.
use std::collections::{BTreeMap, BTreeSet};

use limiter::redis::keys;
use limiter::redis::link::{Call, Class, Failure, Silence};
use limiter::redis::wire::{Note, Outcome, Reply};
use limiter::redis::{Flight, Penalty};
use redis::Value;

use crate::process::TIMEOUT;
use crate::seen::{self, Asked, Seen};
use crate::trouble::Mode;
use crate::world::{Event, World};

/// A call under way.
pub struct Flying {
    pub p: usize,
    flight: Flight,
    call: Call,
    class: Class,
    /// Its process holds permits there.
    holds: bool,
    /// In the world's time.
    deadline: u64,
    attempt: u32,
    /// Attempts without an answer.
    unanswered: u32,
}

impl World {
    /// Sends what a flight wants sent next.
    pub fn launch(&mut self, p: usize, mut flight: Flight) {
        let process = &self.processes[p];
        process.show(self.now);
        let Some(out) = flight.next() else { return };
        let deadline = process.when(out.deadline);
        let holds = self.holds_on(p, &seen::read(&out.call).key);
        self.serial += 1;
        let id = self.serial;
        let flying = Flying {
            p,
            flight,
            call: out.call,
            class: out.class,
            holds,
            deadline,
            attempt: 0,
            unanswered: 0,
        };
        self.flying.insert(id, flying);
        self.push(self.now + TIMEOUT / 8, Event::Patience { id });
        self.transmit(id);
    }

    fn transmit(&mut self, id: u64) {
        let flying = self.flying.get_mut(&id).expect("under way");
        flying.attempt += 1;
        let (p, attempt, class) = (flying.p, flying.attempt, flying.class);
        let (deadline, unanswered) = (flying.deadline, flying.unanswered);
        if self.now < self.processes[p].down_until {
            self.count("refused");
            let at = self.now + self.between(100, 2_000);
            return self.push(at, Event::Refused { id, attempt });
        }
        let until = match class {
            Class::Idempotent => deadline.min(self.now + (TIMEOUT << unanswered.min(6))),
            Class::AtMostOnce => deadline,
        };
        self.push(until.max(self.now + 1), Event::Silence { id, attempt });
        let copies = match class {
            Class::Idempotent if self.chance(8) => 2,
            _ => 1,
        };
        if copies == 2 {
            // As if the first had not been answered, and was sent again at once.
            self.flying.get_mut(&id).expect("under way").unanswered += 1;
        }
        for copy in 0..copies {
            if self.chance(4) || self.processes[p].is_cut(self.now) {
                self.count("lost copies");
                self.hurt(p, self.now);
                continue;
            }
            let at = self.now + self.delay();
            self.hurt_if_late(p, at);
            let Flying { call, holds, .. } = &self.flying[&id];
            let (call, holds) = (call.clone(), *holds);
            // Nobody hears what is said to the second copy.
            let attempt = if copy == 0 { attempt } else { 0 };
            self.push(
                at,
                Event::Arrive {
                    id,
                    p,
                    attempt,
                    holds,
                    call,
                },
            );
        }
    }

    fn hurt_if_late(&mut self, p: usize, at: u64) {
        if at > self.now + 20_000 {
            self.hurt(p, at);
        }
    }

    /// The server runs a call.
    pub fn arrive(&mut self, id: u64, p: usize, attempt: u32, holds: bool, call: Call) {
        if self.now < self.frozen_until {
            let at = self.frozen_until + self.between(1, 5_000);
            return self.push(
                at,
                Event::Arrive {
                    id,
                    p,
                    attempt,
                    holds,
                    call,
                },
            );
        }
        self.set_server_time();
        let Seen { asked, key } = seen::read(&call);
        let mut known = BTreeSet::new();
        let mut lost = false;
        if let Some(audit) = self.audits.get_mut(&key) {
            known = audit.people(&self.server);
            lost = audit.is_lost(&self.server);
            audit.before(&self.server);
        }
        let listen = self.channels.iter();
        let listen = listen.filter(|(p, _)| self.processes[**p].up && self.processes[**p].hears);
        let listen = listen.map(|(_, channel)| channel.clone()).collect();
        *self.server.data.listeners.borrow_mut() = Some(listen);
        let value = match self.server.call(&call) {
            Ok(value) => value,
            Err(error) => return self.found(format!("the script fails: {error}")),
        };
        let reply = match Reply::read(&value, asked.len()) {
            Ok(reply) => reply,
            Err(malformed) => return self.found(malformed.0),
        };
        self.count("calls");
        if matches!(reply, Reply::Late(_)) {
            self.count("late");
        }
        let line = format!(
            "p{p} {} {}",
            &key[1..key.len() - 3],
            seen::told(&asked, &reply)
        );
        self.tell(line);
        if let Some(audit) = self.audits.get_mut(&key) {
            if lost && holds && matches!(reply, Reply::Done { .. }) {
                audit.has_grace();
            }
            if asked.iter().any(|one| one.letter == 'X') {
                audit.lost(self.now);
            }
            let renewed = asked.iter().filter(|one| one.letter == 'N');
            let renewed = renewed.map(|one| one.id.clone()).collect();
            audit.after(&self.server, &reply, &renewed);
            audit.follow(self.now);
        }
        let rates = self.rates.get_mut(&key).expect("every key is judged");
        // What was forgotten begins anew by a clock that stepped back.
        let world = (self.mode == Mode::Back).then_some(self.now);
        let booked = self.audits.get(&key);
        let booked = match booked {
            Some(audit) => audit.booked(&self.server),
            None => Some(BTreeMap::new()),
        };
        rates.after(&asked, &reply, &known, booked.as_ref(), world);
        self.note_losses(&asked, &reply);
        self.publish();
        if attempt == 0 || self.chance(4) || self.processes[p].hears_nothing(self.now) {
            return self.hurt(p, self.now);
        }
        let at = self.now + self.delay();
        self.hurt_if_late(p, at);
        self.push(at, Event::Answer { id, attempt, value });
    }

    /// Whoever holds a permit and is in time keeps it, though keys were lost.
    fn note_losses(&mut self, asked: &[Asked], reply: &Reply) {
        let Reply::Done { now, answers, .. } = reply else {
            return;
        };
        for (asked, answer) in asked.iter().zip(answers) {
            match (asked.letter, answer.outcome) {
                ('R' | 'C', _) => drop(self.kept.remove(&asked.id)),
                ('N', Outcome::Stale)
                    if self.kept.get(&asked.id).is_some_and(|end| *end > now.0) =>
                {
                    self.found(format!("{} was lost with the keys", asked.id));
                }
                _ => {}
            }
        }
    }

    /// Notes go out, to those who listen.
    fn publish(&mut self) {
        for (channel, message) in self.server.data.published.take() {
            for (p, own) in self.channels.clone() {
                if channel != own && channel != keys::penalties(&own) {
                    continue;
                }
                let process = &self.processes[p];
                let (life, reached) = (
                    process.life,
                    process.hears && !process.hears_nothing(self.now),
                );
                if reached && !self.deaf && !self.chance(10) {
                    let (at, message) = (self.now + self.delay(), message.clone());
                    self.push(at, Event::Hear { p, life, message });
                }
            }
        }
    }

    /// A note reaches its process.
    pub fn hear(&mut self, p: usize, message: &str) {
        let redis = &self.processes[p].redis;
        let (note, penalty) = (
            Note::parse(message.as_bytes()),
            Penalty::parse(message.as_bytes()),
        );
        if note.is_none() && penalty.is_none() {
            return self.found(format!("{message} is no note"));
        }
        note.iter().for_each(|note| redis.noted(&[*note]));
        penalty
            .iter()
            .for_each(|one| redis.penalized(std::slice::from_ref(one)));
    }

    /// An answer reaches its process.
    pub fn answer(&mut self, id: u64, attempt: u32, value: Value) {
        let Some(flying) = self.flying.get(&id).filter(|f| f.attempt == attempt) else {
            return;
        };
        let again = flying.unanswered > 0;
        self.note_ends(&seen::read(&flying.call), &value);
        self.heard(id, Ok(value), again);
    }

    /// Its process knows that an id is over: nothing of it may be there, nor come back.
    fn note_ends(&mut self, seen: &Seen, value: &Value) {
        // Old requests may come back when the clock has stepped back, or what keeps them out is lost.
        if self.mode.loses() || matches!(self.mode, Mode::Back) {
            return;
        }
        let Ok(Reply::Done { answers, .. }) = Reply::read(value, seen.asked.len()) else {
            return;
        };
        let Some(audit) = self.audits.get_mut(&seen.key) else {
            return;
        };
        for (asked, answer) in seen.asked.iter().zip(answers) {
            let over = matches!(
                answer.outcome,
                Outcome::Done | Outcome::Stale | Outcome::Returned
            );
            if matches!(asked.letter, 'R' | 'C') && over {
                audit.ended(&asked.id);
            }
        }
    }

    /// No answer came in time, or the connection ended.
    pub fn silence(&mut self, id: u64, attempt: u32, silence: Silence) {
        let Some(flying) = self.flying.get_mut(&id).filter(|f| f.attempt == attempt) else {
            return;
        };
        flying.unanswered += 1;
        self.counts
            .entry("silences")
            .and_modify(|n| *n += 1)
            .or_insert(1);
        if flying.class == Class::Idempotent && self.now < flying.deadline {
            self.transmit(id);
        } else {
            self.heard(id, Err(Failure::Ambiguous(silence)), true);
        }
    }

    /// All connections of a process end.
    pub fn disconnect(&mut self, p: usize) {
        self.processes[p].hears = false;
        let mine = self.flying.iter().filter(|(_, flying)| flying.p == p);
        let mine: Vec<_> = mine.map(|(id, flying)| (*id, flying.attempt)).collect();
        for (id, attempt) in mine {
            self.silence(id, attempt, Silence::Dropped);
        }
        let (at, life) = (
            self.now + self.between(1_000, 1_500_000),
            self.processes[p].life,
        );
        self.push(at, Event::Listening { p, life });
    }

    pub fn refused(&mut self, id: u64, attempt: u32) {
        let Some(flying) = self.flying.get(&id).filter(|f| f.attempt == attempt) else {
            return;
        };
        let failure = match flying.unanswered > 0 {
            true => Failure::Ambiguous(Silence::Dropped),
            false => Failure::NotExecuted {
                code: "ECONNREFUSED".into(),
                retry_in: std::time::Duration::from_millis(50),
            },
        };
        let again = flying.unanswered > 0;
        self.heard(id, Err(failure), again);
    }

    pub fn patience(&mut self, id: u64) {
        if let Some(flying) = self.flying.get_mut(&id) {
            flying.flight.hand_over();
        }
    }

    fn heard(&mut self, id: u64, result: Result<Value, Failure>, again: bool) {
        let Flying { p, mut flight, .. } = self.flying.remove(&id).expect("under way");
        self.processes[p].show(self.now);
        flight.heard(result, again);
        self.launch(p, flight);
    }
}
