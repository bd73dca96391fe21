# frozen_string_literal: true

module Limiter
  # A backend (memory or Redis) and what runs in the background for it. One for each backend is
  # enough for a program; open it before forking and use it in every child.
  class Client
    # Idle waiters kept for the next acquire; the rest give their descriptors back.
    IDLE_WAITERS = 64
    private_constant :IDLE_WAITERS

    # @return [String] where the state lives, without a password
    attr_reader :url

    # Opens a client. Never connects and never waits: a backend that is down shows at the first call.
    #
    # @param url [String, nil] "memory://" or "redis://host:port/db"
    # @param config settings by name, such as `lease_ms: 10_000`, `on_failure: :open`,
    #   `clock: :virtual`; the README lists them. nil is as good as left out
    # @raise [ConfigError] with what is allowed in the message
    def initialize(url = "memory://", **config)
      url = Handle.text(url || "memory://")
      raise ArgumentError, "a URL holds a NUL" if url.include?("\0")

      @far = !url.start_with?("memory:")
      @idle = []
      settings = FFI::AutoPointer.new(Native.config_new, Native.method(:config_free))
      config.compact.each { |name, value| set(settings, name.to_s, value) }
      @handle = Handle.own(self, Handle.make(:client_open, url, settings), :client_free_blocking)
      @url = shown(url).freeze
    end

    # @return [Handle] who owns the C handle
    # @api private
    attr_reader :handle

    # @return [FFI::Pointer] the C handle
    # @api private
    def pointer = @handle.pointer

    # Makes a limiter. Limiters of one name and the same kinds of limit share their state; opening a
    # name again with other numbers changes it for everybody from the next call on.
    #
    # @param name [String] 1 to 1024 bytes
    # @param limits [Array<Limit>] 1 to 16 of them; each acquire takes from all or from none
    # @return [Limiter]
    # @raise [ConfigError] when a limit is out of range
    def limiter(name, *limits) = Limiter.new(self, name, limits)

    # Closes the client: every wait ends with {Closed}, permits still held are given back. Repeating
    # it is harmless.
    #
    # @param timeout [Numeric, nil] seconds to wait for that; nil: without limit. Timeout, Thread#kill and
    #   Ctrl-C end the wait, while the client goes on closing
    # @return [Boolean] whether that sufficed, and Redis could be told; the client is closed all the same
    def close(timeout: 1)
      wait_ms = Span.wait_ms(timeout)
      handle = @handle
      # A thread in C does not hear of interrupts; one that waits for it does.
      status = Thread.new { Native.client_shutdown_blocking(handle.pointer, wait_ms) }.value
      raise Error.for(status) unless [Native::OK, Native::TIMEOUT].include?(status)

      status == Native::OK
    end

    # Ends every wait that was started with this `tag`: {Limiter#acquire} raises {Cancelled} there.
    #
    # @param tag [Integer] not 0, which untagged waits have
    # @return [Integer] how many it ended
    def cancel_waits(tag)
      raise ArgumentError, "untagged waits cannot be told apart" if tag == 0

      ended = Native.cancel_waits(pointer, Request.unsigned(tag, "tag"))
      raise Error.for(ended) if ended.negative?

      ended
    end

    # The client's counters in this process.
    # @return [Hash{Symbol => Integer}] as `limiter_stats` of limiter.h names them
    def stats
      size = (Native::STATS.size + 1) * 8
      memory = FFI::MemoryPointer.new(size)
      memory.put_uint64(0, size)
      check Native.stats_get(pointer, memory)
      Native::STATS.zip(memory.get_array_of_uint64(8, Native::STATS.size)).to_h
    end

    # Lets time pass on a client opened with `clock: :virtual`, so that tests need not sleep. What
    # falls due on the way happens in order before this returns.
    #
    # @param seconds [Numeric] how much
    # @return [self]
    # @raise [Unsupported] on every other client
    def advance(seconds) = check(round_trip(:clock_advance_us, pointer, Span.microseconds(seconds)))

    # @return [Rational] what the clock shows, in seconds since 1970
    def now = Rational(Native.clock_now_us(pointer), 1_000_000)

    # Sets the clock of a client opened with `clock: :virtual`. Backwards is what a clock that steps
    # back does to a limiter: no time has passed.
    #
    # @param seconds [Numeric, Time] seconds since 1970; what a Time has below a microsecond is dropped
    def now=(seconds)
      seconds = seconds.floor(6).to_r if seconds.is_a?(Time)
      check round_trip(:clock_set_us, pointer, Span.microseconds(seconds))
    end

    # @return [String] the URL without a password
    def inspect = "#<Limiter::Client #{@url}>"

    # @return [Waiter] one that nobody uses
    # @api private
    def checkout = @idle.pop || Waiter.new(self)

    # Array#pop and #push are one step each under the GVL, and a waiter lost to an interrupt between
    # them is freed by the garbage collector: no lock that a fork or a trap handler could find held.
    # @api private
    def checkin(waiter)
      @idle.size < IDLE_WAITERS ? @idle.push(waiter) : waiter.close
    end

    # Calls a function that takes one round trip on Redis and none on memory: there without the GVL,
    # and under a fiber scheduler on another thread, so that the other fibers go on.
    # @param undo [#call, nil] what takes the call back when its fiber was interrupted meanwhile
    # @return [Integer] the status
    # @api private
    def round_trip(function, *args, undo: nil)
      return Native.public_send(function, *args) unless @far

      function = :"#{function}_blocking"
      return Native.public_send(function, *args) unless Fiber.current_scheduler

      Offload.call(undo: undo) { Native.public_send(function, *args) }
    end

    private

    # What of a URL cannot be a password: neither what stands before the last "@" nor the query. Where
    # the two cannot be told apart, only the scheme.
    def shown(url)
      scheme, rest = url.split("://", 2)
      return scheme if rest.nil?

      place, query = rest.split(/[?#]/, 2)
      "#{scheme}://#{query&.include?('@') ? '...' : place.to_s.rpartition('@').last}"
    end

    def set(settings, name, value)
      Handle.set(:config_set, settings, name, { true => "yes", false => "no" }.fetch(value, value))
    end

    def check(status)
      raise Error.for(status) unless status == Native::OK

      self
    end
  end
end
