# frozen_string_literal: true

require_relative "helper"

# Thread#kill, Thread#raise, Timeout and Ctrl-C at any instant leave nothing held and nobody waiting.
#
# LIMITER_SEEDS says how many interrupts each test makes. A failure names the seed.
class TestInterrupts < Minitest::Test
  include Helper

  SEEDS = Integer(ENV.fetch("LIMITER_SEEDS", "300"))

  class Stop < StandardError; end

  # Threads that take and give back all the time, so that grants race with interrupts.
  def with_churn(limiter, count = 2)
    stop = false
    churn = Array.new(count) { Thread.new { churn_once(limiter) until stop } }
    yield
  ensure
    stop = true
    churn.each(&:join)
  end

  # Ends by itself also where a permit was lost, so that the test can say so.
  def churn_once(limiter)
    limiter.acquire(wait: 0.5) { Thread.pass }
  rescue Limiter::Denied
    nil
  end

  # Without the collector, which would give back what the code forgot.
  def setup = GC.disable

  def teardown = GC.enable

  # Interrupts `SEEDS` threads, each at a moment of its own.
  def storm(limiter, victim, interrupt)
    with_churn(limiter) do
      SEEDS.times do |seed|
        random = Random.new(seed)
        thread = Thread.new(&victim)
        thread.report_on_exception = false
        sleep(random.rand * [0.00005, 0.0005, 0.002][seed % 3])
        interrupt.call(thread)
        begin
          assert thread.join(10), "seed #{seed}: it does not end"
        rescue Stop
          nil
        end
      end
    end
    yield if block_given?
    assert_nothing_held limiter
  end

  def test_kill_with_a_block
    limiter = semaphore(1)
    storm(limiter, -> { loop { limiter.acquire { Thread.pass } } }, :kill.to_proc)
  end

  def test_kill_without_a_block
    limiter = semaphore(2)
    # Between acquire's return and the caller's own ensure only the collector sees the permit.
    GC.enable
    storm(limiter, -> { loop { limiter.acquire.release } }, :kill.to_proc) do
      eventually("collection") do
        GC.start
        limiter.client.stats[:in_flight].zero?
      end
    end
  end

  def test_raise
    limiter = semaphore(1)
    storm(limiter, -> { loop { limiter.acquire { Thread.pass } } }, ->(thread) { thread.raise(Stop) })
  end

  # The grant comes from another thread, and later: a wait may end between the two.
  def test_on_redis
    with_redis do |url|
      client = Limiter::Client.new(url)
      [:kill.to_proc, ->(thread) { thread.raise(Stop) }].each_with_index do |interrupt, at|
        limiter = semaphore(1, client: client, name: "storm#{at}")
        storm(limiter, -> { loop { limiter.acquire { Thread.pass } } }, interrupt) do
          eventually("given back on Redis") { limiter.peek.remaining == 1 }
        end
      end
      client.close
    end
  end

  def test_twice_in_a_row
    limiter = semaphore(1)
    twice = lambda do |thread|
      thread.raise(Stop)
      thread.kill
    end
    storm(limiter, -> { loop { limiter.acquire { Thread.pass } } }, twice)
  end

  def test_timeouts
    limiter = semaphore(1)
    with_churn(limiter) do
      threads = Array.new(4) do |at|
        Thread.new do
          random = Random.new(at)
          (SEEDS / 4).times do
            Timeout.timeout(0.0001 + (random.rand * 0.001)) { loop { limiter.acquire { Thread.pass } } }
          rescue Timeout::Error
            nil
          end
        end
      end
      threads.each(&:join)
    end
    assert_nothing_held limiter
  end

  def a_timeout_ends_a_wait_in_time(limiter)
    limiter.acquire do
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      assert_raises(Timeout::Error) { Timeout.timeout(0.2) { limiter.acquire(wait: 30) } }
      assert_in_delta 0.2, Process.clock_gettime(Process::CLOCK_MONOTONIC) - start, 0.15
      assert_equal 0, limiter.client.stats[:waiting]
    end
  end

  def test_b_137_a_timeout_ends_a_wait_in_time
    limiter = semaphore(1)
    a_timeout_ends_a_wait_in_time(limiter)
    assert_nothing_held limiter
  end

  def test_b_137_a_timeout_ends_a_wait_in_time_on_redis
    with_redis do |url|
      limiter = semaphore(1, client: Limiter::Client.new(url))
      a_timeout_ends_a_wait_in_time(limiter)
      # Given back in the background.
      eventually("its place is given back") { limiter.peek.remaining == 1 }
      assert_nothing_held limiter
    end
  end

  def test_b_137_others_run_while_one_waits
    limiter = semaphore(1)
    limiter.acquire do
      waiting = Thread.new { limiter.acquire { :in } }
      eventually { limiter.client.stats[:waiting] == 1 }
      count = 0
      finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 0.05
      count += 1 while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
      assert_operator count, :>, 1000
      assert_predicate waiting, :alive?
      waiting.kill.join
    end
    assert_nothing_held limiter
  end

  # The main thread of a child takes Ctrl-C at a random moment, again and again. Signals are not held
  # back by handle_interrupt, so this is a test of its own.
  def test_ctrl_c
    ready, tell = IO.pipe
    pid = fork { ctrl_c_child(ready, tell) }
    tell.close
    random = Random.new(1)
    SEEDS.times do |seed|
      assert_equal "r", Timeout.timeout(10) { ready.read(1) }, "seed #{seed}"
      sleep(random.rand * [0.00005, 0.0005, 0.002][seed % 3])
      Process.kill(:INT, pid)
    end
    Timeout.timeout(20) { ready.read(1) }
    Process.kill(:TERM, pid)
    assert_equal "held 0 waiting 0", Timeout.timeout(20) { ready.read }.strip
    assert_predicate Process.wait2(pid).last, :success?
  end

  def ctrl_c_child(ready, tell)
    ready.close
    stop = false
    trap(:INT, "DEFAULT")
    trap(:TERM) { stop = true }
    limiter = semaphore(1)
    churn = Thread.new { churn_once(limiter) until stop }
    until stop
      begin
        tell.syswrite("r")
        churn_once(limiter) until stop
      rescue Interrupt
        nil
      end
    end
    churn.join
    stats = limiter.client.stats
    tell.syswrite("held #{stats[:in_flight]} waiting #{stats[:waiting]}")
    Process.exit!(0)
  end

  def test_descriptors_do_not_pile_up
    limiter = semaphore(1)
    count = -> { Dir.children("/proc/self/fd").size }
    limiter.acquire do
      20.times { assert_raises(Limiter::Denied) { limiter.acquire(wait: 0.001) } }
      before = count.call
      200.times do
        thread = Thread.new { limiter.acquire }
        Thread.pass
        thread.kill.join
      end
      assert_operator count.call - before, :<=, 3
    end
    assert_nothing_held limiter
  end
end
