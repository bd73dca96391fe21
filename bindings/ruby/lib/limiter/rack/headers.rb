# frozen_string_literal: true

module Limiter
  class Rack
    # The header fields of draft-ietf-httpapi-ratelimit-headers-11, and Retry-After. The draft's names for
    # them and their parameters stand here and nowhere else: its editors mean to change some.
    #
    #   RateLimit-Policy: "api";q=4;qu="concurrent-requests", "api-1";q=100;w=60
    #   RateLimit: "api-1";r=0;t=12
    #
    # One policy for each limit that has a quota. RateLimit names the limit that decided: the one that
    # refused, else the tightest. What each kind of limit says is in tests/conformance/ratelimit_fields.json,
    # which every binding is held to.
    # @api private
    class Headers
      POLICY = "ratelimit-policy"
      LIMIT = "ratelimit"
      QUOTA = "q"
      UNIT = "qu"
      WINDOW = "w"
      AVAILABLE = "r"
      WITHIN = "t"
      # What takes no time, and so has no window.
      CONCURRENT = "concurrent-requests"

      # The largest integer of a structured field (RFC 9651).
      MAX = 999_999_999_999_999
      # Microseconds.
      SECOND = 1_000_000
      private_constant(*constants(false))

      # @return [Array<String>] the policies' names
      attr_reader :names

      # @param limiter [Limiter] whose limits it tells of
      # @param names [Array<String>, nil] one for each limit
      # @param units [Array<String, nil>, nil] the quota units, one for each limit
      def initialize(limiter, names, units)
        @limits = limiter.limits
        @names = names || defaults(limiter.name)
        units ||= @limits.map { nil }
        unless @names.size == @limits.size && units.size == @limits.size
          raise ArgumentError, "#{@names.size} names and #{units.size} units for #{@limits.size} limits"
        end
        raise ArgumentError, "two limits have one name: #{@names}" if @names.uniq(&:downcase).size < @names.size

        @quoted = @names.map { |name| quote(name) }
        @quotas = @limits.map { |limit| quota(limit) }
        @policies = @limits.each_index.filter_map { |at| policy(at, units[at]) }.join(", ")
      end

      # @param headers [Hash] the app's; not changed
      # @param decision [Decision] the answer to tell
      # @param retry_us [Integer, nil] a denial: when to come back
      # @return [Hash] with the fields; those the app has as well are lists, and are continued
      def add(headers, decision, retry_us = nil)
        added = fields(decision, retry_us)
        merged = headers.to_h.dup
        merged.each_key do |name|
          more = added.delete(name.downcase) or next
          merged[name] = join(merged[name], more) unless name.downcase == "retry-after"
        end
        merged.merge(added)
      end

      private

      def defaults(name)
        name = name.dup.force_encoding(Encoding::UTF_8).scrub("?").gsub(/[^ -~]/, "?")
        @limits.each_index.map { |at| at.zero? ? name : "#{name}-#{at}" }
      end

      def fields(decision, retry_us)
        fields = {}
        fields[POLICY] = @policies unless @policies.empty?
        return fields if decision.never?

        # No limit is named where there are no numbers: the failure policy answered.
        at = decision.index
        fields[LIMIT] = current(decision, at, retry_us || decision.reset_after_us) if at && @quotas[at]
        fields["retry-after"] = [seconds(retry_us), 1].max.to_s if retry_us
        fields
      end

      def current(decision, at, wait_us)
        item = "#{@quoted[at]};#{AVAILABLE}=#{[decision.remaining, MAX].min}"
        @limits[at].kind == :semaphore ? item : "#{item};#{WITHIN}=#{seconds(wait_us)}"
      end

      def seconds(us) = [(us + SECOND - 1) / SECOND, MAX].min

      def policy(at, unit)
        units, window = @quotas[at]
        return unless units

        unit = unit.to_s
        unit = CONCURRENT if unit.empty? && @limits[at].kind == :semaphore
        item = "#{@quoted[at]};#{QUOTA}=#{units}"
        item += ";#{UNIT}=#{quote(unit)}" unless unit.empty?
        window ? "#{item};#{WINDOW}=#{window}" : item
      end

      # Units, and the window in whole seconds (nil: none); nil where a limit has no quota. A bucket's
      # window is the time in which it fills. What is shorter than a second is told as the quota of one
      # second; other fractions are rounded up, which promises less and never more.
      def quota(limit)
        case limit.kind
        when :semaphore then [[limit.capacity, MAX].min, nil]
        when :token_bucket
          fill = Rational(limit.capacity * limit.period_us, limit.refill)
          fill < SECOND ? per_second(limit.refill, limit.period_us) : [[limit.capacity, MAX].min, (fill / SECOND).ceil]
        when :pacer then per_window(limit.refill, limit.period_us)
        when :sliding_log, :sliding_counter, :fixed_window then per_window(limit.capacity, limit.period_us)
        end
      end

      def per_window(units, period_us)
        return per_second(units, period_us) if period_us < SECOND

        [[units, MAX].min, Rational(period_us, SECOND).ceil]
      end

      def per_second(units, period_us) = [[units * SECOND / period_us, MAX].min, 1]

      def join(there, more) = there.is_a?(Array) ? [*there, more] : "#{there}, #{more}"

      # A structured field's string.
      def quote(text)
        raise ArgumentError, "#{text.inspect} is not a name of printable ASCII" unless text.match?(/\A[ -~]+\z/)

        "\"#{text.gsub(/["\\]/) { "\\#{_1}" }}\""
      end
    end
    private_constant :Headers
  end
end
