# frozen_string_literal: true

module Limiter
  class Rack
    # The header fields of draft-ietf-httpapi-ratelimit-headers-10, and Retry-After.
    #
    #   RateLimit-Policy: "api";q=100;w=60, "api-1";q=4;qu="concurrent-requests"
    #   RateLimit: "api";r=0;t=12
    #
    # One policy for each limit; those after the first are numbered. RateLimit names the limit that
    # decided: the one that refused, else the tightest.
    # @api private
    class Headers
      # The largest integer of a structured field (RFC 9651).
      MAX = 999_999_999_999_999
      private_constant :MAX

      # @param limits [Array<Limit>] the limiter's
      # @param policy [String] the first policy's name
      def initialize(limits, policy)
        names = limits.each_index.map { |at| string(at.zero? ? policy : "#{policy}-#{at}") }
        @names = names
        @capacities = limits.map(&:capacity)
        @policies = limits.zip(names).filter_map { |limit, name| policy(limit, name) }.join(", ")
      end

      # @param headers [Hash] the app's; not changed
      # @param decision [Decision] the answer to tell
      # @return [Hash] with the fields the app did not set itself
      def add(headers, decision)
        added = fields(decision)
        headers.each_key { |name| added.delete(name.downcase) } unless headers.empty?
        headers.to_h.merge(added)
      end

      private

      def fields(decision)
        fields = {}
        fields["ratelimit-policy"] = @policies unless @policies.empty?
        at = decision.index || @capacities.index(decision.limit)
        if at && !decision.never? && !@policies.empty?
          us = decision.denied? ? decision.retry_after_us : decision.reset_after_us
          fields["ratelimit"] = "#{@names[at]};r=#{[decision.remaining, MAX].min};t=#{seconds(us)}"
        end
        fields["retry-after"] = seconds(decision.retry_after_us).to_s if decision.denied?
        fields
      end

      def seconds(us) = [(us + 999_999) / 1_000_000, MAX].min

      def policy(limit, name)
        quota = "#{name};q=#{[limit.capacity, MAX].min}"
        case limit.kind
        when :semaphore then limit.per_call? ? "#{quota};qu=\"concurrent-requests\"" : quota
        when :unlimited, :never then nil
        when :pacer
          "#{name};q=#{[limit.refill, MAX].min};w=#{seconds(limit.period_us)}"
        else "#{quota};w=#{limit.window}"
        end
      end

      # A structured field's string: printable ASCII, with two characters escaped.
      def string(text)
        "\"#{text.to_s.gsub(/[^ -~]/, '?').gsub(/["\\]/) { "\\#{_1}" }}\""
      end
    end
    private_constant :Headers
  end
end
