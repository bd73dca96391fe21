# frozen_string_literal: true

require_relative "helper"
require "limiter/rack"

# What only Redis can show: forks that share, answers that are lost, round trips, a server that stops.
class TestRedis < Minitest::Test
  include Helper

  # Stands before the server, and can swallow its answers.
  class Proxy
    attr_accessor :mute
    attr_reader :url

    def initialize(url)
      @server = TCPServer.new("127.0.0.1", 0)
      @url = "redis://127.0.0.1:#{@server.addr[1]}"
      far_port = Integer(url[/\d+\z/])
      @thread = Thread.new { serve(far_port) }
      @thread.report_on_exception = false
    end

    def close = [@thread, *@copies].each(&:kill) && @server.close

    private

    def serve(far_port)
      @copies = []
      loop do
        near = @server.accept
        far = TCPSocket.new("127.0.0.1", far_port)
        @copies << copy(near, far) { true } << copy(far, near) { !mute }
      end
    end

    def copy(from, to)
      Thread.new do
        loop { from.readpartial(65_536).then { |bytes| to.write(bytes) if yield } }
      rescue IOError, SystemCallError
        to.close
      end
    end
  end

  def with_proxy
    with_redis do |url|
      proxy = Proxy.new(url)
      yield proxy
    ensure
      proxy&.close
    end
  end

  # Acquires, hands over and gives back, in a child of the client's process, and takes its leave as a
  # program does: what it held would else come back after its lease only.
  def use(limiter)
    own = limiter.acquire("own#{Process.pid}", wait: 10)
    waiter = Thread.new { limiter.acquire("own#{Process.pid}", wait: 10) { :waited } }
    eventually { limiter.client.stats[:waiting] == 1 }
    own.release
    answer = [waiter.value, limiter.acquire("all", wait: 20) { :shared }].map(&:to_s)
    limiter.client.close(timeout: 10)
    answer
  end

  def test_eight_children_and_a_grandchild_of_one_client
    with_redis do |url|
      limiter = semaphore(1, client: Limiter::Client.new(url))
      permit = limiter.acquire("all")
      waiting = Thread.new { limiter.acquire("parent", wait: 20) { limiter.acquire("parent", wait: 20) } }
      eventually { limiter.client.stats.values_at(:in_flight, :waiting) == [2, 1] }
      refused = in_child do
        permit.renew
      rescue Limiter::Forked
        [permit.release, "forked"]
      end
      assert_equal [false, "forked"], refused
      assert_equal [2, 1], limiter.client.stats.values_at(:in_flight, :waiting), "the parent's are its own"
      children = Array.new(8) { Thread.new { in_child { use(limiter) } } }
      children << Thread.new { in_child { in_child { use(limiter) } } }
      assert permit.release
      children.each { |child| assert_equal %w[waited shared], child.value }
      waiting.kill.join
      assert_equal :back, limiter.acquire("all", wait: 20) { :back }
    end
  end

  def test_an_answer_of_the_failure_policy_says_whether_it_may_have_been_charged
    with_proxy do |proxy|
      { open: nil, closed: Limiter::Denied, error: Limiter::UnknownOutcome }.each do |policy, raised|
        proxy.mute = false
        limiter = Limiter::Client.new(proxy.url, on_failure: policy).limiter("m#{policy}", Limiter.fixed_window(9, window: 3600))
        refute_predicate limiter.acquire(wait: 0).decision, :degraded?
        proxy.mute = true
        if raised
          error = assert_raises(raised) { limiter.acquire(wait: 0) }
          next if policy == :error

          decision = error.decision
        else
          decision = limiter.acquire(wait: 0).decision
        end
        assert_equal [true, true], [decision.degraded?, decision.maybe_charged?], policy
      end
      nobody = Limiter::Client.new("redis://127.0.0.1:1", on_failure: :open).limiter("n", Limiter.fixed_window(9, window: 1))
      decision = nobody.acquire.decision
      assert_equal [true, false], [decision.degraded?, decision.maybe_charged?]
    end
  end

  def test_rack_without_its_redis
    limiter = Limiter::Client.new("redis://127.0.0.1:1").limiter("n", Limiter.fixed_window(9, window: 1))
    app = ->(env) { [200, {}, [env[Limiter::Rack::ENV_ERROR].class.name]] }
    env = { "REMOTE_ADDR" => "1" }
    assert_equal [200, {}, ["Limiter::BackendError"]], Limiter::Rack.new(app, limiter).call(env)
    assert_equal 503, Limiter::Rack.new(app, limiter, on_failure: :closed).call(env).first
    assert_raises(Limiter::BackendError) { Limiter::Rack.new(app, limiter, on_failure: :raise).call(env) }
    # Before it was asked: no way around the limit.
    assert_equal 400, Limiter::Rack.new(app, limiter, key: ->(_) { "x" * 65_537 }).call(env).first
  end

  def test_round_trips_of_fibers
    with_redis do |url|
      limiter = Limiter::Client.new(url, command_timeout_ms: 10_000).limiter("paced", Limiter.pacer(1))
      delays = []
      most = 0
      go = lambda do
        scheduled do
          300.times do
            Fiber.schedule do
              delays << limiter.pace("k").delay
              most = [most, Thread.list.size].max
            end
          end
        end
      end
      before = Thread.list.size
      go.call
      assert_equal 300, delays.size
      assert_operator limiter.peek("k").retry_after, :>, 200, "each has a slot of its own"
      assert_operator most, :<=, before + 1 + Limiter::Offload::THREADS
      # A child has threads of its own.
      assert_equal 600, in_child { go.call && delays.size }
    end
  end

  # What an interrupted fiber asked for is taken back when its answer comes.
  def test_an_interrupted_fiber_leaves_nothing_behind
    with_redis do |url, pid|
      limiter = Limiter::Client.new(url, command_timeout_ms: 20_000).limiter("paced", Limiter.pacer(1, per: 3600))
      limiter.peek("k")
      Process.kill(:STOP, pid)
      interrupted = 0
      scheduled do
        5.times do
          Fiber.schedule do
            Timeout.timeout(0.05) { limiter.pace("k") }
          rescue Timeout::Error
            interrupted += 1
          end
        end
      end
      assert_equal 5, interrupted
      Process.kill(:CONT, pid)
      # The first of them was for now, and stays.
      eventually("a schedule that is free again") { limiter.peek("k").retry_after <= 3600 }
    end
  end

  # Redis is told for as long as two commands may take; nobody has to wait for that.
  def test_closing_can_be_interrupted
    with_redis do |url, pid|
      limiter = semaphore(1, client: Limiter::Client.new(url, command_timeout_ms: 20_000))
      limiter.acquire
      Process.kill(:STOP, pid)
      assert_raises(Timeout::Error) { Timeout.timeout(0.1) { limiter.client.close(timeout: nil) } }
      Process.kill(:CONT, pid)
      limiter.client.close(timeout: nil)
    end
  end

  # The collector finds a client whose end has to wait for Redis: neither its thread nor another one does.
  def test_a_collected_client_holds_nobody_up
    with_redis do |url, pid|
      handles = Array.new(3) do |at|
        client = Limiter::Client.new(url, command_timeout_ms: 20_000)
        limiter = semaphore(1, client: client)
        limiter.acquire(at).detach
        client.handle
      end
      Process.kill(:STOP, pid)
      threads = handles.map { |handle| handle.call(0) } # as a finalizer
      threads.each { |thread| assert_kind_of Thread, thread }
      Process.kill(:CONT, pid)
      threads.each { |thread| assert thread.join(10) }
    end
  end
end
