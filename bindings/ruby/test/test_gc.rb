# frozen_string_literal: true

require_relative "helper"

# The collector may run at every allocation, and move what can be moved.
class TestGC < Minitest::Test
  include Helper

  def test_under_stress
    limiter = semaphore(1)
    GC.stress = true
    5.times { limiter.acquire("key", weight: [1]) { limiter.try_acquire("key") } }
    limiter.try_many([["a", 1], ["b", 1]]).each { |decision| decision.permit.release }
    thread = Thread.new { limiter.acquire("key", wait: 5) { :in } }
    assert_equal :in, thread.value
  ensure
    GC.stress = false
    assert_nothing_held limiter, "key"
  end

  # Who sleeps for the delay alone keeps the slot.
  def test_a_booked_slot_outlives_its_permit
    limiter = virtual.limiter("paced", Limiter.pacer(1))
    delays = Array.new(20) do
      delay = limiter.pace("k").delay
      GC.start
      delay
    end
    assert_equal (0..19).map(&:to_f), delays
    limiter.pace("k").release
    assert_equal 20.0, limiter.pace("k").delay
  end

  def test_compaction_while_held_and_waiting
    limiter = semaphore(1)
    permit = limiter.acquire
    threads = Array.new(3) { Thread.new { limiter.acquire(wait: 10) { GC.compact && :in } } }
    eventually { limiter.client.stats[:waiting] == 3 }
    GC.compact
    GC.start
    assert permit.release
    assert_equal %i[in in in], threads.map(&:value)
    assert_nothing_held limiter
  end

  def test_dropped_in_any_order
    50.times do
      client = Limiter::Client.new
      limiters = Array.new(3) { |at| semaphore(1, name: "n#{at}", client: client) }
      limiters.each { |limiter| limiter.acquire }
      assert_raises(Limiter::Denied) { limiters.first.acquire(wait: 0.0001) }
    end
    GC.start
    GC.start
    GC.verify_internal_consistency if GC.respond_to?(:verify_internal_consistency)
    assert_equal :fine, semaphore.acquire { :fine }
  end

  def test_exit_with_everything_open
    script = <<~RUBY
      require "limiter"
      clients = Array.new(5) { Limiter::Client.new }
      $permits = clients.flat_map { |c| l = c.limiter("a", Limiter.semaphore(1)); [l.acquire, l] }
      $threads = $permits.grep(Limiter::Limiter).map { |l| Thread.new { l.acquire } }
      sleep 0.01
      exit 3
    RUBY
    10.times do
      system(RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", script)
      assert_equal 3, $?.exitstatus
    end
  end
end
