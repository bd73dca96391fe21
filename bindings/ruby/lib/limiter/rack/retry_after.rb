# frozen_string_literal: true

module Limiter
  class Rack
    # When a denied request is to come back.
    #
    # A rate says it exactly. Where a semaphore is full nobody knows when a place comes free, and the
    # decision names a permit's lease; but a penalty of the key (its reset) and the other limits are exact
    # also then: who comes back before is refused, whatever comes free.
    # @api private
    class RetryAfter
      # @param limiter [Limiter] whose denials it is about
      # @param when_full_us [Integer] what to tell of a place that comes free nobody knows when
      def initialize(limiter, when_full_us)
        @limiter = limiter
        @limits = limiter.limits
        @when_full_us = when_full_us
        @mixed = @limits.map { |limit| limit.kind == :semaphore }.uniq.size > 1
      end

      # @param key [#to_s] whose request it was
      # @param weight [Integer, Array<Integer>] what it asked for
      # @param decision [Decision] how it was refused
      # @return [Integer, nil] nil: never
      def microseconds(key, weight, decision)
        return if decision.never?
        return decision.retry_after_us unless semaphore?(decision)

        known = [@when_full_us, decision.reset_after_us]
        known << others(key, weight) if @mixed
        [decision.retry_after_us, known.max].min
      end

      private

      def semaphore?(decision) = decision.index && @limits[decision.index].kind == :semaphore

      # What the limits but the semaphores say; 0 where they cannot be asked. On Redis one more call.
      def others(key, weight)
        decision = @limiter.peek(key, weight: without_semaphores(weight))
        return 0 unless decision.denied?

        semaphore?(decision) ? decision.reset_after_us : decision.retry_after_us
      rescue Error
        0
      end

      def without_semaphores(weight)
        @limits.each_with_index.map do |limit, at|
          next 0 if limit.kind == :semaphore
          next weight[at] if weight.is_a?(Array)

          limit.per_call? ? 1 : weight
        end
      end
    end
    private_constant :RetryAfter
  end
end
