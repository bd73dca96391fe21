//! What Redis and its client do with nothing around them: one script call for each decision, and lists as
//! semaphores.
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use redis::{Client, Cmd, RedisResult, Script};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::{Args, Keys, Tally};

/// A token bucket as short as it gets (GCRA), by the server's clock, that stores nothing on denial.
const BUCKET: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local each = 1000000 / ARGV[1]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local wait = tat + each - now - 1000000
if wait > 0 then return {0, math.ceil(wait)} end
redis.call('SET', KEYS[1], string.format('%.6f', tat + each), 'PX', 2000)
return {1, 0}";

type Answer = (u32, u64);

fn command(script: &Script, key: &str, rate: u32) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.get_hash()).arg(1).arg(key).arg(rate);
    command
}

fn load(client: &Client, script: &Script) {
    let mut connection = client.get_connection().expect("a connection");
    script
        .prepare_invoke()
        .load(&mut connection)
        .expect("the script loads");
}

/// One connection, as many tasks as there are callers: on `runtime`, which may be of the one thread that also
/// moves the bytes, or of several, as usual.
pub fn multiplexed(args: &Args, runtime: &mut Builder) -> Tally {
    let client = Client::open(args.url.as_str()).expect("a URL");
    let script = Script::new(BUCKET);
    load(&client, &script);
    let keys = Arc::new(Keys::of(args));
    let turn = Arc::new(AtomicUsize::new(0));
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let begin = Instant::now();
        let end = begin + args.time;
        let caller = || {
            let (mut connection, script, rate) = (connection.clone(), script.clone(), args.rate);
            let (keys, turn) = (keys.clone(), turn.clone());
            tokio::task::spawn(async move {
                let mut tally = Tally::default();
                while Instant::now() < end {
                    let began = Instant::now();
                    let key = keys.draw(turn.fetch_add(1, Ordering::Relaxed));
                    let command = command(&script, key, rate);
                    let answer: Answer = command.query_async(&mut connection).await.unwrap();
                    tally.count(answer.0 == 1, began);
                }
                tally
            })
        };
        let tasks: Vec<_> = (0..args.callers).map(|_| caller()).collect();
        let mut sum = Tally::default();
        for task in tasks {
            sum.add(task.await.unwrap());
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        sum
    })
}

/// Makes one call after another until the time is over.
fn one_by_one(args: &Args, mut call: impl FnMut() -> RedisResult<Answer>) -> Tally {
    let mut tally = Tally::default();
    let begin = Instant::now();
    while begin.elapsed() < args.time {
        let began = Instant::now();
        let answer = call().expect("an answer");
        tally.count(answer.0 == 1, began);
    }
    tally.seconds = begin.elapsed().as_secs_f64();
    tally
}

/// One caller without a runtime of its own: it blocks on a multiplexed connection. `current`: on a runtime
/// of one thread, which is then the caller's; otherwise on the usual one.
pub fn block_on(args: &Args) -> Tally {
    let client = Client::open(args.url.as_str()).expect("a URL");
    let script = Script::new(BUCKET);
    load(&client, &script);
    let runtime = match args.work.as_str() {
        "hot-current" => Builder::new_current_thread().enable_all().build().unwrap(),
        _ => Runtime::new().unwrap(),
    };
    let mut connection = runtime
        .block_on(client.get_multiplexed_async_connection())
        .unwrap();
    let command = command(&script, &args.key, args.rate);
    one_by_one(args, || {
        runtime.block_on(command.query_async(&mut connection))
    })
}

/// The same bytes through a socket, with no client library.
pub fn socket(args: &Args) -> Tally {
    let client = Client::open(args.url.as_str()).expect("a URL");
    let script = Script::new(BUCKET);
    load(&client, &script);
    let bytes = command(&script, &args.key, args.rate).get_packed_command();
    let address = args.url.trim_start_matches("redis://");
    let mut stream = TcpStream::connect(address).expect("a server");
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    one_by_one(args, || {
        stream.write_all(&bytes)?;
        let mut lines = Vec::with_capacity(3);
        for _ in 0..3 {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            lines.push(line);
        }
        assert_eq!(lines[0].trim(), "*2");
        Ok((u32::from(lines[1].trim() == ":1"), 0))
    })
}

/// As many threads as there are callers, each call on a connection out of a pool of `size`.
pub fn pool(args: &Args) -> Tally {
    let client = Client::open(args.url.as_str()).expect("a URL");
    let script = Script::new(BUCKET);
    load(&client, &script);
    let pool = r2d2::Pool::builder()
        .max_size(args.size as u32)
        .build(client)
        .expect("a pool");
    let begin = Instant::now();
    let caller = || {
        one_by_one(args, || {
            let mut connection = pool.get().expect("a connection");
            command(&script, &args.key, args.rate).query(&mut *connection)
        })
    };
    Tally::of_threads(args.callers, begin, caller)
}

/// Connections of a process for its waits: as many as self-limiters' pool holds.
const CONNECTIONS: usize = 15;

/// A list with a token for each unit. Whoever takes one keeps its connection until it gives the token back:
/// otherwise all connections could be waiting for tokens, and none be left to return one.
pub fn blpop(args: &Args) -> Tally {
    let client = Client::open(args.url.as_str()).expect("a URL");
    let judged = args.work == "judged";
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut pool = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            pool.push(connection.await.unwrap());
        }
        let made: bool = redis::cmd("SETNX")
            .arg(format!("{}:made", args.key))
            .arg(1)
            .query_async(&mut pool[0])
            .await
            .unwrap();
        for _ in 0..if made { args.size } else { 0 } {
            let _: () = redis::cmd("RPUSH")
                .arg(&args.key)
                .arg(1)
                .query_async(&mut pool[0])
                .await
                .unwrap();
        }
        let pool = Arc::new((Semaphore::new(CONNECTIONS), std::sync::Mutex::new(pool)));
        let sum = Arc::new(std::sync::Mutex::new(Tally::default()));
        let begin = Instant::now();
        for _ in 0..args.callers {
            let (pool, sum, key) = (pool.clone(), sum.clone(), args.key.clone());
            tokio::task::spawn(async move {
                loop {
                    let began = Instant::now();
                    let turn = pool.0.acquire().await.unwrap();
                    let mut connection = pool.1.lock().unwrap().pop().unwrap();
                    let _: (String, u32) = redis::cmd("BLPOP")
                        .arg(&key)
                        .arg(0)
                        .query_async(&mut connection)
                        .await
                        .unwrap();
                    sum.lock().unwrap().count(true, began);
                    if judged {
                        let from = crate::local::monotonic_us();
                        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                        let to = crate::local::monotonic_us();
                        sum.lock().unwrap().holds.push((from, to));
                    }
                    let _: () = redis::cmd("LPUSH")
                        .arg(&key)
                        .arg(1)
                        .query_async(&mut connection)
                        .await
                        .unwrap();
                    pool.1.lock().unwrap().push(connection);
                    drop(turn);
                }
            });
        }
        tokio::time::sleep(args.time).await;
        let mut sum = std::mem::take(&mut *sum.lock().unwrap());
        sum.seconds = begin.elapsed().as_secs_f64();
        sum
    })
}
