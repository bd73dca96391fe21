# frozen_string_literal: true

require "rack"
require_relative "helper"
require "limiter/rack"

# The middleware, against Rack's own lint and in virtual time.
class TestRack < Minitest::Test
  include Helper

  def setup
    @client = virtual
    @app = ->(_env) { [200, { "Content-Type" => "text/plain" }, ["hello"]] }
  end

  def bucket(capacity = 2, refill: 1, per: 1)
    @client.limiter("api", Limiter.token_bucket(capacity, refill: refill, per: per))
  end

  def get(middleware, from: "10.0.0.1", **env)
    middleware.call(::Rack::MockRequest.env_for("/", "REMOTE_ADDR" => from, **env))
  end

  # One whole request, its body read and closed, under Rack::Lint.
  def whole(limiter, from: "10.0.0.1", **options)
    app = ::Rack::Lint.new(::Limiter::Rack.new(::Rack::Lint.new(@app), limiter, **options))
    ::Rack::MockRequest.new(app).get("/", "REMOTE_ADDR" => from)
  end

  def test_admitted_then_denied_with_a_whole_number_of_seconds
    limiter = bucket(2, refill: 1, per: 2.5)
    first = whole(limiter)
    assert_equal [200, "hello"], [first.status, first.body]
    assert_equal '"api";q=2;w=5', first["ratelimit-policy"]
    assert_equal '"api";r=1;t=3', first["ratelimit"]
    assert_nil first["retry-after"]
    whole(limiter)
    denied = whole(limiter)
    assert_equal [429, "3", '"api";r=0;t=3'], [denied.status, denied["retry-after"], denied["ratelimit"]]
    @client.advance(0.5)
    assert_equal "2", whole(limiter)["retry-after"]
    @client.advance(1.999999)
    assert_equal "1", whole(limiter)["retry-after"], "one microsecond is still a second to wait"
    @client.advance(0.000001)
    assert_equal 200, whole(limiter).status
  end

  def test_each_key_has_its_share
    limiter = bucket(1)
    assert_equal [200, 429, 200], %w[a a b].map { |from| whole(limiter, from: from).status }
    free = { key: ->(_env) {} }
    assert_equal [200, 200], Array.new(2) { whole(limiter, **free).status }
    assert_nil whole(limiter, **free)["ratelimit"]
  end

  def test_weight_by_request_and_never
    limiter = bucket(2)
    weigh = { weight: ->(env) { env["REMOTE_ADDR"].to_i } }
    assert_equal 200, whole(limiter, from: "2", **weigh).status
    never = whole(limiter, from: "3", **weigh)
    assert_equal [429, nil, nil], [never.status, never["retry-after"], never["ratelimit"]]
  end

  def test_held_until_the_body_is_closed
    limiter = semaphore(1, client: @client)
    middleware = ::Limiter::Rack.new(@app, limiter)
    _, headers, body = get(middleware)
    assert_equal '"test";q=1', headers["ratelimit-policy"]
    assert_equal 429, get(middleware).first
    assert_equal ["hello"], body.enum_for(:each).to_a
    assert_equal 429, get(middleware).first
    body.close
    body.close
    assert_equal 200, get(middleware).first
  end

  def test_a_concurrent_requests_policy
    limiter = @client.limiter("c", Limiter.semaphore(3, per_call: true), Limiter.fixed_window(100, window: 60))
    _, headers, body = get(::Limiter::Rack.new(@app, limiter, policy: 'a"b\\c'))
    assert_equal '"a\"b\\\\c";q=3;qu="concurrent-requests", "a\"b\\\\c-1";q=100;w=60', headers["ratelimit-policy"]
    assert_match(/\A"a\\"b\\\\c";r=2;t=\d+\z/, headers["ratelimit"])
    body.close
  end

  def test_given_back_when_the_app_fails
    limiter = semaphore(1, client: @client)
    raising = ::Limiter::Rack.new(->(_) { raise IOError }, limiter)
    assert_raises(IOError) { get(raising) }
    throwing = ::Limiter::Rack.new(->(_) { throw :async }, limiter)
    catch(:async) { get(throwing) }
    closing = Class.new { def each; end; def close = raise(IOError) }
    _, _, body = get(::Limiter::Rack.new(->(_) { [200, {}, closing.new] }, limiter))
    assert_raises(IOError) { body.close }
    assert_nothing_held limiter
  end

  def test_a_hijacked_connection_gives_back_at_once
    limiter = semaphore(1, client: @client)
    app = lambda do |env|
      env["rack.hijack_io"] = $stdin
      [200, {}, []]
    end
    get(::Limiter::Rack.new(app, limiter))
    assert_nothing_held limiter
  end

  def test_the_body_is_what_it_wraps
    limiter = semaphore(1, client: @client)
    serve = ->(body) { get(::Limiter::Rack.new(->(_) { [200, {}, body] }, limiter)).last }

    array = serve.call(%w[a b])
    assert_equal [%w[a b], true, false], [array.to_ary, array.respond_to?(:to_ary), array.respond_to?(:to_path)]
    assert_nothing_held limiter

    file = Struct.new(:to_path) { def each = yield("x") }
    assert_equal "/tmp/x", (body = serve.call(file.new("/tmp/x"))).to_path
    refute_respond_to body, :to_ary
    assert_raises(NoMethodError) { body.to_ary }
    body.close

    stream = serve.call(->(out) { out << "streamed" })
    refute_respond_to stream, :each
    stream.call(out = +"")
    assert_equal "streamed", out
    assert_nothing_held limiter
  end

  def test_headers_of_the_app_win_and_are_not_changed
    own = { "RateLimit" => "mine" }.freeze
    _, headers, = get(::Limiter::Rack.new(->(_) { [200, own, []] }, bucket))
    assert_equal "mine", headers["RateLimit"]
    assert_nil headers["ratelimit"]
  end

  def test_a_denial_of_ones_own
    limiter = bucket(1)
    denied = ->(_env, decision) { [503, { "Content-Type" => "text/plain" }, ["#{decision.retry_after}"]] }
    whole(limiter, denied: denied)
    response = whole(limiter, denied: denied)
    assert_equal [503, "1.0", "1"], [response.status, response.body, response["retry-after"]]
  end

  def test_when_the_backend_cannot_answer
    limiter = bucket(1)
    @client.close
    seen = nil
    @app = lambda do |env|
      seen = env["limiter.error"]
      [200, { "Content-Type" => "text/plain" }, ["open"]]
    end
    assert_equal "open", whole(limiter).body
    assert_kind_of Limiter::Closed, seen
    assert_equal [503, "1"], [whole(limiter, on_failure: :closed)].flat_map { |r| [r.status, r["retry-after"]] }
    assert_raises(Limiter::Closed) { whole(limiter, on_failure: :raise) }
    assert_raises(ArgumentError) { whole(limiter, on_failure: :maybe) }
  end

  def test_a_request_may_wait_its_turn
    limiter = semaphore(1, client: Limiter::Client.new)
    middleware = ::Limiter::Rack.new(@app, limiter, wait: 5)
    _, _, body = get(middleware)
    second = Thread.new { get(middleware) }
    eventually { limiter.client.stats[:waiting] == 1 }
    body.close
    assert_equal 200, second.value.first
  end
end
