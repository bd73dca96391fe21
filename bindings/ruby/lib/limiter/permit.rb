# frozen_string_literal: true

module Limiter
  # What an admitted call holds. Given back by {#release}, at the end of the block it was yielded
  # to, or at the latest when nothing refers to it any more.
  class Permit
    # Gives back what a collected permit still holds.
    # @api private
    class Finalizer
      # Keeps the limiter, and so its client, until then.
      def initialize(limiter, memory)
        @limiter = limiter
        @handle = limiter.handle
        @memory = memory
      end

      # An interrupt may come before the release, and Ruby calls a finalizer but once: so it is tried
      # again. A second release does nothing.
      # @return [void]
      def call(_object_id)
        Native.release(@handle.pointer, @memory.get_uint64(PERMIT))
      rescue Exception # rubocop:disable Lint/RescueException
        Native.release(@handle.pointer, @memory.get_uint64(PERMIT))
        raise
      end
    end

    PERMIT = Native::DecisionLayout::PERMIT
    private_constant :Finalizer, :PERMIT

    # @return [Limiter] who granted it
    attr_reader :limiter
    # @return [FFI::Pointer] the `limiter_decision` that says what is held
    # @api private
    attr_reader :memory

    # Made before the call that may fill it, so that there is no instant in which a grant belongs to
    # nobody. The collector gives back what it holds, unless {#keep} was called.
    # @param memory [FFI::Pointer] a `limiter_decision`, zeroed until there is one
    # @api private
    def initialize(limiter, memory = FFI::MemoryPointer.new(Native::DecisionLayout::SIZE))
      @limiter = limiter
      @memory = memory
      ObjectSpace.define_finalizer(self, Finalizer.new(limiter, memory))
    end

    # @return [Integer] the permit's number; 0 once it was given back, and for weight 0
    def id = @memory.get_uint64(PERMIT)
    # @return [Decision] the numbers of the answer that granted it
    def decision = Decision.new(@memory, self)
    # @return [Integer] grows with every grant of a semaphore on the key
    def fence = decision.fence
    # @return [Integer] units the tightest limit allows at most
    def limit = decision.limit
    # @return [Integer] units of it that were left
    def remaining = decision.remaining
    # @return [Float] seconds until that limit is as good as new
    def reset_after = decision.reset_after
    # @return [Float] seconds the call waited
    def waited = decision.waited
    # @return [Boolean] whether the failure policy granted it
    def degraded? = decision.degraded?
    # @return [Float] from {Limiter#pace}: seconds to sleep before starting
    def delay = decision.retry_after

    # Gives it back. Harmless at any time and any number of times; never waits.
    # @return [Boolean] whether it was held until now: false after an earlier release, when the lease
    #   was lost, or in a forked child
    def release
      held = @limiter.release(id)
      @memory.put_uint64(PERMIT, 0)
      held
    end

    # {#release} that tells of a lease that was lost: then others may have held what this held.
    # @return [self]
    # @raise [Stale] where the limiter has a semaphore and the permit was over before
    def release!
      number = id
      return self if number.zero?

      status = @limiter.give_back(number)
      @memory.put_uint64(PERMIT, 0)
      lost = status == Native::STALE && @limiter.holds?
      raise Error.for(status, "the lease was lost before the permit was given back") if lost

      self
    end

    # Leaves what it holds to the collector no more: a booked slot is slept for by those who have only
    # its delay.
    # @return [self]
    # @api private
    def keep
      ObjectSpace.undefine_finalizer(self)
      self
    end

    # Makes it live for `lease` seconds from now. Only of use with `renew: false`: otherwise the
    # library renews it in time.
    # @param lease [Numeric, nil] seconds; nil: the lease it was granted with
    # @return [self]
    # @raise [Stale] when it is over: then somebody else may hold what it held
    def renew(lease = nil)
      @limiter.renew(held, lease)
      self
    end

    # Corrects an estimate: the call used `actual`, not the weight it asked for. Once, before
    # {#release}.
    # @param actual [Integer] units used, to 2**48
    # @return [self]
    # @raise [Stale] when it was settled or is over
    def settle(actual)
      @limiter.settle(held, actual)
      self
    end

    # Leaves the permit to its number: neither the end of the block nor the garbage collector gives it
    # back, but {Limiter#release}.
    # @return [Integer] the number
    def detach
      number = id
      @memory.put_uint64(PERMIT, 0)
      number
    end

    # @return [String] number and numbers
    def inspect = "#<Limiter::Permit #{id} remaining=#{remaining}/#{limit}>"

    private

    def held
      number = id
      raise Error.for(Native::STALE) if number.zero?

      number
    end
  end
end
