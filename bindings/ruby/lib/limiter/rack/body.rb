# frozen_string_literal: true

module Limiter
  class Rack
    # A response body that gives a permit back when it is closed, and is the body it wraps in every
    # other respect: what it responds to, this responds to.
    # @api private
    class Body
      # @param body [Object] the app's body
      # @param give_back [#call] gives the permit back
      def initialize(body, give_back)
        @body = body
        @give_back = give_back
      end

      # Closes the body, then gives the permit back. Again is harmless.
      # @return [void]
      def close
        return if @closed

        @closed = true
        begin
          @body.close if @body.respond_to?(:close)
        ensure
          @give_back.call
        end
      end

      # A method of its own only so that each's block is passed on without a detour.
      def each(&block) = @body.each(&block)

      # @api private
      def respond_to_missing?(name, include_all = false)
        # Array(body) and puts would take the body apart by to_str.
        name != :to_str && @body.respond_to?(name, include_all)
      end

      # @api private
      def method_missing(name, *args, &block)
        return super if name == :to_str || !@body.respond_to?(name)

        case name
        when :to_ary, :call then last_use(name, args, block)
        else @body.public_send(name, *args, &block)
        end
      end
      ruby2_keywords :method_missing

      # Streaming bodies have call instead of each.
      # @api private
      def respond_to?(name, include_all = false)
        return @body.respond_to?(name, include_all) if name == :each

        super
      end

      private

      # Rack: what was taken as an array or was called with the stream is done with.
      def last_use(name, args, block)
        @body.public_send(name, *args, &block)
      ensure
        close
      end
    end
    private_constant :Body
  end
end
