# frozen_string_literal: true

require_relative "helper"

# The verbs, in virtual time.
class TestLimiter < Minitest::Test
  include Helper

  def setup
    @client = virtual
  end

  def teardown
    @client.close
  end

  def bucket(capacity = 2, **more)
    @client.limiter("bucket", Limiter.token_bucket(capacity, refill: 10, per: 1, **more))
  end

  def test_the_block_form_returns_the_blocks_value_and_gives_back
    limiter = semaphore(1, client: @client)
    answer = limiter.acquire("k") do |permit|
      assert_kind_of Limiter::Permit, permit
      assert_equal 1, @client.stats[:in_flight]
      :done
    end
    assert_equal :done, answer
    assert_nothing_held limiter, "k"
  end

  def test_every_way_out_of_the_block_gives_back
    limiter = semaphore(1, client: @client)
    assert_raises(IOError) { limiter.acquire { raise IOError } }
    assert_equal 1, (limiter.acquire { break 1 })
    assert_equal 2, catch(:out) { limiter.acquire { throw :out, 2 } }
    assert_equal 3, -> { limiter.acquire { return 3 } }.call
    assert_nil(limiter.acquire { next })
    assert_nothing_held limiter
  end

  def lost(limiter, &block)
    limiter.acquire("k", renew: false, lease: 1) do |permit|
      @client.advance(2)
      block&.call(permit)
      :done
    end
  end

  def test_a_lease_lost_in_the_block_is_told_at_its_end
    limiter = semaphore(1, client: @client)
    assert_match(/lease was lost/, assert_raises(Limiter::Stale) { lost(limiter) }.message)
    assert_raises(Limiter::Stale) { limiter.try_acquire("k", renew: false, lease: 1) { @client.advance(2) } }
    assert_raises(IOError) { lost(limiter) { raise IOError } }
    assert_equal 1, (limiter.acquire(renew: false, lease: 1) { @client.advance(2) && (break 1) })
    assert_equal :done, lost(limiter, &:release), "who gives back himself, asks himself"
    assert_equal :done, lost(limiter, &:detach)
    assert_nothing_held limiter, "k"
    # Without a semaphore there is no lease.
    assert_equal :done, lost(bucket) { @client.limiter("bucket", Limiter.token_bucket(2, refill: 10)).reset("k") }
  end

  def test_release_tells_of_a_lost_lease_when_asked
    limiter = semaphore(1, client: @client)
    permit = limiter.acquire(renew: false, lease: 1)
    @client.advance(2)
    assert_raises(Limiter::Stale) { permit.release! }
    assert_same permit, permit.release!
    held = limiter.acquire
    assert_same held, held.release!
    assert_nothing_held limiter
  end

  def test_a_permit_is_given_back_once
    limiter = semaphore(1, client: @client)
    permit = limiter.acquire
    assert permit.release
    refute permit.release
    assert_equal 0, permit.id
    assert_raises(Limiter::Stale) { permit.settle(1) }
    assert_raises(Limiter::Stale) { permit.renew }
    assert_nothing_held limiter
  end

  def test_releasing_inside_the_block_is_harmless
    limiter = semaphore(1, client: @client)
    limiter.acquire do |permit|
      permit.release
      limiter.acquire(wait: 0) { |other| refute_equal permit.id, other.id }
    end
    assert_nothing_held limiter
  end

  def test_a_denial_has_its_numbers
    limiter = bucket
    limiter.acquire(weight: 2)
    denied = assert_raises(Limiter::Denied) { limiter.acquire(wait: 0) }
    assert_equal [2, 0, 0.1, 0.2, 0], [denied.limit, denied.remaining, denied.retry_after, denied.reset_after, denied.index]
    assert_equal 100_000, denied.decision.retry_after_us
    assert_equal "bucket: denied by limits[0] (token_bucket); retry after 0.1 s", denied.message
    assert_kind_of Limiter::Error, denied
    assert_equal 0.1, Marshal.load(Marshal.dump(denied)).retry_after
  end

  def test_what_can_never_pass_says_so
    limiter = bucket
    never = assert_raises(Limiter::Never) { limiter.acquire(weight: 3) }
    assert_equal Float::INFINITY, never.retry_after
    assert_raises(Limiter::Never) { limiter.try_acquire(weight: 3) }
    assert_raises(Limiter::Never) { @client.limiter("no", Limiter.never).acquire }
    assert_predicate @client.limiter("all", Limiter.unlimited).try_acquire(weight: 2**60).decision, :allowed?
  end

  def test_a_wait_known_to_be_too_long_is_denied_at_once
    limiter = bucket
    limiter.acquire(weight: 2)
    assert_raises(Limiter::Denied) { limiter.acquire(wait: 0.099) }
    assert_equal 2, limiter.limits.first.capacity
    @client.advance(0.1)
    assert limiter.try_acquire
  end

  def test_try_acquire
    limiter = bucket(1)
    assert_equal :in, limiter.try_acquire { :in }
    assert_nil(limiter.try_acquire { flunk })
    assert_nil limiter.try_acquire
  end

  def test_a_wait_ends_when_its_time_comes
    limiter = bucket(1)
    limiter.acquire
    thread = Thread.new { limiter.acquire(wait: 1) { |permit| permit.waited } }
    eventually { @client.stats[:waiting] == 1 }
    @client.advance(0.1)
    assert_in_delta 0.1, thread.value
  end

  def test_waiters_are_admitted_in_order
    limiter = semaphore(1, client: @client)
    permit = limiter.acquire
    order = Thread::Queue.new
    threads = Array.new(5) do |at|
      thread = Thread.new { limiter.acquire { order << at } }
      eventually { @client.stats[:waiting] == at + 1 }
      thread
    end
    permit.release
    threads.each(&:join)
    assert_equal [0, 1, 2, 3, 4], Array.new(5) { order.pop }
  end

  def test_pace_books_and_gives_back
    limiter = @client.limiter("pacer", Limiter.pacer(10))
    assert_in_delta 0.0, limiter.pace.delay
    second = limiter.pace
    assert_in_delta 0.1, second.delay
    assert_raises(Limiter::Denied) { limiter.pace(wait: 0.15) }
    assert second.release
    assert_in_delta 0.1, limiter.pace.delay
    assert_raises(Limiter::InvalidError) { semaphore(1, client: @client).pace }
  end

  def test_peek_charges_nothing
    limiter = bucket
    assert_predicate limiter.peek(weight: 2), :allowed?
    assert_predicate limiter.peek(weight: 2), :allowed?
    limiter.acquire(weight: 2)
    peek = limiter.peek
    assert_predicate peek, :denied?
    assert_in_delta 0.1, peek.retry_after
    assert_nil peek.permit
  end

  def test_settle_corrects_an_estimate
    limiter = bucket(100)
    permit = limiter.acquire(weight: 100)
    assert_same permit, permit.settle(40)
    assert_equal 60, limiter.peek.remaining
    assert_raises(Limiter::Stale) { permit.settle(1) }
    assert_raises(TypeError) { permit.settle(1.5) }
  end

  def test_renew_and_the_end_of_a_lease
    limiter = @client.limiter("lease", Limiter.semaphore(1, lease: 1, renew: false))
    permit = limiter.acquire
    @client.advance(0.9)
    assert_same permit, permit.renew
    @client.advance(0.9)
    assert_same permit, permit.renew(2)
    @client.advance(2)
    assert_raises(Limiter::Stale) { permit.renew }
    refute permit.release
    assert_equal 1, @client.stats[:lost]
  end

  def test_reset_and_penalize
    limiter = bucket(1)
    limiter.acquire("a")
    assert_same limiter, limiter.reset("a")
    assert limiter.try_acquire("a")
    assert_same limiter, limiter.penalize("b", retry_after: 1.5)
    assert_in_delta 1.5, limiter.peek("b").retry_after
  end

  def test_many_at_once
    limiter = bucket(3)
    decisions = limiter.try_many({ "a" => 2, "b" => 4 }.to_a + ["a", ["a", 1]])
    assert_equal [true, false, true, false], decisions.map(&:allowed?)
    assert_equal [false, true, false, false], decisions.map(&:never?)
    assert_equal 2, decisions.filter_map(&:permit).map(&:id).uniq.size
    assert_empty limiter.try_many([])
  end

  def test_several_limits_and_a_weight_for_each
    limiter = @client.limiter("both", Limiter.semaphore(2, per_call: true), Limiter.token_bucket(100, refill: 1))
    first = limiter.acquire(weight: 60)
    assert_equal 1, assert_raises(Limiter::Denied) { limiter.acquire(weight: 60, wait: 0) }.index
    second = limiter.acquire(weight: [1, 40])
    assert_equal 0, assert_raises(Limiter::Denied) { limiter.acquire(weight: [1, 0], wait: 0) }.index
    [first, second].each(&:release)
    assert_raises(Limiter::InvalidError) { limiter.acquire(weight: [1]) }
  end

  def test_keys_are_any_bytes
    limiter = bucket(1)
    keys = ["", "\0", "\0\0", "a\0b", "a", "é", "é".b, "\xff".b, "k" * 65_536, "{}%"].uniq(&:b)
    keys.each { |key| assert limiter.try_acquire(key), key[0, 20].inspect }
    keys.each { |key| assert_nil limiter.try_acquire(key), key[0, 20].inspect }
    assert limiter.try_acquire(:symbol)
    assert_nil limiter.try_acquire("symbol")
    assert_raises(Limiter::InvalidError) { limiter.acquire("k" * 65_537) }
  end

  def test_weights_are_whole_and_not_negative
    limiter = bucket
    assert_raises(RangeError) { limiter.acquire(weight: -1) }
    assert_raises(RangeError) { limiter.acquire(weight: 2**64) }
    assert_raises(TypeError) { limiter.acquire(weight: 1.0) }
    assert_raises(TypeError) { limiter.acquire(weight: nil) }
    assert_equal 0, limiter.acquire(weight: 0).id
    assert_equal 2, limiter.peek.remaining
  end

  def test_a_permit_nobody_has_any_more_is_given_back
    limiter = semaphore(1, client: @client)
    Thread.new { limiter.acquire }.join
    eventually("collection") do
      GC.start
      limiter.peek.allowed?
    end
    assert_nothing_held limiter
  end

  def test_a_detached_permit_lives_by_its_number
    limiter = semaphore(1, client: @client)
    number = Thread.new { limiter.acquire.detach }.value
    5.times { GC.start }
    assert_equal 1, @client.stats[:in_flight]
    assert limiter.release(number)
    refute limiter.release(number)
    refute limiter.release(0)
    number = limiter.acquire(&:detach)
    assert_equal 1, @client.stats[:in_flight]
    assert limiter.release(number)
  end

  def test_an_abandoned_fiber_gives_back_what_it_held
    limiter = semaphore(1, client: @client)
    # An enumerator's next runs its block on a fiber that nobody resumes again.
    Thread.new { Enumerator.new { |y| limiter.acquire { y << 1 } }.next }.join
    eventually("collection") do
      GC.start
      @client.stats[:in_flight].zero?
    end
  end

  def test_cancelled_by_tag
    limiter = semaphore(1, client: @client)
    limiter.acquire do
      threads = [7, 7, 8].map { |tag| Thread.new { limiter.acquire(tag: tag) } }
      threads.each { |thread| thread.report_on_exception = false }
      eventually { @client.stats[:waiting] == 3 }
      assert_equal 2, @client.cancel_waits(7)
      threads.first(2).each { |thread| assert_raises(Limiter::Cancelled) { thread.value } }
      assert_predicate threads.last, :alive?
      assert_equal 1, @client.cancel_waits(8)
      assert_raises(Limiter::Cancelled) { threads.last.value }
    end
    assert_raises(ArgumentError) { @client.cancel_waits(0) }
    assert_nothing_held limiter
  end

  def test_closing_ends_waits
    limiter = semaphore(1, client: @client)
    permit = limiter.acquire
    thread = Thread.new { limiter.acquire }
    thread.report_on_exception = false
    eventually { @client.stats[:waiting] == 1 }
    assert @client.close
    assert_raises(Limiter::Closed) { thread.value }
    assert_raises(Limiter::Closed) { limiter.acquire }
    refute permit.release
    assert @client.close
  end

  def test_too_many_waits
    client = virtual(max_waiting: 1)
    limiter = semaphore(1, client: client)
    permit = limiter.acquire
    thread = Thread.new { limiter.acquire { :in } }
    eventually { client.stats[:waiting] == 1 }
    assert_raises(Limiter::Overloaded) { limiter.acquire(wait: 1) }
    permit.release
    assert_equal :in, thread.value
  end

  def test_limits_change_while_open
    bucket(5).acquire(weight: 2)
    assert_equal 1, bucket(1).peek.remaining
    wide = bucket(5).peek
    assert_equal [5, 1], [wide.limit, wide.remaining], "room that is new is empty"
  end

  def test_the_clock
    assert_equal 1_000_000_000, @client.now
    @client.advance(Rational(1, 3).ceil(6))
    assert_equal 1_000_000_000 + Rational(333_334, 1_000_000), @client.now
    @client.now = Time.at(2_000_000_000)
    assert_equal 2_000_000_000, @client.now
    assert_raises(RangeError) { @client.advance(-1) }
    assert_raises(Limiter::Unsupported) { Limiter::Client.new.advance(1) }
  end

  def test_stats
    limiter = bucket(1)
    limiter.acquire
    limiter.try_acquire
    stats = @client.stats
    assert_equal [1, 1], stats.values_at(:granted, :denied)
    assert_equal Limiter::Native::STATS, stats.keys
  end

  def test_what_is_shown
    limiter = bucket
    assert_equal '#<Limiter::Limiter "bucket" token_bucket>', limiter.inspect
    assert_match(/\A#<Limiter::Permit \d+ remaining=1\/2>\z/, limiter.acquire.inspect)
    assert_match(/LIMITER_OK remaining=1/, limiter.peek.inspect)
    assert_equal "#<Limiter::Limit token_bucket capacity=2 refill=10 period_us=1000000>", limiter.limits[0].inspect
    assert_equal "#<Limiter::Client memory://>", @client.inspect
  end
end
