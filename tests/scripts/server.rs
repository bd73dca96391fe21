//! A pretended Redis: the commands the scripts use, on maps, at a time that the test sets.
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use limiter::redis::link::{Args, Call, Script};
use mlua::{Function, Lua, Value, Variadic};

#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    Text(String),
    Sorted(Vec<(f64, String)>),
    Hash(HashMap<String, String>),
    List(Vec<String>),
}

#[derive(Default)]
pub struct Data {
    keys: RefCell<HashMap<String, (Stored, u64)>>,
    /// Microseconds.
    pub now: Cell<u64>,
    pub published: RefCell<Vec<(String, String)>>,
    /// Who listens, if that is known; else all do.
    pub listeners: RefCell<Option<Vec<String>>>,
    /// Nobody listens to what is published.
    pub unheard: Cell<bool>,
    pub writes: Cell<usize>,
}

pub struct Server {
    lua: Lua,
    pub data: Rc<Data>,
    /// By the scripts' names.
    scripts: RefCell<HashMap<String, Function>>,
    /// What is changed in a script before it is loaded.
    pub altered: Cell<&'static [(&'static str, &'static str)]>,
}

enum Reply {
    Nil,
    Number(f64),
    Text(String),
    List(Vec<String>),
    Error(&'static str),
}

const WRONG_TYPE: Reply =
    Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value");

impl Data {
    fn live(&self, key: &str) -> Option<Stored> {
        let mut keys = self.keys.borrow_mut();
        let (_, until) = keys.get(key)?;
        if *until <= self.now.get() / 1_000 {
            keys.remove(key);
            return None;
        }
        Some(keys[key].0.clone())
    }

    /// No key is there.
    pub fn is_empty(&self) -> bool {
        let keys = self.keys.borrow();
        keys.values()
            .all(|(_, until)| *until <= self.now.get() / 1_000)
    }

    /// What is stored, and until when (milliseconds).
    pub fn stored(&self, key: &str) -> Option<(Stored, u64)> {
        let value = self.live(key)?;
        Some((value, self.keys.borrow()[key].1))
    }

    /// Loses a key.
    pub fn lose(&self, key: &str) -> bool {
        self.keys.borrow_mut().remove(key).is_some()
    }

    /// All that a key says ends is over.
    pub fn is_over(&self, key: &str) -> bool {
        match self.live(key) {
            Some(Stored::Sorted(ends)) => ends.iter().all(|(end, _)| *end <= self.now.get() as f64),
            _ => true,
        }
    }

    /// Loses all of them.
    pub fn lose_all(&self) {
        self.keys.borrow_mut().clear();
    }

    /// The keys that would stay for ever.
    pub fn without_end(&self) -> Vec<String> {
        let keys = self.keys.borrow();
        let endless = keys.iter().filter(|(_, (_, until))| *until == u64::MAX);
        endless.map(|(key, _)| key.clone()).collect()
    }

    fn put_keeping_ttl(&self, key: &str, value: Stored) {
        let until = self
            .keys
            .borrow()
            .get(key)
            .map_or(u64::MAX, |(_, until)| *until);
        self.keys.borrow_mut().insert(key.into(), (value, until));
    }

