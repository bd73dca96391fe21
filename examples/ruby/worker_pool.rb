# frozen_string_literal: true

# A pool of threads that calls an upstream: four calls at once, fifty starts a second.
#     ruby -Ibindings/ruby/lib examples/ruby/worker_pool.rb
require "limiter"

client = Limiter::Client.new(ENV.fetch("LIMITER_URL", "memory://"))
limiter = client.limiter("upstream", Limiter.semaphore(4), Limiter.token_bucket(10, refill: 50, per: 1))

jobs = Thread::Queue.new(1..40)
jobs.close
inside = 0
most = 0
lock = Mutex.new
start = Process.clock_gettime(Process::CLOCK_MONOTONIC)

workers = Array.new(8) do
  Thread.new do
    while (job = jobs.pop)
      limiter.acquire(wait: 10) do
        lock.synchronize { most = [most, inside += 1].max }
        sleep 0.01 # the call of job number `job`
        lock.synchronize { inside -= 1 }
      end
    end
  end
end
workers.each(&:join)

took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
puts format("40 jobs in %.2f s, at most %d at once", took, most)
abort "too many at once" if most > 4
abort "too fast" if took < (40 - 10 - 1) / 50.0
client.close
