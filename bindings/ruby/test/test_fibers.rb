# frozen_string_literal: true

require_relative "helper"

# Under a fiber scheduler a wait parks its fiber, and the thread goes on.
class TestFibers < Minitest::Test
  include Helper

  def test_waits_overlap_on_one_thread
    limiter = semaphore(2)
    trace = []
    scheduled do
      6.times do |at|
        Fiber.schedule do
          limiter.acquire do
            trace << [:in, at]
            sleep 0.01
            trace << [:out, at]
          end
        end
      end
      assert_equal 2, trace.size
    end
    assert_equal (0..5).to_a, trace.filter_map { |what, at| at if what == :in }
    inside = 0
    trace.each { |what, _| assert_operator inside += (what == :in ? 1 : -1), :<=, 2 }
    assert_nothing_held limiter
  end

  def test_a_bucket_paces_fibers
    limiter = Limiter::Client.new.limiter("paced", Limiter.token_bucket(1, refill: 100))
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    done = 0
    scheduled { 10.times { Fiber.schedule { limiter.acquire { done += 1 } } } }
    assert_equal 10, done
    assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - start, :>=, 0.09
  end

  def test_hundreds_of_fibers
    limiter = semaphore(3)
    done = 0
    scheduled { 300.times { Fiber.schedule { limiter.acquire { sleep 0; done += 1 } } } }
    assert_equal 300, done
    assert_nothing_held limiter
  end

  def test_a_timeout_within_a_fiber
    limiter = semaphore(1)
    outcome = []
    limiter.acquire do
      scheduled do
        Fiber.schedule do
          Timeout.timeout(0.05) { limiter.acquire }
        rescue Timeout::Error
          outcome << :timeout
        end
        Fiber.schedule { 10.times { outcome << :other if sleep 0.001 } }
      end
    end
    assert_equal [:other] * 10 + [:timeout], outcome
    assert_nothing_held limiter
  end

  # As many threads as there are round trips, and not the one that is idle for all: each of the eight ends
  # only once all have begun.
  def test_round_trips_overlap
    seen = in_child do
      scheduled { Fiber.schedule { Limiter::Offload.call { 1 } } }
      eventually("an idle thread") { Limiter::Offload.instance_variable_get(:@jobs).num_waiting == 1 }
      began = Thread::Queue.new
      together = lambda do
        began.push(1)
        limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 5
        sleep 0.001 until began.size == 8 || Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
        began.size
      end
      [].tap { |seen| scheduled { 8.times { Fiber.schedule { seen << Limiter::Offload.call(&together) } } } }
    end
    assert_equal [8] * 8, seen
  end

  def test_fibers_without_a_scheduler
    limiter = semaphore(1)
    fiber = Fiber.new { limiter.acquire { Fiber.yield :held } && :done }
    assert_equal :held, fiber.resume
    assert_nil limiter.try_acquire
    fiber.resume
    assert_nothing_held limiter
  end
end
