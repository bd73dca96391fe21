# frozen_string_literal: true

require "net/http"
require "socket"
require "tmpdir"
require_relative "helper"

# Puma in cluster mode, the app and its client loaded before it forks.
class TestPuma < Minitest::Test
  include Helper

  REQUESTS = Integer(ENV.fetch("LIMITER_REQUESTS", "400"))
  CALLERS = 8

  def test_a_cluster_under_load
    serve do |port|
      codes, pids = load(port, "/wait")
      assert_equal({ "200" => REQUESTS }, codes)
      assert_equal 2, pids.size, "both workers served"

      codes, = load(port, "/try")
      assert_equal REQUESTS, codes.values.sum
      assert_equal %w[200 429], codes.keys.sort

      workers(port).each_value do |stats|
        assert_equal [0, 0], stats.values_at("in_flight", "waiting")
        assert_operator stats["most"], :<=, 2
        assert_operator stats["fork_generation"], :>=, 1
      end
    end
  end

  private

  def serve
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    Dir.mktmpdir do |dir|
      File.write("#{dir}/puma.rb", <<~CONFIG)
        workers 2
        threads 6, 6
        preload_app!
        bind "tcp://127.0.0.1:#{port}"
        environment "production"
      CONFIG
      command = ["puma", "-C", "#{dir}/puma.rb", File.expand_path("fixtures/config.ru", __dir__)]
      lib = File.expand_path("../lib", __dir__)
      pid = spawn({ "RUBYLIB" => lib }, *command, out: "#{dir}/log", err: "#{dir}/log")
      begin
        eventually("puma") { up?(port, pid, "#{dir}/log") }
        yield port
      ensure
        Process.kill(:TERM, pid)
        status = Process.wait2(pid).last
      end
      log = File.read("#{dir}/log")
      refute_match(/error|exception/i, log)
      assert_includes [0, 143], status.exitstatus || (128 + status.termsig), log
    end
  end

  def up?(port, pid, log)
    flunk File.read(log) if Process.wait(pid, Process::WNOHANG)
    workers(port, 20).size == 2
  rescue SystemCallError, EOFError
    sleep 0.1
    false
  end

  def workers(port, tries = 60)
    Array.new(tries) { JSON.parse(Net::HTTP.get(URI("http://127.0.0.1:#{port}/stats"))) }.to_h { |s| [s["pid"], s] }
  end

  def load(port, path)
    answers = Array.new(CALLERS) do
      Thread.new do
        Array.new(REQUESTS / CALLERS) do
          response = Net::HTTP.get_response(URI("http://127.0.0.1:#{port}#{path}"))
          assert response["retry-after"].to_i >= 1 if response.code == "429"
          [response.code, response.body]
        end
      end
    end.flat_map(&:value)
    [answers.map(&:first).tally, answers.filter_map { |code, body| body if code == "200" }.uniq]
  end
end