    fn run(&self, args: &[String]) -> Reply {
        let name = args[0].as_str();
        let write = matches!(
            name,
            "SET"
                | "DEL"
                | "PEXPIRE"
                | "ZADD"
                | "ZREM"
                | "ZREMRANGEBYSCORE"
                | "HSET"
                | "HDEL"
                | "RPUSH"
                | "SETRANGE"
                | "LTRIM"
                | "LSET"
        );
        if write {
            self.writes.set(self.writes.get() + 1);
        }
        match name {
            "TIME" => {
                let now = self.now.get();
                Reply::List(vec![
                    (now / 1_000_000).to_string(),
                    (now % 1_000_000).to_string(),
                ])
            }
            "GET" => match self.live(&args[1]) {
                None => Reply::Nil,
                Some(Stored::Text(text)) => Reply::Text(text),
                Some(_) => WRONG_TYPE,
            },
            "SET" => {
                assert_eq!(args[3], "PX");
                let px: u64 = args[4].parse().expect("PX is a whole number");
                assert!(px > 0);
                let until = self.now.get() / 1_000 + px;
                let value = (Stored::Text(args[2].clone()), until);
                self.keys.borrow_mut().insert(args[1].clone(), value);
                Reply::Text("OK".into())
            }
            "SETRANGE" => {
                let Some(Stored::Text(mut text)) = self.live(&args[1]) else {
                    panic!("a part of what is not there is set");
                };
                let from: usize = args[2].parse().unwrap();
                text.replace_range(from..from + args[3].len(), &args[3]);
                self.put_keeping_ttl(&args[1], Stored::Text(text));
                Reply::Number(1.0)
            }
            "DEL" => {
                let mut keys = self.keys.borrow_mut();
                Reply::Number(
                    args[1..]
                        .iter()
                        .filter(|k| keys.remove(*k).is_some())
                        .count() as f64,
                )
            }
            "PEXPIRE" => {
                let px: u64 = args[2].parse().expect("a whole number");
                assert!(px > 0);
                if let Some((_, until)) = self.keys.borrow_mut().get_mut(&args[1]) {
                    *until = self.now.get() / 1_000 + px;
                }
                Reply::Number(1.0)
            }
            "PTTL" => Reply::Number(match self.live(&args[1]) {
                None => -2.0,
                Some(_) => match self.keys.borrow()[&args[1]].1 {
                    u64::MAX => -1.0,
                    until => (until - self.now.get() / 1_000) as f64,
                },
            }),
            "PUBLISH" => {
                self.published
                    .borrow_mut()
                    .push((args[1].clone(), args[2].clone()));
                let listeners = self.listeners.borrow();
                let known = listeners.as_ref();
                let heard = known.is_none_or(|all| all.contains(&args[1])) && !self.unheard.get();
                Reply::Number(heard.into())
            }
            _ if name.starts_with('Z') => self.sorted(name, args),
            _ if name.starts_with('H') => self.hash(name, args),
            _ => self.list(name, args),
        }
    }

    fn list(&self, name: &str, args: &[String]) -> Reply {
        let mut list = match self.live(&args[1]) {
            None => vec![],
            Some(Stored::List(list)) => list,
            Some(_) => return WRONG_TYPE,
        };
        let index = |text: &str| {
            let i: i64 = text.parse().unwrap();
            usize::try_from(if i < 0 { i + list.len() as i64 } else { i })
        };
        match name {
            "LLEN" => return Reply::Number(list.len() as f64),
            "LINDEX" => {
                let found = index(&args[2]).ok().and_then(|i| list.get(i));
                return found.map_or(Reply::Nil, |text| Reply::Text(text.clone()));
            }
            "LSET" => {
                let i = index(&args[2]).expect("an index");
                list[i] = args[3].clone();
            }
            "LTRIM" => {
                let (from, to) = (index(&args[2]).unwrap(), index(&args[3]).unwrap());
                assert!(from <= to && to < list.len());
                list = list[from..=to].to_vec();
            }
            "RPUSH" => list.extend_from_slice(&args[2..]),
            _ => panic!("the pretended server has no {name}"),
        }
        self.store(&args[1], Stored::List(list));
        Reply::Text("OK".into())
    }

