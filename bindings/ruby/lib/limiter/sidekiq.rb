# frozen_string_literal: true

require_relative "../limiter"

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
  # ActiveJob's jobs are jobs like others here. Several may be added, for several limiters.
  class Sidekiq
    # @param limiter [Limiter] asked once for each job
    # @param options [Hash] what follows, as keywords or, from Sidekiq's chain, a Hash
    # @option options [#call] :key from the job's payload to whose share it is; nil lets it run
    #   unlimited. Default: one share for all
    # @option options [Integer, Array<Integer>, #call] :weight units, or from the payload to units
    # @option options [Numeric] :wait seconds a job may wait for its turn, occupying a thread, before
    #   it goes back into the schedule. Default 0
    # @option options [Array<Class, String>] :only the job classes it is about; default: all. For
    #   ActiveJob the job's own class, not the wrapper
    # @option options [Symbol] :on_failure while the backend cannot answer `:raise`, the default,
    #   makes jobs fail and so be retried; `:open` runs them
    def initialize(limiter, options = {})
      @limiter = limiter
      configure(**options)
    end

    # @param _worker [Object] the job's instance
    # @param job [Hash] its payload
    # @param _queue [String] its queue
    # @yield runs the job
    # @return [Object] what the job returned; nil where it was put back
    def call(_worker, job, _queue, &run)
      return yield if @only && !@only.include?(job["wrapped"] || job["class"])

      key = @key.call(job)
      return yield if key.nil?

      weight = @weight.respond_to?(:call) ? @weight.call(job) : @weight
      admitted = false
      begin
        @limiter.acquire(key, weight: weight, wait: @wait) do
          admitted = true
          run.call
        end
      rescue Denied => denial
        # A denial raised by the job itself is the job's own affair.
        raise if admitted

        put_back(job, denial.decision.retry_after_us)
      rescue Never
        raise
      rescue Error
        raise if admitted || @on_failure == :raise

        yield
      end
    end

    private

    def configure(key: ->(_job) { "" }, weight: 1, wait: 0, only: nil, on_failure: :raise)
      raise ArgumentError, "on_failure is :raise or :open" unless %i[raise open].include?(on_failure)

      @key = key
      @weight = weight
      @wait = wait
      @only = only && Array(only).map(&:to_s)
      @on_failure = on_failure
    end

    # A plain push with a time is what perform_in does; done here it keeps the payload as it is.
    def put_back(job, after_us)
      at = Time.now.to_f + (after_us / 1e6)
      ::Sidekiq::Client.push(job.merge("at" => at))
      nil
    end
  end
end
