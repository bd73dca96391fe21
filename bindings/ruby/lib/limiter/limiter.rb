# frozen_string_literal: true

module Limiter
  # A name with limits. Made by {Client#limiter}; usable from any thread, fiber and forked child.
  class Limiter
    # @return [Client] whose it is
    attr_reader :client
    # @return [String] its name
    attr_reader :name
    # @return [Array<Limit>] its limits
    attr_reader :limits

    # @api private
    def initialize(client, name, limits)
      @client = client
      @name = name.to_s.dup.freeze
      @limits = limits.flatten.freeze
      @limits.each { |limit| raise TypeError, "#{limit.inspect} is not a limit" unless limit.is_a?(Limit) }
      @holds = @limits.any? { |limit| limit.kind == :semaphore }
      raise ArgumentError, "a limiter's name holds a NUL" if @name.include?("\0")

      size = Native::LimitLayout::SIZE
      memory = FFI::MemoryPointer.new(size, [@limits.size, 1].max)
      @limits.each_with_index { |limit, at| limit.write(memory + (at * size)) }
      pointer = Handle.make(:new, client.pointer, Handle.text(@name), memory, @limits.size)
      @handle = Handle.own(self, pointer, :free)
    end

    # @return [Handle] who owns the C handle
    # @api private
    attr_reader :handle

    # @return [FFI::Pointer] the C handle
    # @api private
    def pointer = @handle.pointer

    # @return [Boolean] whether it has a semaphore, so that its permits have a lease to lose
    # @api private
    def holds? = @holds

    # Sets what is answered when Redis cannot, for this limiter alone and from its next call on; until
    # then it is the client's.
    #
    # @param policy [Symbol, String] :error, :open, :closed or :local
    # @return [void]
    # @raise [ConfigError] with what is allowed in the message
    def on_failure=(policy)
      Handle.set(:set, pointer, "on_failure", policy)
    end

    # Takes from all limits at once; waits for it.
    #
    # With a block, yields the permit, gives it back when the block ends in whatever way, and returns
    # what the block returned. Thread#kill, Timeout and Ctrl-C at any instant leave nothing behind:
    # a wait is cancelled, a grant that came meanwhile is given back. Where a semaphore's lease was lost
    # while the block ran, so that others may have run beside it, {Stale} is raised at the block's end
    # (not where the block is left by break, throw or an exception of its own).
    #
    # @param key [#to_s] whose share: any bytes, up to 65 536; not nil
    # @param weight [Integer, Array<Integer>] units, or units for each limit; 0 only looks
    # @param wait [Numeric, nil] longest wait in seconds; 0 and below try once; nil and infinity wait
    #   without limit; what is beyond 24 days counts as 24 days
    # @param lease [Numeric, nil] seconds a semaphore's permit lives; nil: the limit's
    # @param renew [Boolean] whether the library renews the permit while it is held
    # @param tag [Integer] what {Client#cancel_waits} goes by
    # @yieldparam permit [Permit]
    # @return [Permit, Object] the permit, or what the block returned
    # @raise [Denied] when it was not admitted within `wait`; at once where that is known
    # @raise [Never] when it can never be admitted
    # @raise [Stale] at the end of a block whose lease was lost
    # @raise [Error] {BackendError}, {Closed}, {Cancelled}, {Overloaded}, {InvalidError}
    def acquire(key = "", weight: 1, wait: nil, lease: nil, renew: true, tag: 0, &block)
      hold(key, weight, Span.wait_ms(wait), lease, renew, tag, false, &block)
    end

    # Takes from all limits now, or answers nil.
    #
    # @param key (see #acquire)
    # @param weight (see #acquire)
    # @param lease (see #acquire)
    # @param renew (see #acquire)
    # @yieldparam permit [Permit] as for {#acquire}; not called when denied
    # @return [Permit, Object, nil] the permit, or what the block returned; nil when denied
    # @raise [Never] when it can never be admitted
    def try_acquire(key = "", weight: 1, lease: nil, renew: true, &block)
      hold(key, weight, 0, lease, renew, 0, true, &block)
    end

    # Books the next moment at which `weight` may start. The slot is yours: sleep for
    # {Permit#delay}, then start. Waits for nothing itself; {#acquire} does both in one. Dropping the
    # permit keeps the slot, so `sleep limiter.pace.delay` is fine.
    #
    # @param key (see #acquire)
    # @param weight (see #acquire)
    # @param wait [Numeric, nil] the longest delay to accept in seconds; nil: any
    # @return [Permit] whose release before its time gives the slot back
    # @raise [Denied] when the delay would be longer; nothing is booked then
    # @raise [Never] when it can never be admitted
    # @raise [InvalidError] for a limiter that holds a semaphore
    def pace(key = "", weight: 1, wait: nil)
      permit = Permit.new(self)
      request = Request.new.write(key, weight, wait_ms: Span.wait_ms(wait))
      status = @client.round_trip(:pace, pointer, request, permit.memory, undo: permit.method(:release))
      raise refusal(status, permit.memory, key, weight, nil, pace: true) unless status == Native::OK

      permit.keep
    end

    # What {#try_acquire} would answer now, charging nothing.
    #
    # @param key (see #acquire)
    # @param weight (see #acquire)
    # @return [Decision]
    def peek(key = "", weight: 1)
      memory = FFI::MemoryPointer.new(Native::DecisionLayout::SIZE)
      status = @client.round_trip(:peek, pointer, Request.new.write(key, weight), memory)
      raise refusal(status, memory, key, weight, nil) if status.negative?

      Decision.new(memory)
    end

    # Many requests without a wait, decided in their order, each for itself: one round trip on Redis.
    #
    # @param requests [Enumerable] keys, or pairs of key and weight such as a Hash has; at most 65 536
    # @return [Array<Decision>] an answer for each, with its permit where it was admitted
    # @raise [InvalidError] where the library refuses one; nothing was done then
    def try_many(requests)
      pairs = pairs(requests)
      request = Request.new(pairs.size)
      pairs.each_with_index { |(key, weight), at| request.write(key, weight, at: at) }
      size = Native::DecisionLayout::SIZE
      memory = FFI::MemoryPointer.new(size, [pairs.size, 1].max)
      permits = Array.new(pairs.size) { |at| Permit.new(self, memory + (at * size)) }
      undo = -> { permits.each(&:release) }
      status = @client.round_trip(:try_many, pointer, request, memory, pairs.size, undo: undo)
      raise Error.for(status, (reason_of_many(pairs) if status == Native::INVALID)) unless status == Native::OK

      permits.map { |permit| Decision.new(permit.memory, permit.id.zero? ? nil : permit) }
    end

    # Makes a key as new: rates and windows start afresh, permits held on it become stale.
    #
    # @param key (see #acquire)
    # @return [self]
    def reset(key = "")
      bytes = Request.key(key)
      check @client.round_trip(:reset, pointer, FFI::MemoryPointer.from_string(bytes), bytes.bytesize)
    end

    # Lets nothing start on a key for a while: what to call when the service behind it answered "too
    # many requests, come back in". Never shortens a penalty that runs.
    #
    # @param key (see #acquire)
    # @param retry_after [Numeric] seconds from now
    # @return [self]
    def penalize(key = "", retry_after:)
      bytes = Request.key(key)
      us = Span.microseconds_up(retry_after)
      check @client.round_trip(:penalize, pointer, FFI::MemoryPointer.from_string(bytes), bytes.bytesize, us)
    end

    # {Permit#release} by number.
    #
    # @param id [Integer] a permit's number
    # @return [Boolean] whether it was held until now
    def release(id) = give_back(id) == Native::OK

    # @return [Integer] the status of a release
    # @api private
    def give_back(id) = Native.release(pointer, id)

    # {Permit#renew} by number.
    #
    # @param id [Integer] a permit's number
    # @param lease [Numeric, nil] seconds; nil: the lease it was granted with
    # @return [self]
    # @raise [Stale] when it is over
    def renew(id, lease = nil)
      status = @client.round_trip(:renew, pointer, id, Span.lease_ms(lease))
      raise Error.for(status, (reason("", 1, lease, false) if status == Native::INVALID)) unless status == Native::OK

      self
    end

    # {Permit#settle} by number.
    #
    # @param id [Integer] a permit's number
    # @param actual [Integer] units used
    # @return [self]
    # @raise [Stale] when it was settled or is over
    def settle(id, actual)
      check @client.round_trip(:settle, pointer, id, Request.units(actual))
    end

    # @return [String] name and limits
    def inspect = "#<Limiter::Limiter #{@name.inspect} #{@limits.map(&:kind).join('+')}>"

    private

    # See {Waiter} for why the permit is made first, and why the ensure clause looks as it does.
    # `kept` turns false when the caller owns the permit.
    def hold(key, weight, wait_ms, lease, renew, tag, quiet)
      slot = new_slot
      permit = Permit.new(self, slot + Native::SlotLayout::DECISION)
      kept = true
      begin
        status = decide(permit.memory, key, weight, wait_ms, lease, renew, tag)
        unless status == Native::OK
          return if quiet && status == Native::DENIED

          raise refusal(status, permit.memory, key, weight, lease)
        end
        if block_given?
          value = yield permit
          permit.release!
          return value
        end

        kept = false
        permit
      ensure
        Native.after_task(slot) if kept
      end
    end

    # A `limiter_slot`: what gives back its permit in one call.
    def new_slot
      at = Native::SlotLayout
      slot = FFI::MemoryPointer.new(at::SIZE)
      slot.put_uint64(0, at::SIZE)
      slot.put_pointer(at::LIMITER, @handle.pointer)
      slot
    end

    def decide(memory, key, weight, wait_ms, lease, renew, tag)
      lease_ms = Span.lease_ms(lease)
      waiter = @client.checkout
      begin
        waiter.request.write(key, weight, wait_ms: wait_ms, lease_ms: lease_ms, renew: renew, tag: tag)
      rescue StandardError
        @client.checkin(waiter)
        raise
      end
      status = waiter.run(@handle.pointer, memory)
      @client.checkin(waiter)
      status
    end

    def refusal(status, memory, key, weight, lease, pace: false)
      case status
      when Native::DENIED then Denied.new(Decision.new(memory), self)
      when Native::NEVER then Never.new(Decision.new(memory), self)
      when Native::INVALID then Error.for(status, reason(key, weight, lease, pace))
      else Error.for(status)
      end
    end

    # Why the library called a request invalid: it says no more than that.
    def reason(key, weight, lease, pace)
      if Request.key(key).bytesize > 65_536
        "a key of #{Request.key(key).bytesize} bytes: at most 65536"
      elsif weight.is_a?(Array) && weight.size != @limits.size
        "#{weight.size} weights for #{@limits.size} limits"
      elsif pace && @holds
        "a limiter with a semaphore cannot be paced: acquire does both"
      elsif lease && !Span.lease_ms(lease).between?(100, 86_400_000)
        "a lease of #{lease} s: 0.1 to 86400"
      end
    end

    def pairs(requests)
      raise TypeError, "#{requests.inspect} is not a list of requests" unless requests.respond_to?(:map)

      requests.map do |key, weight, *more|
        raise ArgumentError, "a request is a key, or a key and its weight" unless more.empty?

        [key, weight || 1]
      end
    end

    def reason_of_many(pairs)
      return "#{pairs.size} requests: at most 65536" if pairs.size > 65_536

      pairs.each_with_index do |(key, weight), at|
        reason = reason(key, weight, nil, false)
        return "request #{at}: #{reason}" if reason
      end
      nil
    end

    def check(status)
      raise Error.for(status) unless status == Native::OK

      self
    end
  end
end
