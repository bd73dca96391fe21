# frozen_string_literal: true

module Limiter
  # What every error of this library is.
  class Error < StandardError
    # @return [Integer] the C status behind it
    attr_reader :status

    # @param status [Integer] a `limiter_status`
    # @param message [String, nil] instead of the status's own sentence
    def initialize(status, message = nil)
      @status = status
      super(message || Native.status_message(status))
    end

    # The error a status stands for.
    # @param status [Integer] a `limiter_status`
    # @param message [String, nil] what the library wrote about it
    # @return [Error]
    # @api private
    def self.for(status, message = nil)
      message = nil if message && message.empty?
      (BY_STATUS[status] || Error).new(status, message)
    end
  end

  # Not admitted: the numbers say what stood in the way and when to come back.
  class Refused < Error
    # @return [Decision] all of the answer
    attr_reader :decision

    # @param decision [Decision] the refusal
    # @param message [String] what to tell
    def initialize(decision, message)
      @decision = decision
      super(decision.status, message)
    end

    # @return [Integer] units the limit that refused allows at most
    def limit = decision.limit
    # @return [Integer] units of it that could be taken when it refused
    def remaining = decision.remaining
    # @return [Float] seconds until a call is admitted if nobody else comes; where a semaphore refused a
    #   permit's lease, as a hint; infinite for {Never}
    def retry_after = decision.retry_after
    # @return [Float] seconds until that limit is as good as new
    def reset_after = decision.reset_after
    # @return [Integer, nil] position of the limit that refused, from 0
    def index = decision.index
    # @return [Boolean] whether the failure policy refused, not the backend
    def degraded? = decision.degraded?

    private

    # Whose refusal it is: "upstream: ".
    def whose(limiter) = limiter ? "#{limiter.name}: " : ""

    # Which limit's: "limits[0] (semaphore)"; nil without one.
    def which(decision, limiter)
      at = decision.index or return
      limiter ? "limits[#{at}] (#{limiter.limits[at].kind})" : "limits[#{at}]"
    end
  end

  # Not within the wait that was allowed.
  class Denied < Refused
    # @param decision [Decision] the refusal
    # @param limiter [Limiter, nil] who refused
    def initialize(decision, limiter = nil)
      which = which(decision, limiter) || ("the failure policy" if decision.degraded?)
      super(decision, "#{whose(limiter)}denied#{" by #{which}" if which}; retry after #{decision.retry_after} s")
    end
  end

  # Heavier than the limit can ever hold, or a limit that never admits: waiting is pointless.
  class Never < Refused
    # @param decision [Decision] the refusal
    # @param limiter [Limiter, nil] who refused
    def initialize(decision, limiter = nil)
      which = which(decision, limiter)
      super(decision, "#{whose(limiter)}can never be admitted#{": #{which} allows at most #{decision.limit}" if which}")
    end
  end

  # An argument the library refused.
  class InvalidError < Error; end
  # A URL, a setting or a limit was refused; the message says what is allowed.
  class ConfigError < Error; end
  # The client was closed.
  class Closed < Error; end
  # A deadline of the library's own passed before anything was decided.
  class TimedOut < Error; end
  # {Client#cancel_waits} ended the wait.
  class Cancelled < Error; end
  # The backend cannot be reached or answered with an error; nothing was charged.
  class BackendError < Error; end
  # The request was sent and its answer lost: it was charged once or not at all.
  class UnknownOutcome < BackendError; end
  # The permit is over: released, expired or lost before.
  class Stale < Error; end
  # The permit belongs to the process that forked this one.
  class Forked < Error; end
  # As many waits as the client's `max_waiting` are under way.
  class Overloaded < Error; end
  # The system refused a descriptor, a thread or memory.
  class ResourceError < Error; end
  # This limiter or backend cannot do that.
  class Unsupported < Error; end
  # A bug in the library was caught at its border. Please report it.
  class Panic < Error; end

  class Error
    # @api private
    BY_STATUS = {
      -1 => InvalidError, -2 => ConfigError, -3 => Closed, -4 => TimedOut, -5 => Cancelled,
      -6 => BackendError, -7 => UnknownOutcome, -8 => Stale, -9 => Forked, -11 => Overloaded,
      -12 => ResourceError, -13 => Unsupported, -99 => Panic
    }.freeze
    private_constant :BY_STATUS
  end

  # What says that the limits could not be asked. Only this may let work pass without a permit. Whatever
  # else is neither admission nor refusal may be the caller's doing (a key too long, more waits than
  # fit), and would be a way around the limit.
  # @api private
  UNANSWERED = [BackendError, TimedOut, Closed].freeze
  private_constant :UNANSWERED
end
