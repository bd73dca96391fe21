# frozen_string_literal: true

# A process of the nemesis in Ruby; see client.c for what it is given and tells. Nothing tells a Ruby holder
# that its lease is lost before the end of its block, so it holds for less than a lease.
require "limiter"

url, file, seed = ARGV
$over = false
trap("TERM") { $over = true }
$told = File.open(file, "a")
$told.sync = true

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)

def tell(*words) = $told.syswrite("#{words.join(" ")}\n")

# Redis may be away; nothing else may go wrong.
def asked
  yield
rescue Limiter::Denied, Limiter::BackendError, Limiter::TimedOut, Limiter::Stale
  sleep 0.005
rescue StandardError => e
  tell "X", e.class, e.message.inspect
end

def hold(held, dice, wait)
  asked do
    held.acquire(wait:) do |permit|
      tell "G", Process.pid, permit.id, now
      sleep(dice.rand(40).zero? ? 0.9 : dice.rand(0.04))
    ensure
      tell "E", Process.pid, permit.id, now
    end
  end
end

client = Limiter::Client.new(url)
held = client.limiter("held", Limiter.semaphore(3, lease: 2))
rate = client.limiter("rate", Limiter.token_bucket(20, refill: 200, per: 1))

threads = Array.new(3) do |n|
  Thread.new do
    dice = Random.new(seed.to_i * 31 + n)
    hold(held, dice, dice.rand(0.6)) until $over
  end
end
threads << Thread.new do
  until $over
    asked { tell "A", now if rate.try_acquire }
    sleep 0.003
  end
end
dice = Random.new(seed.to_i)
until $over
  # Forked while threads are inside the library.
  pid = fork do
    trap("TERM", "DEFAULT")
    3.times { hold(held, dice, 0.3) }
    exit!(0)
  end
  _, status = Process.wait2(pid)
  tell "X", "a child ended with", status.inspect unless status.success?
  sleep 0.3
end
threads.each(&:join)
client.close(timeout: 5)
