# frozen_string_literal: true

module Limiter
  # One rule of a limiter. Made by {Limiter.semaphore} and its siblings; immutable.
  class Limit
    # C kind numbers by name.
    KINDS = {
      semaphore: 1, token_bucket: 2, pacer: 3, sliding_log: 4, sliding_counter: 5, fixed_window: 6,
      unlimited: 7, never: 8
    }.freeze

    PER_CALL = 1
    INTERVAL = 2
    START_EMPTY = 4
    ALIGN_FIRST_USE = 8
    NO_RENEW = 16
    private_constant :PER_CALL, :INTERVAL, :START_EMPTY, :ALIGN_FIRST_USE, :NO_RENEW

    # @return [Symbol] one of {KINDS}
    attr_reader :kind
    # @return [Integer] most units: held at once, saved up, in a window; a pacer's burst
    attr_reader :capacity
    # @return [Integer] token bucket and pacer: units that come back per period
    attr_reader :refill
    # @return [Integer] token bucket and pacer: the period; windows: their length; microseconds
    attr_reader :period_us

    # @api private
    def initialize(kind, capacity: 0, refill: 0, period_us: 0, flags: 0, lease_ms: 0,
                   earn_permille: 500, version: 0)
      @kind = kind
      @capacity = Request.unsigned(capacity, "capacity")
      @refill = Request.unsigned(refill, "refill")
      @period_us = Request.unsigned(period_us, "period")
      @flags = flags
      @lease_ms = lease_ms
      @earn_permille = earn_permille
      @version = version
      freeze
    end

    class << self
      # @api private
      def flags(per_call: false, interval: false, start_empty: false, first_use: false, renew: true)
        (per_call ? PER_CALL : 0) | (interval ? INTERVAL : 0) | (start_empty ? START_EMPTY : 0) |
          (first_use ? ALIGN_FIRST_USE : 0) | (renew ? 0 : NO_RENEW)
      end

      # Units per period as integers: `refill: 1, per: 1/3r` is 3 per second, exactly.
      # @return [Array(Integer, Integer)] units and microseconds
      # @api private
      def rate(refill, per, interval: false)
        units = Span.exact(refill)
        period = Span.exact(per) * 1_000_000
        raise RangeError, "a period of #{per} s is not longer than none" unless period.positive?
        raise RangeError, "a refill of #{refill} is not more than none" unless units.positive?

        scale = units.denominator.lcm(period.denominator)
        if interval && scale != 1
          raise RangeError, "with interval, whole units come back per whole microseconds"
        end

        [(units * scale).to_i, (period * scale).to_i]
      end
    end

    # Writes this rule as a `limiter_limit`.
    # @param memory [FFI::Pointer] zeroed
    # @return [void]
    # @api private
    def write(memory)
      at = Native::LimitLayout
      memory.put_uint64(0, at::SIZE)
      memory.put_uint32(at::KIND, KINDS.fetch(@kind))
      memory.put_uint32(at::FLAGS, @flags)
      memory.put_uint64(at::CAPACITY, @capacity)
      memory.put_uint64(at::REFILL, @refill)
      memory.put_uint64(at::PERIOD_US, @period_us)
      memory.put_uint32(at::LEASE_MS, @lease_ms)
      memory.put_uint32(at::EARN_PERMILLE, @earn_permille)
      memory.put_uint32(at::VERSION, @version)
    end

    # @return [Boolean] whether it counts calls, not their weight
    def per_call? = @flags.anybits?(PER_CALL)

    # @param other [Object] what to compare with
    # @return [Boolean] whether it is the same rule
    def ==(other) = other.is_a?(Limit) && state == other.state
    alias eql? ==

    # @return [Integer] the same for the same rule
    def hash = state.hash

    # @return [String] the rule and its numbers
    def inspect
      numbers = { capacity: @capacity, refill: @refill, period_us: @period_us }.reject { |_, n| n.zero? }
      "#<Limiter::Limit #{[@kind, *numbers.map { |name, n| "#{name}=#{n}" }].join(' ')}>"
    end

    protected

    # @return [Array] what makes the rule
    # @api private
    def state = [@kind, @capacity, @refill, @period_us, @flags, @lease_ms, @earn_permille, @version]
  end
end
