# frozen_string_literal: true

require "json"
require "minitest/autorun"
require "socket"
require "timeout"
require "tmpdir"
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "limiter"
require_relative "select_scheduler"

# What the tests share.
module Helper
  ROOT = File.expand_path("../../..", __dir__)

  # A client whose time stands still.
  def virtual(**config) = Limiter::Client.new("memory://", clock: :virtual, **config)

  # A semaphore of `capacity` on a client in real time.
  def semaphore(capacity = 1, name: "test", client: Limiter::Client.new)
    client.limiter(name, Limiter.semaphore(capacity))
  end

  # Waits until the block is true, in real time; fails after ten seconds.
  def eventually(what = "it")
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
    until yield
      flunk "#{what} did not come true" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit

      sleep 0.001
    end
  end

  # Nothing held, nobody waiting, and the whole capacity to be had.
  def assert_nothing_held(limiter, key = "")
    stats = limiter.client.stats
    assert_equal({ in_flight: 0, waiting: 0 }, stats.slice(:in_flight, :waiting))
    capacity = limiter.limits.first.capacity
    assert_equal capacity, limiter.peek(key, weight: capacity).remaining
  end

  # Runs a Redis of its own, and yields its URL and its process.
  def with_redis
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    Dir.mktmpdir do |dir|
      pid = spawn("redis-server", "--port", port.to_s, "--save", "", "--dir", dir, "--bind", "127.0.0.1",
                  out: File::NULL)
      begin
        eventually("redis") { connects?(port) }
        yield "redis://127.0.0.1:#{port}", pid
      ensure
        Process.kill(:CONT, pid)
        Process.kill(:TERM, pid)
        Process.wait(pid)
      end
    end
  end

  def connects?(port)
    TCPSocket.new("127.0.0.1", port).close
    true
  rescue SystemCallError
    sleep 0.02
    false
  end

  # Runs the block with a scheduler on a thread of its own, and answers its value when every fiber is
  # done.
  def scheduled
    Thread.new do
      Fiber.set_scheduler(SelectScheduler.new)
      value = yield
      Fiber.scheduler.run
      value
    end.value
  end

  # Runs the block in a forked child, and answers what it returned (as JSON) or raises what it said.
  def in_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      answer = begin
        { "value" => yield }
      rescue Exception => error # rubocop:disable Lint/RescueException
        { "error" => "#{error.class}: #{error.message}\n#{error.backtrace.first(5).join("\n")}" }
      end
      writer.write(JSON.generate(answer))
      writer.close
      Process.exit!(0)
    end
    writer.close
    text = Timeout.timeout(30) { reader.read }
    Process.wait(pid)
    answer = JSON.parse(text)
    raise answer["error"] if answer["error"]

    answer["value"]
  ensure
    reader&.close
  end
end
