# frozen_string_literal: true

require_relative "../limiter"
require_relative "options"

module Limiter
  # Sidekiq server middleware: holds a permit while a job runs, and puts a job that was denied back
  # into the schedule for when it can be admitted.
  #
  #   Sidekiq.configure_server do |config|
  #     config.server_middleware do |chain|
  #       chain.add Limiter::Sidekiq, limiter, key: ->(job) { job["args"].first }
  #     end
  #   end
  #
  # A denied job keeps its jid, its arguments and its retry count: being denied is not a failure.
  # ActiveJob's jobs are jobs like others here.
  #
  # Several limiters stand in one entry, since Sidekiq's chain keeps one entry of a class:
  #
  #   chain.add Limiter::Sidekiq, { accounts => { key: ->(job) { job["args"].first } }, upstream => {} }
  #
  # They are asked in their order. Where one denies, what the earlier ones granted is given back, also
  # what they charged by weight.
  class Sidekiq
    # @param limiter [Limiter, Hash{Limiter => Hash}] asked once for each job; or several, each with its
    #   options
    # @param options [Hash] what follows, as keywords or, from Sidekiq's chain, a Hash; for several
    #   limiters it is what holds for all of them
    # @option options [#call, String] :key from the job's payload to whose share it is; nil from it lets the
    #   job run unlimited. A String is one share for all, and so is the default
    # @option options [Integer, Array<Integer>, #call] :weight units, or from the payload to units
    # @option options [Numeric] :wait seconds a job may wait for its turn, occupying a thread, before
    #   it goes back into the schedule. Default 0
    # @option options [Array<Class, String>] :only the job classes it is about; default: all. For
    #   ActiveJob the job's own class, not the wrapper
    # @option options [Symbol] :on_failure while the limiter cannot be asked `:open`, the default, runs
    #   jobs; `:raise` makes them fail and so be retried
    # @option options [#call] :on_error told, as `job, error`, of jobs that ran without a permit, and of
    #   leases that were lost while a job ran ({Stale}). Default: a warning in Sidekiq's log
    def initialize(limiter, options = {})
      limiters = limiter.is_a?(Hash) ? limiter : { limiter => {} }
      @rules = limiters.map { |each, own| Rule.new(each, **options, **own) }
    end

    # @param _worker [Object] the job's instance
    # @param job [Hash] its payload
    # @param _queue [String] its queue
    # @yield runs the job
    # @return [Object] what the job returned; nil where it was put back
    def call(_worker, job, _queue, &run)
      ask(@rules, job, &run)
    rescue Later => later
      put_back(job, later.after_us)
    end

    # A limiter and what it is asked for a job.
    # @api private
    class Rule
      attr_reader :on_failure

      def initialize(limiter, key: "", weight: 1, wait: 0, only: nil, on_failure: :open,
                     on_error: nil)
        raise ArgumentError, "on_failure is :raise or :open" unless %i[raise open].include?(on_failure)

        @limiter = Options.limiter(limiter)
        @key = Options.key(key)
        @weight = Options.weight(weight)
        @wait = Options.wait(wait)
        @only = only && Array(only).map(&:to_s)
        @on_failure = on_failure
        @on_error = Options.callable(:on_error, on_error) || ->(job, error) { warn(job, error) }
      end

      # @return [Object, nil] the key; nil where the limiter is not about this job
      def key(job)
        @key.call(job) unless @only && !@only.include?(job["wrapped"] || job["class"])
      end

      def acquire(key, job, &block)
        @limiter.acquire(key, weight: @weight.call(job), wait: @wait, &block)
      end

      def tell(job, error) = @on_error.call(job, error)

      private

      def warn(job, error)
        ::Sidekiq.logger.warn("limiter #{@limiter.name}: job #{job['jid']}: #{error.message}")
      end
    end

    # Says, through the blocks of the limiters asked before, that the job is to come back.
    # @api private
    class Later < StandardError
      attr_reader :after_us

      def initialize(after_us)
        @after_us = after_us
        super("denied")
      end
    end
    private_constant :Rule, :Later

    private

    # Under what the first of the rules grants, asks the others, and then runs the job.
    def ask(rules, job, &run)
      rule, *others = rules
      return run.call if rule.nil?

      key = rule.key(job)
      key.nil? ? ask(others, job, &run) : under(rule, key, others, job, &run)
    end

    def under(rule, key, others, job, &run)
      admitted = ended = false
      value = nil
      rule.acquire(key, job) do |permit|
        admitted = true
        value = granted(permit) { ask(others, job, &run) }
        ended = true
      end
      value
    rescue Denied => denial
      # A denial raised by the job itself is the job's own affair.
      raise if admitted

      raise Later, denial.decision.retry_after_us
    rescue Stale => lost
      raise unless ended

      rule.tell(job, lost)
      value
    rescue *UNANSWERED => error
      raise if admitted || rule.on_failure == :raise

      rule.tell(job, error)
      ask(others, job, &run)
    end

    # Nothing ran where a later limiter denied, so nothing was used.
    def granted(permit)
      yield
    rescue Later
      begin
        permit.settle(0) unless permit.id.zero?
      rescue Error
        nil # it stays charged
      end
      raise
    end

    # As Sidekiq's own retries do it: straight into the schedule. A push would go through the client's
    # middleware, which may stop a job it has seen before, and then it is gone.
    #
    # Never before it can be admitted, and not all at the same instant: up to as much later again, from a
    # second to half a minute.
    def put_back(job, after_us)
      after = after_us / 1e6
      at = Time.now.to_f + after + (rand * after.clamp(1, 30))
      payload = ::Sidekiq.dump_json(job.reject { |name, _| %w[at enqueued_at].include?(name) })
      ::Sidekiq.redis { |redis| redis.zadd("schedule", at.to_s, payload) }
      seconds = (at - Time.now.to_f).round(1)
      ::Sidekiq.logger.info { "limiter: job #{job['jid']} was denied, and is scheduled again in #{seconds} s" }
      nil
    end
  end
end
