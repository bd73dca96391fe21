# frozen_string_literal: true

module Limiter
  # Makes the calls that wait for a round trip on behalf of fibers, on a few threads of its own, so that
  # the other fibers of a thread go on. The threads start when they are needed, at most {THREADS} in a
  # process, and a forked child has its own.
  # @api private
  module Offload
    THREADS = 16

    # One call, and who gets its answer: the fiber that waits, or `undo` when it was interrupted.
    class Job
      def initialize(work, undo)
        @work = work
        @undo = undo
        @answer = Thread::Queue.new
      end

      # On a thread of the pool.
      def run
        answer = begin
          [@work.call, nil]
        rescue StandardError => error
          [nil, error]
        end
        @answer.push(answer)
        drop if @left
      end

      # In the fiber.
      def value
        value, error = @answer.pop
        taken = true
        raise error if error

        value
      ensure
        unless taken
          @left = true
          drop
        end
      end

      private

      # Whichever side comes later finds the answer, and one of them only.
      def drop
        _, error = @answer.pop(true)
        @undo&.call unless error
      rescue ThreadError
        nil
      end
    end
    private_constant :Job

    class << self
      # @param undo [#call, nil] what takes back a call whose fiber was interrupted
      # @return [Object] what the block returned
      def call(undo: nil, &work)
        renew unless @process == Process.pid
        job = Job.new(work, undo)
        @jobs.push(job)
        # More jobs than threads that sleep: those that were woken are counted among the sleepers until they run.
        grow if @jobs.size > @jobs.num_waiting
        job.value
      end

      private

      def renew
        @jobs = Thread::Queue.new
        @unused = Thread::Queue.new
        THREADS.times { |number| @unused.push(number) }
        @process = Process.pid
      end

      def grow
        number = @unused.pop(true)
        jobs = @jobs
        unused = @unused
        Thread.new do
          while (job = jobs.pop)
            job.run
            job = nil
          end
        ensure
          unused.push(number)
        end
      rescue ThreadError
        nil # all are at work
      end
    end
  end
end
