# frozen_string_literal: true

require "securerandom"
require "socket"
require "tmpdir"
require_relative "helper"
require "limiter/sidekiq"

# The middleware: its rules against a stand-in for the job, then with Sidekiq and a Redis of its own.
class TestSidekiq < Minitest::Test
  include Helper

  JOBS = 40

  # Whether this library has semaphores on redis://; nothing is connected.
  def self.redis?
    client = Limiter::Client.new("redis://user:secret@127.0.0.1:1/0")
    raise "a password is shown" if client.inspect.include?("secret")

    client.limiter("n", Limiter.semaphore(1))
    true
  rescue Limiter::ConfigError, Limiter::Unsupported
    warn "not run: two Sidekiq processes on one semaphore, for this library has none on redis://"
    false
  end

  def setup
    @client = virtual
  end

  def middleware(limiter, **options) = Limiter::Sidekiq.new(limiter, options)

  def job(**more) = { "class" => "Held", "args" => ["k"], "jid" => "1" }.merge(more.transform_keys(&:to_s))

  def test_held_while_the_job_runs
    limiter = semaphore(1, client: @client)
    value = middleware(limiter).call(nil, job, "default") do
      assert_equal 1, @client.stats[:in_flight]
      :ran
    end
    assert_equal :ran, value
    assert_raises(IOError) { middleware(limiter).call(nil, job, "default") { raise IOError } }
    assert_nothing_held limiter
  end

  def test_only_some_jobs_and_keys
    limiter = @client.limiter("never", Limiter.never)
    ran = []
    middleware(limiter, only: ["Other"]).call(nil, job, "q") { ran << 1 }
    middleware(limiter, key: ->(_) {}).call(nil, job, "q") { ran << 2 }
    assert_raises(Limiter::Never) { middleware(limiter, only: [Helper], key: ->(j) { j["jid"] }).call(nil, job(wrapped: "Helper"), "q") { ran << 3 } }
    assert_equal [1, 2], ran
  end

  def test_a_denial_by_the_job_itself_is_the_jobs
    limiter = semaphore(1, client: @client)
    assert_raises(Limiter::Denied) do
      middleware(limiter).call(nil, job, "q") { limiter.acquire(wait: 0) }
    end
  end

  def test_when_the_backend_cannot_answer
    limiter = semaphore(1, client: @client)
    @client.close
    assert_raises(Limiter::Closed) { middleware(limiter).call(nil, job, "q") { flunk } }
    assert_equal :ran, middleware(limiter, on_failure: :open).call(nil, job, "q") { :ran }
    assert_raises(ArgumentError) { middleware(limiter, on_failure: :closed) }
  end

  def test_one_process_puts_denied_jobs_back
    with_redis do |url|
      log = run_jobs(url, processes: 1, limiter: "memory://", wait: 0, lease: "0.2")
      assert_all_ran(log)
    end
  end

  if redis?
    def test_two_processes_share_a_semaphore
      with_redis do |url|
        log = run_jobs(url, processes: 2, limiter: "#{url}/1", wait: 10, lease: "2")
        assert_all_ran(log)
        assert_equal 2, log.map { |entry| entry[3] }.uniq.size, "both processes ran jobs"
      end
    end
  end

  private

  # Every job ran once, under its own jid, and never more than two at once.
  def assert_all_ran(log)
    assert_equal (0...JOBS).to_a, log.filter_map { |what, _, number| number if what == "in" }.sort
    assert_equal JOBS, log.map(&:last).uniq.size
    inside = 0
    log.each { |what, *| assert_operator inside += (what == "in" ? 1 : -1), :<=, 2 }
  end

  def with_redis
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    Dir.mktmpdir do |dir|
      pid = spawn("redis-server", "--port", port.to_s, "--save", "", "--dir", dir, "--bind", "127.0.0.1",
                  out: File::NULL)
      begin
        eventually("redis") { connects?(port) }
        yield "redis://127.0.0.1:#{port}"
      ensure
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

  def run_jobs(url, processes:, limiter:, wait:, lease:)
    env = { "REDIS_URL" => url, "LIMITER_URL" => limiter, "LIMITER_WAIT" => wait.to_s, "LIMITER_LEASE" => lease,
            "RUBYLIB" => File.expand_path("../lib", __dir__) }
    jobs = File.expand_path("fixtures/jobs.rb", __dir__)
    Dir.mktmpdir do |dir|
      pids = Array.new(processes) { |at| spawn(env, "sidekiq", "-r", jobs, "-c", "5", out: "#{dir}/#{at}", err: %i[child out]) }
      push_jobs(env, jobs)
      begin
        finished = -> { redis(url, "llen", "log").to_i >= 2 * JOBS }
        limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
        until finished.call
          if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
            flunk "jobs do not end:\n#{Dir["#{dir}/*"].map { |log| File.read(log)[-2000..] || File.read(log) }.join}"
          end
          sleep 0.1
        end
      ensure
        pids.each { |pid| Process.kill(:TERM, pid) }
        pids.each { |pid| Process.wait(pid) }
      end
      redis(url, "lrange", "log", "0", "-1").lines.map { |line| JSON.parse(line) }
    end
  end

  def push_jobs(env, jobs)
    script = "require ARGV[0]; #{JOBS}.times { |n| Held.perform_async('k', n) }"
    assert system(env, RbConfig.ruby, "-e", script, jobs)
  end

  def redis(url, *command) = IO.popen(["redis-cli", "-u", url, *command], &:read)
end
