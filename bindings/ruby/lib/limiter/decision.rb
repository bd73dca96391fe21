# frozen_string_literal: true

module Limiter
  # An answer, with its numbers. Read-only.
  class Decision
    At = Native::DecisionLayout
    private_constant :At

    # @return [Permit, nil] what is now held, where something is
    attr_reader :permit

    # @param memory [FFI::Pointer] a `limiter_decision`
    # @param permit [Permit, nil] whose answer it is
    # @api private
    def initialize(memory, permit = nil)
      @memory = memory
      @permit = permit
    end

    # @return [Integer] the C status
    def status = @memory.get_int32(At::STATUS)
    # @return [Boolean] admitted, or for a peek: would be
    def allowed? = status == Native::OK
    # @return [Boolean] not within the wait that was allowed
    def denied? = status == Native::DENIED
    # @return [Boolean] can never be admitted
    def never? = status == Native::NEVER
    # @return [Boolean] answered by the failure policy, not by the backend
    def degraded? = @memory.get_uint32(At::FLAGS).anybits?(Native::DEGRADED)
    # @return [Boolean] degraded, and the request was sent and its answer lost: charged once or not at all
    def maybe_charged? = @memory.get_uint32(At::FLAGS).anybits?(Native::MAYBE_CHARGED)
    # @return [Integer] units that the limit at {#index} allows at most
    def limit = @memory.get_uint64(At::LIMIT)
    # @return [Integer] units of it that could be taken at this moment
    def remaining = @memory.get_uint64(At::REMAINING)
    # @return [Integer] {#retry_after} in microseconds; 2**64 - 1 for never
    def retry_after_us = @memory.get_uint64(At::RETRY_AFTER_US)
    # @return [Float] denied: seconds after which a call is admitted if nobody else comes; a paced
    #   call's delay; infinite for never; else 0
    def retry_after = never? ? Float::INFINITY : retry_after_us / 1e6
    # @return [Integer] {#reset_after} in microseconds
    def reset_after_us = @memory.get_uint64(At::RESET_AFTER_US)
    # @return [Float] seconds until that limit is as good as new if nobody else comes
    def reset_after = reset_after_us / 1e6
    # @return [Float] seconds the call waited
    def waited = @memory.get_uint64(At::WAITED_US) / 1e6
    # @return [Integer] semaphore: grows with every grant on the key; else 0
    def fence = @memory.get_uint64(At::FENCE)

    # @return [Integer] how many waited ahead when it was queued
    def queue_position = @memory.get_uint32(At::QUEUE_POSITION)

    # @return [Integer, nil] position of the limit that refused, else of the tightest, from 0
    def index
      index = @memory.get_uint32(At::INDEX)
      index == Native::NO_INDEX ? nil : index
    end

    # So that an error can be sent elsewhere; the permit stays here.
    # @return [String]
    # @api private
    def marshal_dump = @memory.get_bytes(0, At::SIZE)

    # @return [void]
    # @api private
    def marshal_load(bytes)
      @memory = FFI::MemoryPointer.new(At::SIZE).put_bytes(0, bytes)
    end

    # @return [String] the status and its numbers
    def inspect
      "#<Limiter::Decision #{Native.status_name(status)} remaining=#{remaining}/#{limit} " \
        "retry_after=#{retry_after} reset_after=#{reset_after}>"
    end
  end
end
