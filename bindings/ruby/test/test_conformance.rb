# frozen_string_literal: true

require_relative "helper"

# What the systems we replace answered, call by call (tests/conformance).
class TestConformance < Minitest::Test
  include Helper

  VECTORS = JSON.parse(File.read(ENV.fetch("LIMITER_VECTORS", "#{Helper::ROOT}/tests/conformance/vectors.json")))

  def self.vectors(group, &body)
    VECTORS.fetch(group).each do |vector|
      define_method(:"test_#{group}_#{vector['name']}") { instance_exec(vector, &body) }
    end
  end

  # Units are thousandths, so that weights such as 0.5 are whole.
  def units(number) = (Rational(number.to_s) * 1000).to_i

  def try(limiter, weight)
    !limiter.try_acquire(weight: units(weight)).nil?
  rescue Limiter::Never
    false
  end

  # Plays the steps at their times.
  def at_times(vector)
    client = virtual
    start = client.now
    vector["steps"].each_with_index do |step, at|
      t = step["t_ms"] ? Rational(step["t_ms"].to_s) / 1000 : Rational(step["t_s"].to_s)
      client.advance(start + t - client.now)
      yield client, step, "step #{at + 1}: #{step}"
    end
  end

  vectors("pacer") do |vector|
    at_times(vector) do |client, step, where|
      rate = vector["rate_now"] = step["rate_per_s"] || vector["rate_now"] || vector["rate_per_s"]
      limiter = client.limiter("pacer", Limiter.pacer(units(rate), burst: units(vector["burst"]),
                                                                burst_earn: vector["burst_earn_factor"]))
      delay = if step["op"] == "pace"
                limiter.pace(weight: units(step["weight"])).delay
              else
                decision = limiter.peek(weight: units(step["weight"]))
                try(limiter, step["weight"])
                decision.retry_after
              end
      assert_in_delta step["delay_ms"], delay * 1000, vector["tolerance_ms"] + 0.001, where
    end
  end

  vectors("token_bucket") do |vector|
    at_times(vector) do |client, step, where|
      limiter = client.limiter("bucket", Limiter.token_bucket(units(vector["capacity"]), refill: units(vector["rate_per_s"])))
      assert_equal step["allowed"], try(limiter, step["weight"]), where
    end
  end

  vectors("sliding_log") do |vector|
    at_times(vector) do |client, step, where|
      limiter = client.limiter("log", Limiter.sliding_log(units(vector["limit"]), window: vector["window_s"]))
      assert_equal step["allowed"], try(limiter, step["weight"]), where
    end
  end

  vectors("token_bucket_empty_start") do |vector|
    at_times(vector) do |client, step, where|
      limit = Limiter.token_bucket(vector["capacity"], refill: vector["refill"], per: vector["period_s"],
                                                       interval: true, empty: true)
      wake = step["t_ms"] + (client.limiter("empty", limit).pace.delay * 1000)
      assert_in_delta step["wake_ms"], wake, 0.001, where
    end
  end
end
