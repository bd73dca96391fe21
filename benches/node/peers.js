// The Node peers: ROLE WORK CALLERS SECONDS URL KEY RATE, see benches/README.md.
'use strict';
const { readFileSync } = require('node:fs');
const { Redis } = require('ioredis');
const Bottleneck = require('bottleneck');
const { RateLimiterMemory, RateLimiterRedis } = require('rate-limiter-flexible');

const [role, work, callersText, secondsText, url, key, rateText] = process.argv.slice(2);
const callers = Number(callersText), seconds = Number(secondsText), rate = Number(rateText);
const now = () => Number(process.hrtime.bigint()) / 1e3;

// Answers a function that makes one call and tells whether it was admitted.
async function open() {
  switch (role) {
    case 'rate-limiter-flexible': {
      const options = { points: rate, duration: 1 };
      const limiter = work === 'memory' ? new RateLimiterMemory(options)
        : new RateLimiterRedis({ ...options, storeClient: new Redis(url) });
      return async () => {
        try {
          await limiter.consume(key);
          return true;
        } catch (denied) {
          if (denied instanceof Error) throw denied;
          return false;
        }
      };
    }
    case 'bottleneck': {
      // Its reservoir comes back every five seconds at the least on Redis; starts spaced evenly keep to a
      // rate of any length. Where the rate is not to bind, there is none.
      const options = rate >= 1000000 ? {} : { minTime: 1000 / rate };
      if (work !== 'memory') {
        Object.assign(options, { id: key, datastore: 'ioredis', clearDatastore: true, Redis,
          clientOptions: { host: new URL(url).hostname, port: Number(new URL(url).port) } });
      }
      const limiter = new Bottleneck(options);
      await limiter.ready();
      return () => limiter.schedule(async () => true);
    }
    default:
      throw new Error(`no role ${role}`);
  }
}

async function main() {
  const call = await open();
  let decisions = 0, admitted = 0;
  const latencies = [];
  const begin = now(), end = begin + seconds * 1e6;
  const caller = async () => {
    for (let began = now(); began < end;) {
      const passed = await call();
      const done = now();
      if (done > end + 1e6) return; // it waited for its turn longer than anybody counts
      decisions += 1;
      admitted += passed;
      latencies.push(done - began);
      began = done;
    }
  };
  const all = Promise.all(Array.from({ length: callers }, caller));
  // Who is still in a queue then is not waited for.
  await Promise.race([all, new Promise((resolve) => setTimeout(resolve, seconds * 1000 + 500))]);
  latencies.sort((a, b) => a - b);
  const at = (part) => latencies[Math.floor(part * (latencies.length - 1))] ?? 0;
  console.log(JSON.stringify({ decisions, admitted, seconds: (now() - begin) / 1e6, p50_us: at(0.5),
    p99_us: at(0.99), peak_kib: Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) }));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
