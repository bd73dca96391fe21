# frozen_string_literal: true

require "io/wait"

module Limiter
  # What one acquire at a time waits with: a completion queue of its own, and a request to submit.
  #
  # Waiting is IO#wait_readable on the queue's descriptor and nothing else: the GVL is free, Timeout,
  # Thread#kill and signals work as on every other IO, and a fiber scheduler parks the fiber. There is
  # no reactor, thread or lock on the Ruby side that a fork would have to bring back: the C library
  # renews the queue in the child under the same descriptor. Waiters are pooled in {Client}; a process
  # has as many as it had acquires under way at once.
  #
  # == Interrupts
  #
  # handle_interrupt does not hold back signals, so nothing here relies on it. Ruby looks for interrupts
  # when a method, in Ruby or in C, returns and when a branch is taken; not in between. Hence two rules.
  # What C granted is always within the reach of a single C call whose arguments were known before the
  # grant: freeing the queue detaches a wait and gives back a grant that was not polled; ending the
  # slot gives back the permit in it. And in an ensure clause that call comes first, with local
  # variables as its arguments: not even a number is read from memory before.
  # @api private
  class Waiter
    STATUS = Native::DecisionLayout::STATUS
    private_constant :STATUS

    # @return [Request] to be written before {#run}
    attr_reader :request

    # @param client [Client] whose queue it is
    def initialize(client)
      out = FFI::MemoryPointer.new(:pointer)
      status = Native.queue_new(client.pointer, out)
      raise Error.for(status) unless status == Native::OK

      @queue = Handle.own(self, out.read_pointer, :queue_free)
      @request = Request.new
    end

    # Gives the descriptor back, and whatever the queue had under way.
    # @return [void]
    def close = @queue.free

    # Submits the request and waits for its end. A waiter that was interrupted is closed.
    # @param limiter [FFI::Pointer] whom to ask
    # @param memory [FFI::Pointer] the `limiter_decision` to fill
    # @return [Integer] the status
    def run(limiter, memory)
      queue = @queue
      undecided = true
      status = Native.submit(queue.pointer, limiter, @request, memory)
      status = wait(memory) while status == Native::PENDING
      undecided = false
      status
    ensure
      queue.free if undecided
    end

    private

    def wait(memory)
      readable.wait_readable
      polled = Native.queue_poll(@queue.pointer, memory, 1, 0)
      raise Error.for(polled) if polled.negative?

      memory.get_int32(STATUS)
    end

    # The descriptor, asked for each time: a child that had closed it, as daemons do, and has something
    # else on its number finds the queue on another one.
    def readable
      number = Native.queue_fd(@queue.pointer)
      raise Error.for(number) if number.negative?

      @io = IO.for_fd(number, "r", autoclose: false) unless number == @number && !@io.closed?
      @number = number
      @io
    end
  end
end
