//! The processes, one of each language or more: started, killed, stopped, and what they told.
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::intervals::{self, Held};
use crate::support::process::{Dir, Process};
use crate::support::{eventually, ms, secs};
use crate::trouble::{Dice, Place};

/// How long after it goes on a process that was stopped is not asked what it believes: its threads come to
/// themselves one after another.
const WAKES: u64 = 500_000;

struct Member {
    process: Process,
    file: PathBuf,
    url: String,
    language: usize,
    /// From when to when it was stopped.
    stops: Vec<(u64, u64)>,
    /// When it was killed.
    ended: Option<u64>,
}

pub struct Crowd {
    clients: PathBuf,
    dir: Dir,
    members: Vec<Member>,
    ended: Vec<Member>,
    count: usize,
}

/// All that they told.
#[derive(Default)]
pub struct Told {
    pub held: Vec<Held>,
    pub starts: Vec<u64>,
    pub lost: usize,
    pub wrong: Vec<String>,
}

const LANGUAGES: [&str; 3] = ["client-c", "client-go", "client-ruby"];

impl Crowd {
    /// One of each language for each way to Redis.
    pub fn start(clients: &Path, place: &Place) -> Crowd {
        let mut crowd = Crowd {
            clients: clients.into(),
            dir: Dir::new(),
            members: Vec::new(),
            ended: Vec::new(),
            count: 0,
        };
        for (n, url) in place.ways().into_iter().enumerate() {
            crowd.add(n % LANGUAGES.len(), url);
        }
        crowd
    }

    fn add(&mut self, language: usize, url: String) {
        self.count += 1;
        let file = self.dir.path().join(self.count.to_string());
        let program = self.clients.join(LANGUAGES[language]);
        let args = [
            url.clone(),
            file.to_str().unwrap().into(),
            self.count.to_string(),
        ];
        self.members.push(Member {
            process: Process::start(program.to_str().unwrap(), &args),
            file,
            url,
            language,
            stops: Vec::new(),
            ended: None,
        });
    }

    /// One is killed, and another takes its place.
    pub fn kill_one(&mut self, dice: &mut Dice) {
        let mut member = self
            .members
            .swap_remove(dice.below(self.members.len() as u64) as usize);
        // It held what it held until now at least.
        member.ended = Some(intervals::now());
        member.process.kill();
        let (language, url) = (member.language, member.url.clone());
        self.ended.push(member);
        self.add(language, url);
    }

    pub fn stop_one(&mut self, dice: &mut Dice, span: Duration) {
        let n = dice.below(self.members.len() as u64) as usize;
        let member = &mut self.members[n];
        let from = intervals::now();
        member.process.signal(Signal::SIGSTOP);
        std::thread::sleep(span);
        member.process.signal(Signal::SIGCONT);
        member.stops.push((from, intervals::now() + WAKES));
    }

    /// Each of them gets what it asks for, from now on.
    pub fn all_work(&self, when: &str) {
        let now = intervals::now();
        for member in &self.members {
            let what = format!(
                "{} holds and starts something {when}",
                LANGUAGES[member.language]
            );
            eventually(&what, secs(60), || {
                let (mut holds, mut starts) = (false, false);
                for words in member.lines() {
                    let at = words.last().and_then(|word| word.parse().ok()).unwrap_or(0);
                    holds |= words[0] == "G" && at > now;
                    starts |= words[0] == "A" && at > now;
                }
                std::thread::sleep(ms(50));
                holds && starts
            });
        }
    }

    /// They are told to end, and do.
    pub fn all_end(&mut self) {
        for member in &self.members {
            member.process.signal(Signal::SIGTERM);
        }
        for mut member in self.members.drain(..) {
            let mut code = None;
            let what = format!("{} ends", LANGUAGES[member.language]);
            eventually(&what, secs(60), || {
                code = member.process.exit_code();
                code.is_some()
            });
            assert_eq!(code, Some(0), "{}", LANGUAGES[member.language]);
            self.ended.push(member);
        }
    }

    /// What those told who have ended.
    pub fn told(&self) -> Told {
        let mut told = Told::default();
        for member in &self.ended {
            member.add_to(&mut told);
        }
        told
    }
}

impl Member {
    /// The words of each line that it has written whole.
    fn lines(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let words = |line: &str| line.split(' ').map(str::to_owned).collect();
        whole.lines().map(words).collect()
    }

    fn add_to(&self, told: &mut Told) {
        let mut open: HashMap<String, u64> = HashMap::new();
        let mut lost: Vec<String> = Vec::new();
        for words in self.lines() {
            let at = || {
                words
                    .last()
                    .and_then(|word| word.parse::<u64>().ok())
                    .expect("a time")
            };
            let permit = || words[1..words.len() - 1].join(" ");
            match words[0].as_str() {
                // The word that it is lost may be first, if the thread that got it was slow.
                "G" if !lost.contains(&permit()) => {
                    open.insert(permit(), at());
                }
                "E" | "L" => {
                    if words[0] == "L" {
                        told.lost += 1;
                        lost.push(permit());
                    }
                    if let Some(from) = open.remove(&permit()) {
                        self.held(told, from, at());
                    }
                }
                "G" => {}
                "A" => told.starts.push(at()),
                _ => told
                    .wrong
                    .push(format!("{}: {}", LANGUAGES[self.language], words.join(" "))),
            }
        }
        for from in open.into_values() {
            // Its child may have been forked, and outlives it: that tells its own end.
            self.held(told, from, self.ended.unwrap_or(from));
        }
    }

    /// Whoever is stopped does nothing with what it holds.
    fn held(&self, told: &mut Told, from: u64, till: u64) {
        let slept = |&&(stop, goes_on): &&(u64, u64)| stop < till && from < goes_on;
        match self.stops.iter().find(slept) {
            Some(&(stop, _)) if from < stop => told.held.push((from, stop)),
            Some(_) => {}
            None => told.held.push((from, till.max(from))),
        }
    }
}
