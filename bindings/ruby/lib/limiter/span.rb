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

    # @return [Integer] milliseconds, rounded up
    def milliseconds(seconds)
      ms = (exact(seconds) * 1000).ceil
      raise RangeError, "#{seconds} s is negative" if ms.negative?

      ms
    end

    # @param wait [nil, Numeric] the longest wait in seconds; nil: without limit
    # @return [Integer] a request's wait_ms, rounded up; beyond 24 days it is without limit
    def wait_ms(wait)
      return -1 if wait.nil?
      return 0 if wait == 0

      ms = milliseconds(wait)
      ms > 0x7fff_ffff ? -1 : ms
    end
  end
end
