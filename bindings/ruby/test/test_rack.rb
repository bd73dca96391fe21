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
    assert_equal '"test";q=1;qu="concurrent-requests"', headers["ratelimit-policy"]
    assert_equal 429, get(middleware).first
    assert_equal ["hello"], body.enum_for(:each).to_a
    assert_equal 429, get(middleware).first
    body.close
    body.close
    assert_equal 200, get(middleware).first
  end

  FIELDS = JSON.parse(File.read(ENV.fetch("LIMITER_FIELDS", "#{Helper::ROOT}/tests/conformance/ratelimit_fields.json")))

  def limits(specs)
    specs.map do |spec|
      flags = { per_call: spec.fetch("flags", []).include?("per_call") }
      capacity = spec["capacity"]
      per = Rational(spec.fetch("period_us", 0), 1_000_000)
      case kind = spec.fetch("kind").to_sym
      when :semaphore then Limiter.semaphore(capacity, **flags)
      when :token_bucket then Limiter.token_bucket(capacity, refill: spec["refill"], per: per, **flags)
      when :pacer then Limiter.pacer(spec["refill"], per: per, burst: capacity, **flags)
      when :unlimited, :never then Limiter.public_send(kind)
      else Limiter.public_send(kind, capacity, window: per, **flags)
      end
    end
  end

  # The fields that every binding's middleware sets, call by call.
  FIELDS.fetch("cases").each do |test|
    define_method(:"test_fields_of_#{test['name']}") do
      limiter = @client.limiter(test.fetch("limiter", "api"), *limits(test["limits"]))
      weight = 1
      app = ::Limiter::Rack.new(@app, limiter, weight: ->(_) { weight }, **test.slice("names", "units").transform_keys(&:to_sym))
      test["calls"].each_with_index do |call, at|
        @client.advance(Rational(call.fetch("advance_us", 0), 1_000_000))
        limiter.penalize("10.0.0.1", retry_after: Rational(call.fetch("penalize_us", 0), 1_000_000))
        limiter.acquire("10.0.0.1", weight: call.fetch("hold", 0), wait: 0).detach
        weight = call.fetch("weight", 1)
        status, headers, body = get(app)
        body.close if body.respond_to?(:close)
        fields = { "status" => status, "policy" => headers["ratelimit-policy"], "ratelimit" => headers["ratelimit"],
                   "retry_after" => headers["retry-after"] }.compact
        assert_equal call.slice("status", "policy", "ratelimit", "retry_after"), fields, "call #{at + 1}"
      end
    end
  end

  def test_names_and_units_that_do_not_fit
    limiter = semaphore(1, client: @client)
    [{ names: %w[a b] }, { names: ["ü"] }, { names: [""] }, { units: ["", ""] }, { units: ["ü"] }].each do |options|
      assert_raises(ArgumentError) { ::Limiter::Rack.new(@app, limiter, **options) }
    end
    two = @client.limiter("two", Limiter.semaphore(1), Limiter.fixed_window(1, window: 1))
    assert_match(/one name/, assert_raises(ArgumentError) { ::Limiter::Rack.new(@app, two, names: %w[a A]) }.message)
  end

  # Where it is made, not in each request.
  def test_options_that_make_no_sense
    limiter = semaphore(1, client: @client)
    [{ key: 5 }, { weight: "1" }, { weight: nil }, { wait: "1" }, { retry_when_full: nil }, { on_error: 1 }, { denied: 1 }].each do |options|
      assert_raises(TypeError, options) { ::Limiter::Rack.new(@app, limiter, **options) }
    end
    assert_match(/not a limiter/, assert_raises(TypeError) { ::Limiter::Rack.new(@app, nil) }.message)
    assert_equal [200, 429], %w[1 2].map { |from| get(::Limiter::Rack.new(@app, limiter, key: "all"), from: from).first }
  end

  def test_whose_share_it_is_by_default
    { "10.0.0.1" => "10.0.0.1", "2001:db8::1:2" => "2001:db8::/64", "2001:db8::2%eth0" => "2001:db8::/64", "::ffff:10.0.0.1" => "10.0.0.1",
      "a:b" => "a:b", "" => "", nil => "" }.each { |from, key| assert_equal key, ::Limiter::Rack.client_ip("REMOTE_ADDR" => from), from }
    middleware = ::Limiter::Rack.new(@app, bucket(1))
    assert_equal [200, 429], %w[2001:db8::1 2001:db8::2].map { |from| get(middleware, from: from).first }
    assert_equal([200, 429], Array.new(2) { middleware.call({}).first }, "no address is no way around the limit")
  end

  def test_a_weight_that_no_limit_has_a_number_for
    told = []
    @app = ->(_) { flunk "it passed" }
    options = { weight: ->(env) { env["CONTENT_LENGTH"].to_i }, on_error: ->(_, error) { told << error.class } }
    middleware = ::Limiter::Rack.new(@app, bucket, **options)
    statuses = ["-1", (2**64).to_s, (2**63).to_s].map { |length| get(middleware, "CONTENT_LENGTH" => length).first }
    assert_equal [400, 400, 429], statuses
    assert_equal [Limiter::InvalidError] * 2, told
  end

  def test_how_long_a_full_semaphore_asks_to_wait
    limiter = @client.limiter("full", Limiter.semaphore(1, lease: 10))
    limiter.acquire("10.0.0.1").detach
    { {} => "1", { retry_when_full: 1.5 } => "2", { retry_when_full: 60 } => "10" }.each do |options, seconds|
      assert_equal seconds, whole(limiter, **options)["retry-after"]
    end
  end

  # Whatever comes free, nobody is admitted before: a penalty and the other limits are exact.
  def test_a_full_semaphore_asks_for_what_is_known
    limiter = semaphore(2, client: @client)
    limiter.penalize("10.0.0.1", retry_after: 30.5)
    assert_equal "31", whole(limiter)["retry-after"]
    2.times { limiter.acquire("10.0.0.2").detach }
    limiter.penalize("10.0.0.2", retry_after: 20)
    assert_equal "20", whole(limiter, from: "10.0.0.2")["retry-after"]
    @client.advance(20)
    assert_equal "1", whole(limiter, from: "10.0.0.2")["retry-after"]

    limits = [Limiter.semaphore(1, per_call: true), Limiter.fixed_window(9, window: 45, align: :first_use), Limiter.token_bucket(2, refill: 1, per: 20, per_call: true)]
    mixed = @client.limiter("mixed", *limits)
    mixed.acquire("10.0.0.1", weight: 5).detach
    assert_equal %w[1 45 45], [4, 5, [1, 5, 1]].map { |weight| whole(mixed, weight: weight)["retry-after"] }
    mixed.penalize("10.0.0.1", retry_after: 50)
    assert_equal "50", whole(mixed)["retry-after"]
  end

  # The failure policy has no numbers: there is nothing to tell but the policy, and nobody's quota is exceeded.
  def test_what_the_failure_policy_answers
    limiter = Limiter::Client.new("redis://127.0.0.1:1").limiter("api", Limiter.token_bucket(9, refill: 1))
    limiter.on_failure = :open
    open = whole(limiter)
    assert_equal [200, '"api";q=9;w=9', nil, nil], [open.status, *%w[ratelimit-policy ratelimit retry-after].map { |name| open[name] }]
    limiter.on_failure = :closed
    closed = whole(limiter)
    assert_equal [503, nil, "1"], [closed.status, closed["ratelimit"], closed["retry-after"]]
    assert_match(/#temporary-reduced-capacity\z/, JSON.parse(closed.body)["type"])
    limiter.on_failure = :local
    local = Array.new(2) { whole(limiter, weight: 9) }
    assert_equal [[200, '"api";r=0;t=9'], [429, '"api";r=0;t=9']], local.map { |response| [response.status, response["ratelimit"]] }
  end

  def test_a_denials_document
    limiter = bucket(1)
    whole(limiter)
    denied = whole(limiter)
    assert_equal "application/problem+json", denied["content-type"]
    document = JSON.parse(denied.body)
    assert_equal ["api"], document["violated-policies"]
    assert_match(/#quota-exceeded\z/, document["type"])
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
    # Rack 3: the connection comes from the call alone.
    app = lambda do |env|
      assert_equal :io, env["rack.hijack"].call
      [200, {}, []]
    end
    status, headers, = get(::Limiter::Rack.new(app, limiter), "rack.hijack" => -> { :io })
    assert_equal [200, {}], [status, headers]
    assert_nothing_held limiter
    # It was not taken: the body has the permit.
    _, _, body = get(::Limiter::Rack.new(@app, limiter), "rack.hijack" => -> { :io })
    assert_equal 1, @client.stats[:in_flight]
    body.close
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

  # Both fields are lists: who stands further in, the app or another limiter, is heard as well.
  def test_fields_that_are_there_are_continued
    own = { "RateLimit" => "\"mine\";r=1", "Retry-After" => "9", "RateLimit-Policy" => ["\"mine\";q=1"] }.freeze
    inner = ::Limiter::Rack.new(->(_) { [200, own, []] }, bucket)
    outer = ::Limiter::Rack.new(inner, @client.limiter("outer", Limiter.fixed_window(9, window: 1)))
    _, headers, = get(outer)
    assert_equal '"mine";r=1, "api";r=1;t=1, "outer";r=8;t=1', headers["RateLimit"]
    assert_equal ['"mine";q=1', '"api";q=2;w=2', '"outer";q=9;w=1'], headers["RateLimit-Policy"]
    assert_equal "9", headers["Retry-After"]
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

  # What a request can bring about itself is no way around the limit.
  def test_nothing_a_request_does_opens_the_door
    client = Limiter::Client.new(max_waiting: 1)
    limiter = semaphore(1, client: client)
    limiter.acquire("10.0.0.1").detach
    waiting = Thread.new { limiter.acquire("10.0.0.1") }
    eventually { client.stats[:waiting] == 1 }
    %i[open closed raise].each do |on_failure|
      told = []
      options = { on_failure: on_failure, on_error: ->(_env, error) { told << error.class } }
      @app = ->(_) { flunk "it passed" }
      assert_equal 400, whole(limiter, key: ->(_) { "x" * 65_537 }, **options).status
      assert_equal [503, "1"], [whole(limiter, wait: 60, **options)].flat_map { |r| [r.status, r["retry-after"]] }
      assert_equal [Limiter::InvalidError, Limiter::Overloaded], told
    end
  ensure
    waiting&.kill&.join
  end

  # Whatever the library may answer: only what says that it could not be asked lets requests pass.
  def test_every_error
    errors = Limiter.constants.map { |name| Limiter.const_get(name) }
                    .select { |type| type.is_a?(Class) && type < Limiter::Error && !(type <= Limiter::Refused) }
    passed = errors.select do |type|
      limiter = bucket
      limiter.define_singleton_method(:acquire) { |*, **| raise type.new(-6) }
      get(::Limiter::Rack.new(@app, limiter)).first == 200
    rescue Limiter::Error
      false
    end
    assert_equal %w[BackendError Closed TimedOut UnknownOutcome], passed.map { |type| type.name[/\w+\z/] }.sort
  end

  def test_a_lease_that_was_lost_is_told
    limiter = @client.limiter("s", Limiter.semaphore(1, lease: 1, renew: false))
    told = []
    _, _, body = get(::Limiter::Rack.new(@app, limiter, on_error: ->(_, error) { told << error.class }))
    @client.advance(2)
    body.close
    assert_equal [Limiter::Stale], told
    _, _, body = get(::Limiter::Rack.new(@app, limiter))
    @client.advance(2)
    body.close
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
