# frozen_string_literal: true

# The limits a limiter is made of.
#
# Common to them: `per_call: true` counts calls, not their weight; `version:` numbers a configuration,
# so that an older process cannot bring older parameters back. Lengths of time are seconds, exactly:
# an Integer, Rational, Float (as the decimal it prints as) or ActiveSupport::Duration.
module Limiter
  class << self
    # @return [String] version of the C library that was loaded
    def library_version
      version = Native.version
      [version >> 16, (version >> 8) & 255, version & 255].join(".")
    end

    # At most `capacity` units held at once; first in, first out over all processes.
    #
    # @param capacity [Integer] 1 to 2**48
    # @param lease [Numeric, nil] seconds a killed process's permit lives; nil: the client's
    # @param renew [Boolean] whether the library renews permits while they are held
    # @return [Limit]
    def semaphore(capacity, lease: nil, renew: true, per_call: false, version: 0)
      Limit.new(:semaphore, capacity: capacity, lease_ms: Span.lease_ms(lease),
                            flags: Limit.flags(per_call: per_call, renew: renew), version: version)
    end

    # `refill` units come back every `per` seconds, and up to `capacity` are saved up.
    #
    # @param capacity [Integer] 1 to 2**48
    # @param refill [Integer, Rational] units per period
    # @param per [Numeric] the period in seconds
    # @param interval [Boolean] they come back all at once at each period's end, not continuously
    # @param empty [Boolean] a new key starts with nothing saved up, not full
    # @return [Limit]
    def token_bucket(capacity, refill:, per: 1, interval: false, empty: false, per_call: false, version: 0)
      units, period_us = Limit.rate(refill, per, interval: interval)
      Limit.new(:token_bucket, capacity: capacity, refill: units, period_us: period_us, version: version,
                               flags: Limit.flags(per_call: per_call, interval: interval, start_empty: empty))
    end

    # `rate` units per `per` seconds, evenly spaced, and up to `burst` more after a quiet time.
    #
    # @param rate [Integer, Rational] units per period
    # @param per [Numeric] the period in seconds
    # @param burst [Integer] 0 to 2**48
    # @param burst_earn [Numeric] how fast burst is earned back, as a part of the rate, 0 to 1
    # @return [Limit]
    def pacer(rate, per: 1, burst: 0, burst_earn: 0.5, per_call: false, version: 0)
      units, period_us = Limit.rate(rate, per)
      permille = Span.exact(burst_earn) * 1000
      unless permille.denominator == 1 && permille.between?(0, 1000)
        raise RangeError, "burst_earn #{burst_earn} is not a number of thousandths from 0 to 1"
      end

      Limit.new(:pacer, capacity: burst, refill: units, period_us: period_us, version: version,
                        earn_permille: permille.to_i, flags: Limit.flags(per_call: per_call))
    end

    # At most `capacity` units in any `window` seconds whatever: remembers each admission.
    #
    # @param capacity [Integer] 1 to 2**48
    # @param window [Numeric] seconds
    # @return [Limit]
    def sliding_log(capacity, window:, per_call: false, version: 0)
      windowed(:sliding_log, capacity, window, Limit.flags(per_call: per_call), version)
    end

    # About `capacity` units in any `window` seconds, from two counters.
    #
    # @param capacity [Integer] 1 to 2**48
    # @param window [Numeric] seconds
    # @return [Limit]
    def sliding_counter(capacity, window:, per_call: false, version: 0)
      windowed(:sliding_counter, capacity, window, Limit.flags(per_call: per_call), version)
    end

    # At most `capacity` units in each `window` seconds.
    #
    # @param capacity [Integer] 1 to 2**48
    # @param window [Numeric] seconds
    # @param align [Symbol] `:clock`, at whole multiples since 1970, or `:first_use`
    # @return [Limit]
    def fixed_window(capacity, window:, align: :clock, per_call: false, version: 0)
      raise ArgumentError, "align is :clock or :first_use" unless %i[clock first_use].include?(align)

      flags = Limit.flags(per_call: per_call, first_use: align == :first_use)
      windowed(:fixed_window, capacity, window, flags, version)
    end

    # Always admits.
    # @return [Limit]
    def unlimited = Limit.new(:unlimited)

    # Never admits.
    # @return [Limit]
    def never = Limit.new(:never)

    private

    def windowed(kind, capacity, window, flags, version)
      Limit.new(kind, capacity: capacity, period_us: Span.microseconds(window), flags: flags, version: version)
    end
  end
end