    fn sorted(&self, name: &str, args: &[String]) -> Reply {
        let mut set = match self.live(&args[1]) {
            None => vec![],
            Some(Stored::Sorted(set)) => set,
            Some(_) => return WRONG_TYPE,
        };
        let find = |set: &[(f64, String)], id: &str| set.iter().position(|(_, m)| m == id);
        let bound = |text: &str| -> (f64, bool) {
            match text.strip_prefix('(') {
                Some(open) => (open.parse().unwrap(), false),
                None if text == "-inf" => (f64::NEG_INFINITY, true),
                None if text == "+inf" => (f64::INFINITY, true),
                None => (text.parse().unwrap(), true),
            }
        };
        let reply = match name {
            "ZCARD" => return Reply::Number(set.len() as f64),
            "ZSCORE" => {
                return find(&set, &args[2])
                    .map_or(Reply::Nil, |i| Reply::Text(format!("{:.0}", set[i].0)));
            }
            "ZRANK" => {
                return find(&set, &args[2]).map_or(Reply::Nil, |i| Reply::Number(i as f64));
            }
            "ZRANGE" => {
                let at = |text: &str| {
                    let i: i64 = text.parse().unwrap();
                    (if i < 0 { i + set.len() as i64 } else { i }).max(-1)
                };
                let (from, to) = (at(&args[2]).max(0), at(&args[3]));
                let mut list = vec![];
                for (i, (score, member)) in set.iter().enumerate() {
                    if (from..=to).contains(&(i as i64)) {
                        list.push(member.clone());
                        if args.len() > 4 {
                            list.push(format!("{score:.0}"));
                        }
                    }
                }
                return Reply::List(list);
            }
            "ZRANGEBYSCORE" => {
                let (high, closed) = bound(&args[3]);
                assert_eq!(args[2], "-inf");
                let count: usize = args.get(6).map_or(usize::MAX, |n| n.parse().unwrap());
                let inside = |s: f64| s < high || (closed && s == high);
                let found = set.iter().filter(|(s, _)| inside(*s)).take(count);
                return Reply::List(found.map(|(_, m)| m.clone()).collect());
            }
            "ZREMRANGEBYSCORE" => {
                let (high, closed) = bound(&args[3]);
                let before = set.len();
                set.retain(|(s, _)| !(*s < high || (closed && *s == high)));
                Reply::Number((before - set.len()) as f64)
            }
            "ZADD" => {
                let score: f64 = args[2].parse().unwrap();
                let old = find(&set, &args[3]).map(|i| set.remove(i)).is_some();
                set.push((score, args[3].clone()));
                set.sort_by(|a, b| a.partial_cmp(b).unwrap());
                Reply::Number(if old { 0.0 } else { 1.0 })
            }
            "ZREM" => {
                let found = find(&set, &args[2]).map(|i| set.remove(i)).is_some();
                Reply::Number(found.into())
            }
            _ => panic!("the pretended server has no {name}"),
        };
        self.store(&args[1], Stored::Sorted(set));
        reply
    }

    fn hash(&self, name: &str, args: &[String]) -> Reply {
        let mut hash = match self.live(&args[1]) {
            None => HashMap::new(),
            Some(Stored::Hash(hash)) => hash,
            Some(_) => return WRONG_TYPE,
        };
        let reply = match name {
            "HLEN" => return Reply::Number(hash.len() as f64),
            "HGET" => {
                return hash
                    .get(&args[2])
                    .map_or(Reply::Nil, |v| Reply::Text(v.clone()));
            }
            "HSET" => {
                Reply::Number(hash.insert(args[2].clone(), args[3].clone()).is_none() as u8 as f64)
            }
            "HDEL" => Reply::Number(hash.remove(&args[2]).is_some() as u8 as f64),
            _ => panic!("the pretended server has no {name}"),
        };
        self.store(&args[1], Stored::Hash(hash));
        reply
    }

    /// A collection that is empty is no key, as in Redis.
    fn store(&self, key: &str, value: Stored) {
        let empty = match &value {
            Stored::Text(_) => false,
            Stored::Sorted(set) => set.is_empty(),
            Stored::Hash(hash) => hash.is_empty(),
            Stored::List(list) => list.is_empty(),
        };
        if empty {
            self.keys.borrow_mut().remove(key);
        } else {
            self.put_keeping_ttl(key, value);
        }
    }
}

impl Server {
    pub fn new() -> Server {
        let server = Server {
            lua: Lua::new(),
            data: Rc::new(Data::default()),
            scripts: RefCell::default(),
            altered: Cell::new(&[]),
        };
        server.prepare();
        server
    }

    fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
        Ok(match reply {
            Reply::Nil => Value::Boolean(false),
            Reply::Number(n) => Value::Number(n),
            Reply::Text(text) => Value::String(lua.create_string(text)?),
            Reply::List(list) => Value::Table(lua.create_sequence_from(list)?),
            Reply::Error(message) => {
                let error = lua.create_table()?;
                error.set("err", message)?;
                Value::Table(error)
            }
        })
    }

    /// What scripts find there. As in Redis they may not touch a global that they did not declare.
    fn prepare(&self) {
        let lua = &self.lua;
        let redis = lua.create_table().unwrap();
        for strict in [true, false] {
            let data = self.data.clone();
            let call = lua
                .create_function(move |lua, args: Variadic<Value>| {
                    let args: Vec<String> = args.iter().map(text).collect::<mlua::Result<_>>()?;
                    match data.run(&args) {
                        Reply::Error(message) if strict => Err(mlua::Error::runtime(message)),
                        reply => Server::to_lua(lua, reply),
                    }
                })
                .unwrap();
            redis
                .set(if strict { "call" } else { "pcall" }, call)
                .unwrap();
        }
        let error_reply = lua
            .create_function(|lua, message: String| {
                let error = lua.create_table()?;
                error.set("err", message)?;
                Ok(error)
            })
            .unwrap();
        redis.set("error_reply", error_reply).unwrap();
        let sha1hex = lua
            .create_function(|_, text: String| Ok(Script::new(text).sha().to_owned()))
            .unwrap();
        redis.set("sha1hex", sha1hex).unwrap();
        lua.globals().set("redis", redis).unwrap();
        let strict = "setmetatable(_G, {__index = function(_, n) \
            error('nonexistent global ' .. n) end, __newindex = function(_, n) \
            error('new global ' .. n) end})";
        lua.load(strict).exec().unwrap();
    }

    /// The function of a script. `change` may alter its text, once.
    pub fn load(&self, script: &Script, change: impl FnOnce(&str) -> String) -> Function {
        let mut scripts = self.scripts.borrow_mut();
        let function = scripts.entry(script.sha().to_owned()).or_insert_with(|| {
            let source = change(script.source());
            let chunk = self.lua.load(source).set_name("script");
            chunk.into_function().unwrap()
        });
        function.clone()
    }

    /// Runs a call; an error reply is an `Err`.
    pub fn call(&self, call: &Call) -> Result<redis::Value, String> {
        let alter = |source: &str| {
            let changes = self.altered.get().iter();
            changes.fold(source.to_owned(), |text, (from, to)| text.replace(from, to))
        };
        let function = self.load(&call.script, alter);
        let list = |args: &Args| {
            let texts: Vec<mlua::LuaString> = args
                .iter()
                .map(|arg| self.lua.create_string(arg).unwrap())
                .collect();
            texts
        };
        let globals = self.lua.globals();
        globals.raw_set("KEYS", list(&call.keys)).unwrap();
        globals.raw_set("ARGV", list(&call.args)).unwrap();
        let reply: mlua::Value = function.call(()).map_err(|error| error.to_string())?;
        if let Some(number) = reply.as_i64() {
            return Ok(redis::Value::Int(number));
        }
        let mlua::Value::Table(reply) = reply else {
            return Err(format!("an answer of another sort: {reply:?}"));
        };
        if let Ok(error) = reply.raw_get::<String>("err") {
            return Err(error);
        }
        let bulk = |text: mlua::Result<mlua::LuaString>| {
            redis::Value::BulkString(text.unwrap().as_bytes().to_vec())
        };
        Ok(redis::Value::Array(
            reply
                .sequence_values::<mlua::LuaString>()
                .map(bulk)
                .collect(),
        ))
    }
}

/// An argument as the script would send it. Numbers must have been turned into plain decimals before.
fn text(value: &Value) -> mlua::Result<String> {
    match value {
        Value::String(text) => Ok(text.to_str().unwrap().to_owned()),
        Value::Integer(n) => Ok(n.to_string()),
        Value::Number(n) if n.fract() == 0.0 && n.abs() < 1e14 => Ok(format!("{n:.0}")),
        other => Err(mlua::Error::runtime(format!(
            "{other:?} is sent to the server"
        ))),
    }
}
