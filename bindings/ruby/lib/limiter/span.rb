# frozen_string_literal: true

module Limiter
  # Lengths of time: what a caller says in seconds, exactly, as the integers the library works with.
  # @api private
  module Span
    module_function

    # @param seconds [Numeric, #in_seconds] an Integer, Float, Rational, BigDecimal or
    #   ActiveSupport::Duration. A Float means the decimal number it prints as: 0.1 is a tenth.
    # @return [Rational]
    def exact(seconds)
      seconds = seconds.in_seconds if seconds.respond_to?(:in_seconds)
      case seconds
      when Integer, Rational then seconds.to_r
      when Float
        raise RangeError, "#{seconds} is not a length of time" unless seconds.finite?

        Rational(seconds.to_s)
      when Numeric then seconds.to_r
      else raise TypeError, "#{seconds.inspect} is not a number of seconds"
      end
    end

    # @return [Integer] microseconds, of a length that must be a whole number of them
    def microseconds(seconds)
      us = exact(seconds) * 1_000_000
      raise RangeError, "#{seconds} s is negative" if us.negative?
      raise RangeError, "#{seconds} s is not a whole number of microseconds" if us.denominator != 1

      us.to_i
    end

    # @return [Integer] microseconds, rounded up, at most what fits: the library cuts or refuses more
    def microseconds_up(seconds)
      return 0xffff_ffff_ffff_ffff if seconds == Float::INFINITY

      us = (exact(seconds) * 1_000_000).ceil
      raise RangeError, "#{seconds} s is negative" if us.negative?

      [us, 0xffff_ffff_ffff_ffff].min
    end

    # @param lease [nil, Numeric] seconds; nil: the default, which C has as 0
    # @return [Integer] milliseconds, rounded up; what is out of range stays so, for the library to refuse
    def lease_ms(lease)
      return 0 if lease.nil?

      (exact(lease) * 1000).ceil.clamp(1, 0xffff_ffff)
    end

    # @param wait [nil, Numeric] the longest wait in seconds; nil and infinity: without limit; below 0,
    #   which is what is left of a deadline that passed, as 0
    # @return [Integer] a request's wait_ms, rounded up, at most 2**31 - 1 (24 days)
    def wait_ms(wait)
      return -1 if wait.nil? || wait == Float::INFINITY
      return 0 if wait == 0

      (exact(wait) * 1000).ceil.clamp(0, 0x7fff_ffff)
    end
  end
end
