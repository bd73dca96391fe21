# frozen_string_literal: true

require "bigdecimal"
require_relative "helper"

# Seconds to integers, limits, settings, and what is refused.
class TestArguments < Minitest::Test
  include Helper

  Duration = Struct.new(:in_seconds)

  def test_seconds_are_exact
    span = Limiter::Span
    { 1 => 1_000_000, 0.1 => 100_000, 0.3 => 300_000, 1e-6 => 1, 1r / 8 => 125_000, BigDecimal("0.000001") => 1,
      Duration.new(90) => 90_000_000, 315_360_000 => 315_360_000_000_000, 1.5e9 => 1_500_000_000_000_000 }
      .each { |seconds, us| assert_equal us, span.microseconds(seconds), seconds.inspect }
    [Float::NAN, Float::INFINITY, -1, 1e-7, 1r / 3].each { |bad| assert_raises(RangeError) { span.microseconds(bad) } }
    ["1", nil, Time.now, :a].each { |bad| assert_raises(TypeError) { span.microseconds(bad) } }
  end

  def test_waits_round_up
    { nil => -1, 0 => 0, 0.0 => 0, 0.0001 => 1, 1 => 1000, 1.0005 => 1001, 2_147_483.647 => 2_147_483_647,
      2_147_483.648 => 2_147_483_647, 1e12 => 2_147_483_647, -0.5 => 0, -1e12 => 0, Float::INFINITY => -1 }
      .each { |wait, ms| assert_equal ms, Limiter::Span.wait_ms(wait), wait.inspect }
    assert_raises(RangeError) { Limiter::Span.wait_ms(Float::NAN) }
    assert_raises(TypeError) { Limiter::Span.wait_ms("1") }
  end

  def test_rates_are_exact
    limit = Limiter.token_bucket(1, refill: 1, per: 1r / 3)
    assert_equal [3, 1_000_000], [limit.refill, limit.period_us]
    limit = Limiter.token_bucket(1, refill: 0.5, per: 1)
    assert_equal [1, 2_000_000], [limit.refill, limit.period_us]
    assert_raises(RangeError) { Limiter.token_bucket(1, refill: 1, per: 1r / 3, interval: true) }
    assert_raises(RangeError) { Limiter.token_bucket(1, refill: 0, per: 1) }
    assert_raises(RangeError) { Limiter.pacer(1, per: 0) }
    assert_raises(RangeError) { Limiter.pacer(1, burst_earn: 1.1) }
    assert_raises(RangeError) { Limiter.semaphore(-1) }
    # Nothing is cut off a number behind the caller's back.
    [1.5, 4.0, "4", nil].each { |bad| assert_match(/Integer/, assert_raises(TypeError) { Limiter.semaphore(bad) }.message) }
    assert_raises(TypeError) { Limiter.pacer(1, burst: 0.5) }
    assert_raises(ArgumentError) { Limiter.fixed_window(1, window: 1, align: :never) }
  end

  def test_the_library_says_what_is_allowed
    client = Limiter::Client.new
    error = assert_raises(Limiter::ConfigError) { client.limiter("x", Limiter.semaphore(0)) }
    assert_match(/capacity/, error.message)
    assert_raises(Limiter::ConfigError, Limiter::InvalidError) { client.limiter("x") }
    assert_raises(Limiter::Error) { client.limiter("", Limiter.semaphore(1)) }
    assert_raises(ArgumentError) { client.limiter("a\0b", Limiter.semaphore(1)) }
    assert_raises(ArgumentError) { Limiter::Client.new("memory://\0") }
    assert_match(/5 is not a limit/, assert_raises(TypeError) { client.limiter("x", 5) }.message)
    assert Limiter::Client.new(username: nil, password: nil), "what the environment does not say is not set"
    assert_match(/no_such/, assert_raises(Limiter::ConfigError) { Limiter::Client.new(no_such: 1) }.message)
    assert_match(/lease_ms/, assert_raises(Limiter::ConfigError) { Limiter::Client.new(lease_ms: 1) }.message)
    assert_raises(Limiter::ConfigError) { Limiter::Client.new("gopher://x") }
    assert Limiter::Client.new(nil, tls_insecure: true, on_failure: :open, prefix: "é")
  end

  # What a request may hold that C has no number for is refused with a reason, or cut where C cuts it.
  def test_requests_out_of_range
    limiter = Limiter::Client.new.limiter("x", Limiter.semaphore(1), Limiter.fixed_window(9, window: 1))
    { ["x" * 65_537, {}] => /65537 bytes: at most 65536/, ["k", { weight: [1] }] => /1 weights for 2 limits/,
      ["k", { lease: 0 }] => /lease of 0 s: 0.1 to 86400/, ["k", { lease: -1 }] => /lease of -1/,
      ["k", { lease: 1e9 }] => /lease of 1000000000.0/ }.each do |(key, options), says|
      error = assert_raises(Limiter::InvalidError) { limiter.acquire(key, wait: 0, **options) }
      assert_match says, error.message
    end
    assert_match(/semaphore/, assert_raises(Limiter::InvalidError) { limiter.pace("k") }.message)
    assert_match(/65537/, assert_raises(Limiter::InvalidError) { limiter.peek("x" * 65_537) }.message)
    assert_match(/lease of 0 s: 0.1/, assert_raises(Limiter::InvalidError) { limiter.acquire("k").renew(0) }.message)
    { ["a", "x" * 65_537] => /request 1: a key of 65537/, [["a", [1]]] => /request 0: 1 weights/, Array.new(65_537, "a") => /65537 requests/ }
      .each { |requests, says| assert_match says, assert_raises(Limiter::InvalidError) { limiter.try_many(requests) }.message }
    [nil, "a"].each { |bad| assert_raises(TypeError) { limiter.try_many(bad) } }
    assert_raises(ArgumentError) { limiter.try_many([["a", 1, 2]]) }
    assert_raises(Limiter::ConfigError) { limiter.client.limiter("y", Limiter.semaphore(1, lease: 0)) }
    assert_raises(Limiter::ConfigError) { limiter.client.limiter("y", Limiter.semaphore(1, lease: 1e9)) }
    [-1, 2**64].each do |tag|
      assert_match(/tag/, assert_raises(RangeError) { limiter.acquire("k", tag: tag) }.message)
      assert_match(/tag/, assert_raises(RangeError) { limiter.client.cancel_waits(tag) }.message)
    end
    [nil, "1"].each { |tag| assert_raises(TypeError) { limiter.acquire("k", tag: tag) } }
    limiter.penalize("far", retry_after: 10**30)
    assert_in_delta 3600, limiter.peek("far").retry_after, 60
  end

  def test_a_clock_is_set_by_a_time
    client = virtual
    client.now = Time.at(1_800_000_000, 123_456_789, :nsec)
    assert_equal Rational(1_800_000_000_123_456, 1_000_000), client.now
    assert_raises(RangeError) { client.now = 1e-7 }
  end

  def test_limits_are_values
    assert_equal Limiter.token_bucket(3, refill: 1, per: 1/3r), Limiter.token_bucket(3, refill: 3)
    assert_equal 1, [Limiter.semaphore(1), Limiter.semaphore(1)].uniq.size
    refute_equal Limiter.semaphore(1), Limiter.semaphore(1, per_call: true)
    refute_equal Limiter.semaphore(1), 1
    assert_predicate Limiter.semaphore(1), :frozen?
  end

  # Who refused, which limit, and what would do.
  def test_a_refusal_says_by_whom
    limiter = virtual.limiter("api", Limiter.fixed_window(9, window: 1), Limiter.semaphore(2))
    assert_equal "api: can never be admitted: limits[1] (semaphore) allows at most 2",
                 assert_raises(Limiter::Never) { limiter.acquire(weight: 3) }.message
    remote = Limiter::Client.new("redis://127.0.0.1:1", on_failure: :closed).limiter("api", Limiter.semaphore(1))
    assert_match(/\Aapi: denied by the failure policy; retry after/, assert_raises(Limiter::Denied) { remote.acquire(wait: 0) }.message)
    assert_equal "denied by limits[1]; retry after 30.0 s", Limiter::Denied.new(limiter.peek(weight: 2).tap { limiter.acquire(weight: 2).detach } && limiter.peek).message
  end

  def test_a_key_is_not_nil
    limiter = Limiter::Client.new.limiter("x", Limiter.fixed_window(9, window: 1))
    calls = [-> { limiter.acquire(nil) }, -> { limiter.try_acquire(nil) }, -> { limiter.pace(nil) },
             -> { limiter.peek(nil) }, -> { limiter.try_many([nil]) }, -> { limiter.reset(nil) },
             -> { limiter.penalize(nil, retry_after: 1) }]
    calls.each { |call| assert_match(/key is nil/, assert_raises(TypeError, &call).message) }
  end

  def test_what_was_refused_in_ruby_leaks_no_descriptor
    limiter = semaphore
    limiter.acquire(wait: 0) { nil }
    descriptors = -> { Dir.children("/proc/self/fd").size }
    GC.disable
    before = descriptors.call
    50.times do
      assert_raises(TypeError) { limiter.acquire(weight: "1") }
      assert_raises(RangeError) { limiter.acquire(weight: -1) }
      assert_raises(TypeError) { limiter.acquire(nil) }
    end
    assert_operator descriptors.call, :<=, before + 1
  ensure
    GC.enable
  end

  def test_text_in_any_encoding
    client = Limiter::Client.new
    assert client.limiter("é".b, Limiter.semaphore(1))
    assert client.limiter("é".encode("ISO-8859-1"), Limiter.semaphore(1))
    ["\xff", "\xff".b, "\x81".dup.force_encoding("Windows-1252")].each do |name|
      assert_raises(Limiter::Error) { client.limiter(name, Limiter.semaphore(1)) }
      assert_raises(Limiter::Error) { Limiter::Client.new("redis://#{name}") }
      assert_raises(Limiter::Error) { Limiter::Client.new(prefix: name) }
      assert_raises(Limiter::Error) { client.limiter("x", Limiter.semaphore(1)).on_failure = name }
    end
  end

  def test_no_password_is_shown
    { "redis://h" => "redis://h", "redis://u:secret@h:1/2" => "redis://h:1/2", "redis://:secret@h" => "redis://h",
      "redis://user:secret@cret@h" => "redis://h", "redis://user:se/cret@h" => "redis://h",
      "redis://h?user=u&password=secret" => "redis://h", "redis://h?pass=secret@x" => "redis://...",
      "redis://u:sec?ret@h" => "redis://...", "redis://u:sec#ret@h" => "redis://...", "unix:///tmp/r?pass=secret" => "unix:///tmp/r",
      "redis-cluster://u:secret@a:1,b:2" => "redis-cluster://a:1,b:2", "memory:" => "memory:" }.each do |url, shown|
      client = Limiter::Client.allocate
      assert_equal shown, client.send(:shown, url)
    end
    assert_equal "#<Limiter::Client redis://h:1/2>", Limiter::Client.new("redis://u:secret@h:1/2").inspect
  end

  def test_a_limiter_has_its_own_failure_policy
    limiter = Limiter::Client.new.limiter("x", Limiter.semaphore(1))
    [:error, :open, "closed", :local].each { |policy| limiter.on_failure = policy }
    assert_match(/error or open/, assert_raises(Limiter::ConfigError) { limiter.on_failure = :shut }.message)
    assert_raises(ArgumentError) { limiter.on_failure = "open\0" }
  end

  def test_every_status_has_its_error
    { -1 => Limiter::InvalidError, -6 => Limiter::BackendError, -7 => Limiter::UnknownOutcome, -9 => Limiter::Forked,
      -11 => Limiter::Overloaded, -99 => Limiter::Panic }.each do |status, type|
      error = Limiter::Error.for(status)
      assert_instance_of type, error
      assert_equal status, error.status
      refute_empty error.message
    end
    assert_operator Limiter::UnknownOutcome, :<, Limiter::BackendError
  end
end
