# frozen_string_literal: true

require "tmpdir"
require_relative "helper"

# One client, opened before forking and used in every child.
class TestFork < Minitest::Test
  include Helper

  # Acquires, waits and is denied: everything a child may want.
  def use(limiter)
    first = limiter.acquire("child")
    waiter = Thread.new { limiter.acquire("child", wait: 5) { :waited } }
    eventually { limiter.client.stats[:waiting] == 1 }
    first.release
    [waiter.value, limiter.try_acquire("child") { :tried }, limiter.client.stats[:in_flight]].map(&:to_s)
  end

  def test_used_in_eight_children
    limiter = semaphore(1)
    use(limiter)
    permit = limiter.acquire("parent")
    Array.new(8) { Thread.new { in_child { use(limiter) } } }.each do |child|
      assert_equal %w[waited tried 0], child.value
    end
    assert_equal %w[waited tried 0], in_child { in_child { use(limiter) } }, "grandchild"
    assert permit.release, "the parent's permit is still its own"
    assert_nothing_held limiter, "parent"
  end

  def test_forked_while_others_wait
    limiter = semaphore(1)
    permit = limiter.acquire
    waiters = Array.new(4) { Thread.new { limiter.acquire(wait: 20) { :in } } }
    eventually { limiter.client.stats[:waiting] == 4 }
    assert_equal %w[waited tried 0], in_child { use(limiter) }
    permit.release
    assert_equal %i[in in in in], waiters.map(&:value)
    assert_nothing_held limiter
  end

  def test_a_permit_of_the_parent_is_not_the_childs
    limiter = semaphore(1)
    limiter.acquire do |permit|
      answer = in_child do
        begin
          permit.renew
        rescue Limiter::Forked
          [permit.release, "forked"]
        end
      end
      assert_equal [false, "forked"], answer
      assert_equal 1, limiter.client.stats[:in_flight]
    end
    assert_nothing_held limiter
  end

  def test_a_child_that_leaves_the_block_gives_nothing_back
    limiter = semaphore(1)
    parent = limiter.acquire do
      # Without a block fork returns twice, and the child goes on out of the acquire.
      if (pid = fork)
        assert_equal 7, Process.wait2(pid).last.exitstatus
        assert_equal 1, limiter.client.stats[:in_flight]
        true
      end
    end
    exit!(7) unless parent
    assert_nothing_held limiter
  end

  def test_an_ordinary_exit_of_a_child
    limiter = semaphore(1)
    permit = limiter.acquire
    pid = fork do
      Minitest.class_variable_set(:@@after_run, []) if Minitest.class_variable_defined?(:@@after_run)
      limiter.acquire("other") { nil }
      limiter.acquire("other")
      exit!(1) unless limiter.client.stats[:in_flight] == 1
      Kernel.exit(true)
    end
    assert_predicate Process.wait2(pid).last, :success?
    assert permit.release
  end

  def test_daemon
    Dir.mktmpdir do |dir|
      limiter = semaphore(1)
      use(limiter)
      pid = fork do
        Process.daemon(true, true)
        File.write("#{dir}/part", use(limiter).join(" "))
        File.rename("#{dir}/part", "#{dir}/done")
        Process.exit!(0)
      end
      Process.wait(pid)
      eventually("the daemon") { File.exist?("#{dir}/done") }
      assert_equal "waited tried 0", File.read("#{dir}/done")
    end
  end

  # As a daemon does that closes all descriptors, and opens others on their numbers, before it waits.
  def test_descriptors_that_a_child_put_something_else_on
    limiter = semaphore(1)
    use(limiter)
    numbers = limiter.client.instance_variable_get(:@idle).map { |waiter| waiter.send(:readable).fileno }
    refute_empty numbers
    answer = in_child do
      numbers.each { |number| IO.for_fd(number).close }
      pipes = Array.new(numbers.size) { IO.pipe } # the lowest numbers that are free
      answer = Timeout.timeout(10) { use(limiter) }
      pipes.flatten.each(&:close)
      answer
    end
    assert_equal %w[waited tried 0], answer
    assert_equal %w[waited tried 0], use(limiter)
    assert_nothing_held limiter
  end

  def test_one_hundred_short_processes
    limiter = semaphore(1)
    failed = Array.new(100) do |at|
      pid = fork do
        limiter.acquire
        Thread.new { limiter.acquire } if at.odd?
        Process.exit!(0) if at % 3 == 0
        at_exit { Process.exit!(0) } if at % 3 == 1
      end
      Process.wait2(pid).last
    end
    assert_empty failed.reject(&:success?)
  end
end
