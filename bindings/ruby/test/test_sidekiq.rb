# frozen_string_literal: true

require "open3"
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

  def test_options_that_make_no_sense
    limiter = semaphore(1, client: @client)
    [{ key: 5 }, { weight: "1" }, { wait: "1" }, { on_error: 1 }].each do |options|
      assert_raises(TypeError, options) { middleware(limiter, **options) }
    end
    assert_match(/nil is not a limiter/, assert_raises(TypeError) { middleware(nil) }.message)
    middleware(limiter, key: "all").call(nil, job, "q") { assert_equal [0, 1], ["all", ""].map { |key| limiter.peek(key).remaining } }
  end

  def test_a_denial_by_the_job_itself_is_the_jobs
    limiter = semaphore(1, client: @client)
    assert_raises(Limiter::Denied) do
      middleware(limiter).call(nil, job, "q") { limiter.acquire(wait: 0) }
    end
  end

  def test_when_the_limiter_cannot_be_asked
    limiter = semaphore(1, client: @client)
    @client.close
    told = []
    note = ->(job, error) { told << [job["jid"], error.class] }
    assert_equal :ran, middleware(limiter, on_error: note).call(nil, job, "q") { :ran }
    assert_raises(Limiter::Closed) { middleware(limiter, on_failure: :raise, on_error: note).call(nil, job, "q") { flunk } }
    assert_equal [["1", Limiter::Closed]], told
    assert_raises(ArgumentError) { middleware(limiter, on_failure: :closed) }
  end

  def test_what_a_job_brings_about_itself_opens_nothing
    limiter = semaphore(1, client: @client)
    [{ key: ->(_) { "x" * 65_537 } }, { weight: [1, 1] }].each do |options|
      assert_raises(Limiter::InvalidError) { middleware(limiter, **options).call(nil, job, "q") { flunk } }
    end
  end

  # The job has run: to fail it would run it again.
  def test_a_lease_that_was_lost_is_told
    limiter = @client.limiter("s", Limiter.semaphore(1, lease: 1, renew: false))
    told = []
    ran = middleware(limiter, on_error: ->(_job, error) { told << error.class }).call(nil, job, "q") do
      @client.advance(2)
      :ran
    end
    assert_equal [:ran, [Limiter::Stale]], [ran, told]
    assert_raises(Limiter::Stale) { middleware(limiter).call(nil, job, "q") { raise Limiter::Stale.new(-8) } }
  end

  # A later one that denies: what the earlier ones granted is given back, and the job comes back.
  def test_several_limiters_are_all_or_nothing
    first = @client.limiter("first", Limiter.semaphore(9), Limiter.token_bucket(5, refill: 1))
    second = @client.limiter("second", Limiter.fixed_window(1, window: 60))
    both = Limiter::Sidekiq.new({ first => { key: ->(job) { job["args"].first } }, second => { only: ["Held"] } }, weight: 1)
    assert_equal :ran, both.call(nil, job, "q") { :ran }
    put_back = []
    both.define_singleton_method(:put_back) { |job, after_us| put_back << [job["jid"], after_us] }
    both.call(nil, job, "q") { flunk }
    assert_equal [["1", second.peek.retry_after_us]], put_back
    assert_equal 4, first.peek("k").remaining, "only the job that ran was charged"
    assert_equal 0, @client.stats[:in_flight]
    assert_equal :ran, both.call(nil, job(class: "Other"), "q") { :ran }
    assert_raises(Limiter::Denied) { both.call(nil, job(class: "Other"), "q") { second.acquire(wait: 0) } }
    @client.close
    assert_equal :ran, Limiter::Sidekiq.new({ first => {}, second => {} }, on_error: ->(*) {}).call(nil, job, "q") { :ran }
  end

  # Neither before it can be admitted, nor through a client middleware that may stop it, nor all at once.
  def test_a_denied_job_is_in_the_schedule
    with_redis do |url|
      script = <<~RUBY
        require "limiter/sidekiq"
        require "sidekiq"
        Sidekiq.logger = Logger.new($stderr)
        Sidekiq.redis = { url: ENV["REDIS_URL"] }
        class Stop; def call(*) = nil; end
        Sidekiq.configure_client { |config| config.client_middleware { |chain| chain.add Stop } }
        limiter = Limiter::Client.new.limiter("x", Limiter.fixed_window(1, window: 3600, align: :first_use))
        limiter.acquire("k")
        middleware = Limiter::Sidekiq.new(limiter, key: ->(_) { "k" })
        start = Time.now.to_f
        20.times do |n|
          middleware.call(nil, { "class" => "Held", "args" => [n], "jid" => n.to_s, "retry" => true, "at" => 1.0, "enqueued_at" => 2.0 }, "q") { abort "ran" }
        end
        found = Sidekiq.redis { |redis| redis.zrange("schedule", 0, -1, with_scores: true) }
        puts JSON.generate([start, found.map { |payload, at| [JSON.parse(payload), at] }])
      RUBY
      env = { "REDIS_URL" => url, "RUBYLIB" => File.expand_path("../lib", __dir__) }
      output, said, = Open3.capture3(env, RbConfig.ruby, "-e", script)
      assert_equal 20, said.scan(/job \d+ was denied, and is scheduled again in \d+\.\d s/).size, said
      start, found = JSON.parse(output)
      assert_equal (0..19).to_a, found.map { |payload, _| payload["args"].first }.sort
      assert_equal [{ "class" => "Held", "retry" => true }], found.map { |payload, _| payload.except("args", "jid") }.uniq
      times = found.map(&:last)
      assert_operator times.min, :>=, start + 3590
      assert_operator times.max, :<=, start + 3640
      assert_operator times.uniq.size, :>, 15
    end
  end

  def test_one_process_puts_denied_jobs_back
    with_redis do |url|
      log = run_jobs(url, processes: 1, limiter: "memory://", wait: 0, lease: "0.2")
      assert_all_ran(log)
    end
  end

  if redis?
    def test_two_processes_and_two_limiters
      with_redis do |url|
        log = run_jobs(url, processes: 2, limiter: "#{url}/1", wait: 0, lease: "0.5", rate: "40")
        assert_all_ran(log)
        first, last = log.filter_map { |what, *, at| at if what == "in" }.minmax
        assert_operator last - first, :>=, (JOBS - 2) / 40r * 0.6, "the second limiter held nobody back"
      end
    end

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
    assert_equal JOBS, log.map { |entry| entry[4] }.uniq.size
    inside = 0
    log.each { |what, *| assert_operator inside += (what == "in" ? 1 : -1), :<=, 2 }
  end

  def run_jobs(url, processes:, limiter:, wait:, lease:, rate: "")
    env = { "REDIS_URL" => url, "LIMITER_URL" => limiter, "LIMITER_RATE" => rate, "LIMITER_WAIT" => wait.to_s, "LIMITER_LEASE" => lease,
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
