# frozen_string_literal: true

# Plays one scenario through the gem's own verbs, and compares what they answered.
#
# A submit is an acquire on a thread of its own: it has been submitted when the client counts it as
# waiting or the thread is done, and is cancelled by its tag. Detach is what an interrupt does.
class ScenarioPlayer
  KINDS = {
    "semaphore" => ->(l, **o) { Limiter.semaphore(l["capacity"], lease: ms(l["lease_ms"]), **o) },
    "token_bucket" => ->(l, **o) { Limiter.token_bucket(l["capacity"], refill: l["refill"], per: us(l["period_us"]), **o) },
    "pacer" => lambda { |l, **o|
      Limiter.pacer(l["refill"], per: us(l["period_us"]), burst: l.fetch("capacity", 0),
                                 burst_earn: Rational(l.fetch("burst_earn_permille", 500), 1000), **o)
    },
    "sliding_log" => ->(l, **o) { Limiter.sliding_log(l["capacity"], window: us(l["period_us"]), **o) },
    "sliding_counter" => ->(l, **o) { Limiter.sliding_counter(l["capacity"], window: us(l["period_us"]), **o) },
    "fixed_window" => ->(l, **o) { Limiter.fixed_window(l["capacity"], window: us(l["period_us"]), **o) },
    "unlimited" => ->(_l, **o) { Limiter.unlimited(**o) },
    "never" => ->(_l, **o) { Limiter.never(**o) }
  }.freeze
  FLAGS = {
    "per_call" => { per_call: true }, "interval" => { interval: true }, "start_empty" => { empty: true },
    "align_first_use" => { align: :first_use }, "no_renew" => { renew: false }
  }.freeze

  COMMON = %w[kind version flags].freeze
  FIELDS = {
    "semaphore" => COMMON + %w[capacity lease_ms], "token_bucket" => COMMON + %w[capacity refill period_us],
    "pacer" => COMMON + %w[capacity refill period_us burst_earn_permille],
    "sliding_log" => COMMON + %w[capacity period_us], "sliding_counter" => COMMON + %w[capacity period_us],
    "fixed_window" => COMMON + %w[capacity period_us], "unlimited" => COMMON, "never" => COMMON
  }.freeze

  def self.us(number) = Rational(number, 1_000_000)
  def self.ms(number) = number && Rational(number, 1000)

  # The Redis to play on; nil: in memory.
  REMOTE = ENV.fetch("LIMITER_TEST_URL", nil)

  # What one call came to, in the words of a scenario.
  Answer = Struct.new(:status, :decision, :permit, keyword_init: true)

  def initialize(test, scenario)
    @test = test
    @scenario = scenario
    @permits = {}
    @waits = {}
    @tag = 0
  end

  def play
    config = @scenario.fetch("config", {}).transform_keys(&:to_sym)
    @url = @scenario["backend"] == "none" ? "redis://127.0.0.1:1" : REMOTE || "memory://"
    config.update(prefix: "ruby:#{Process.pid}:#{object_id}", command_timeout_ms: 20_000) if @url == REMOTE
    config[:clock] = @scenario.fetch("clock") unless @scenario["backend"]
    @client = Limiter::Client.new(@url, **config)
    @limiter = open_limiter(@scenario["limits"]) if @scenario["limits"]
    @scenario.fetch("steps").each_with_index do |step, at|
      @where = "#{@scenario['name']}, step #{at + 1}: #{JSON.generate(step)}"
      play_step(step)
      rest
    end
    left = @waits.reject { |_, wait| wait[:seen] || wait[:thread].alive? }
    @test.assert_empty left.keys, "completions nobody asked for"
  ensure
    @client&.close
    @waits.each_value { |wait| wait[:thread].join(5) }
  end

  private

  def open_limiter(limits)
    made = limits.map do |limit|
      flags = limit.fetch("flags", []).map { |name| FLAGS.fetch(name) }.reduce({}, :merge)
      # A field the kind does not have is an unknown keyword.
      (limit.keys - FIELDS.fetch(limit["kind"], FIELDS.values.flatten)).each { |name| flags[name.to_sym] = limit[name] }
      flags[:version] = limit["version"] if limit["version"]
      KINDS.fetch(limit["kind"]).call(limit, **flags)
    end
    @client.limiter(@scenario["name"], *made)
  end

  def play_step(step)
    if step["op"] then send(:"op_#{step['op']}", step)
    elsif step["submit"] then submit(step)
    elsif step["cancel"] then cancel(step)
    elsif step["completes"] then completes(step)
    elsif step["pending"] then pending(step)
    elsif step["advance_us"] then @client.advance(ScenarioPlayer.us(step["advance_us"]))
    elsif step["step_back_us"] then @client.now -= ScenarioPlayer.us(step["step_back_us"])
    else @test.flunk "#{@where}: no such step"
    end
  end

  # Lets everything happen that is under way on Redis.
  def rest
    @client.advance(0) if @url == REMOTE
  rescue Limiter::Closed
    nil
  end

  def pending(step)
    wait = @waits.fetch(step["pending"])
    @test.assert wait[:detached] || waiting?(wait), @where
  end

  def op_try(step)
    compare(step, answer { @limiter.acquire(key(step), wait: 0, **terms(step)) })
  end

  def op_acquire(step)
    compare(step, answer { @limiter.acquire(key(step), wait: wait(step), **terms(step)) })
  end

  def op_pace(step)
    compare(step, answer { @limiter.pace(key(step), weight: weight(step), wait: wait(step)) })
  end

  def op_peek(step)
    compare(step, answer { @limiter.peek(key(step), weight: weight(step)) })
  end

  def op_try_many(step)
    requests = step["requests"]
    decisions = @limiter.try_many(requests.map { |request| [key(request), weight(request)] })
    requests.zip(step["expect"], decisions) do |request, expect, decision|
      compare(request.merge("expect" => expect), answer { decision })
    end
  end

  def op_release(step)
    # Ruby answers whether it was held until now.
    released = permit(step).release
    expected = step.dig("expect", "status") || "OK"
    @test.assert_equal expected == "OK", released, @where
  end

  def op_renew(step) = compare(step, answer { permit(step).renew(ScenarioPlayer.ms(step["lease_ms"])) })
  def op_settle(step) = compare(step, answer { permit(step).settle(step["actual"]) })
  def op_reset(step) = compare(step, answer { @limiter.reset(key(step)) })

  def op_penalize(step)
    after = ScenarioPlayer.us(step["retry_after_us"])
    compare(step, answer { @limiter.penalize(key(step), retry_after: after) })
  end

  def op_open(step)
    compare(step, answer { @limiter = open_limiter(step["limits"]) })
  end

  def op_stats(step)
    stats = @client.stats
    # Keys in Redis are not counted.
    expected = REMOTE ? step["expect"].reject { |name, _| name == "keys" } : step["expect"]
    expected.each { |name, value| @test.assert_equal value, stats.fetch(name.to_sym), "#{@where}: #{name}" }
  end

  def op_shutdown(step) = compare(step, answer { @client.close(timeout: 1) })

  def submit(step)
    @tag += 1
    terms = { tag: @tag, **terms(step) }
    before = @client.stats.fetch(:waiting)
    limiter = @limiter
    thread = Thread.new { answer { limiter.acquire(key(step), wait: wait(step), **terms) } }
    @waits[step["submit"]] = wait = { thread: thread, tag: @tag }
    settle { !thread.alive? || @client.stats.fetch(:waiting) > before }
    rest
    expect = step.fetch("expect", {})
    return @test.assert(waiting?(wait), @where) if expect["status"] == "PENDING"

    wait[:seen] = true
    compare(step.merge("as" => step["submit"]), thread.value)
  end

  def cancel(step)
    wait = @waits.fetch(step["cancel"])
    if step["detach"]
      # An interrupt that comes after the end finds the thread gone; its permit then has no owner.
      late = !waiting?(wait)
      wait[:seen] = wait[:detached] = true
      wait[:thread].kill.join
      wait[:thread].value&.permit&.release
      @test.flunk "#{@where}: expected an error" if step.dig("expect", "status") && !late
    else
      # What was polled can no longer be cancelled; here every end is polled at once.
      ended = @client.cancel_waits(wait[:tag])
      @test.assert_equal((step.dig("expect", "status") || "OK") == "OK" ? 1 : 0, ended, @where) if waiting?(wait) || ended == 1
    end
  end

  def completes(step)
    wait = @waits.fetch(step["completes"])
    @test.refute wait[:seen], "#{@where}: twice"
    wait[:seen] = true
    @test.assert wait[:thread].join(10), "#{@where}: it does not end"
    compare(step.merge("as" => step["completes"]), wait[:thread].value)
  end

  # A completion that is under way shows within a moment.
  def waiting?(wait)
    10.times { Thread.pass }
    wait[:thread].join(0.005).nil?
  end

  def settle
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
    until yield
      @test.flunk "#{@where}: never submitted" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
      sleep 0.0005
    end
  end

  def key(step) = step.fetch("key", "")
  def weight(step) = step["weights"] || step.fetch("weight", 1)

  def wait(step)
    ms = step.fetch("wait_ms", 0)
    ms.negative? ? nil : ScenarioPlayer.ms(ms)
  end

  def terms(step)
    { weight: weight(step), lease: ScenarioPlayer.ms(step["lease_ms"]),
      renew: !step.fetch("flags", []).include?("no_renew") }
  end

  def permit(step) = @permits.fetch(step["permit"])

  def answer
    result = yield
    case result
    when Limiter::Permit then Answer.new(status: "OK", decision: result.decision, permit: result)
    when Limiter::Decision then Answer.new(status: name(result.status), decision: result, permit: result.permit)
    else Answer.new(status: "OK")
    end
  rescue Limiter::Refused => error
    Answer.new(status: name(error.status), decision: error.decision)
  rescue Limiter::Error => error
    Answer.new(status: name(error.status))
  rescue RangeError, TypeError, ArgumentError
    # What Ruby refuses by itself, C refuses as a configuration.
    Answer.new(status: "CONFIG")
  end

  def name(status) = Limiter::Native.status_name(status).delete_prefix("LIMITER_")

  def compare(step, answer)
    @permits[step["as"]] = answer.permit if step["as"] && answer.permit
    expect = { "status" => "OK" }.merge(step.fetch("expect", {}))
    expect.each do |field, value|
      @test.assert_equal value, actual(answer, field, value), "#{@where}: #{field}"
    end
  end

  def actual(answer, field, value)
    case field
    when "status" then answer.status
    when "permit" then !answer.permit.nil? && answer.permit.id.positive?
    when "fence_after" then answer.decision.fence > @permits.fetch(value).fence ? value : answer.decision.fence
    when "degraded" then answer.decision.degraded?
    when "waited_us" then (answer.decision.waited * 1_000_000).round
    else answer.decision.public_send(field)
    end
  end
end
