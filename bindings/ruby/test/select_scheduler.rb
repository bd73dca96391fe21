# frozen_string_literal: true

# The least fiber scheduler: IO.select and a list of sleepers.
class SelectScheduler
  def initialize
    @readers = {}
    @writers = {}
    @sleepers = {}
    @blocked = {} # else nothing but the blocker might refer to a fiber, and the collector take it
    @ready = []
    @lock = Thread::Mutex.new
    @urgent = IO.pipe
  end

  def run
    until @readers.empty? && @writers.empty? && @sleepers.empty? && @blocked.empty? && @ready.empty?
      readable, writable = IO.select(@readers.keys + [@urgent[0]], @writers.keys, [], pause)
      @urgent[0].read_nonblock(1024) if readable&.delete(@urgent[0])
      resume_all(readable, writable)
    end
  end

  def close = run

  def io_wait(io, events, timeout)
    fiber = Fiber.current
    @readers[io] = fiber if events.anybits?(IO::READABLE)
    @writers[io] = fiber if events.anybits?(IO::WRITABLE)
    @sleepers[fiber] = now + timeout if timeout
    Fiber.yield
  ensure
    @readers.delete(io) if @readers[io] == fiber
    @writers.delete(io) if @writers[io] == fiber
    @sleepers.delete(fiber)
  end

  def kernel_sleep(duration = nil)
    block(:sleep, duration)
    true
  end

  def block(_blocker, timeout = nil)
    fiber = Fiber.current
    timeout ? @sleepers[fiber] = now + timeout : @blocked[fiber] = true
    Fiber.yield
  ensure
    timeout ? @sleepers.delete(fiber) : @blocked.delete(fiber)
  end

  def unblock(_blocker, fiber)
    @lock.synchronize { @ready << fiber }
    @urgent[1].write_nonblock(".")
  end

  def timeout_after(duration, error, *args)
    fiber = Fiber.current
    alarm = Fiber.new(blocking: false) do
      kernel_sleep(duration)
      fiber.raise(error, *args) if fiber.alive?
    end
    alarm.resume
    yield(duration)
  ensure
    @sleepers.delete(alarm)
  end

  def fiber(&block)
    fiber = Fiber.new(blocking: false, &block)
    fiber.resume
    fiber
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def pause
    return 0 unless @ready.empty?

    first = @sleepers.values.min
    first && [first - now, 0].max
  end

  def resume_all(readable, writable)
    due = @sleepers.select { |_, at| at <= now }.keys
    fibers = @lock.synchronize { @ready.slice!(0..) } + due
    fibers += Array(readable).filter_map { |io| @readers[io] }
    fibers += Array(writable).filter_map { |io| @writers[io] }
    fibers.uniq.each { |fiber| fiber.resume if fiber.alive? }
  end
end
