# frozen_string_literal: true

require "open3"
require "rack"
require_relative "helper"

# The examples and the README's snippets do what they say.
class TestExamples < Minitest::Test
  EXAMPLES = File.expand_path("../../../examples/ruby", __dir__)
  README = File.read(File.expand_path("../README.md", __dir__))

  def ruby(*arguments, **options)
    output, status = Open3.capture2e(RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), *arguments, **options)
    assert_predicate status, :success?, output
    output
  end

  def snippet(after) = README[/^## #{after}\n.*?```ruby\n(.*?)```/m, 1] || README[/\A# #{after}\n.*?```ruby\n(.*?)```/m, 1]

  def test_worker_pool = assert_match(/^40 jobs in .* at most [1-4] at once$/, ruby("#{EXAMPLES}/worker_pool.rb"))

  def test_upstream
    assert_equal "told to stay away for 2.5 s\n3 calls\n", ruby("#{EXAMPLES}/upstream.rb")
  end

  def test_the_rack_example
    app, = ::Rack::Builder.parse_file("#{EXAMPLES}/config.ru")
    codes = Array.new(12) { ::Rack::MockRequest.new(app).get("/", "REMOTE_ADDR" => "1").status }
    assert_equal [200] * 10 + [429] * 2, codes
  end

  def test_the_readmes_first_page
    ruby("-e", "def fetch_it = 7\n#{snippet('liblimiter for Ruby')}\nexit(body == 7)")
  end

  def test_the_readmes_clock
    code = snippet("Tests without sleeping")
    checked = code.sub(/^limiter.try_acquire +# => nil$/, "exit(1) if limiter.try_acquire")
                  .sub(/^limiter.try_acquire +# => a permit$/, "exit(1) unless limiter.try_acquire")
    refute_equal code, checked
    ruby("-rlimiter", "-e", checked)
  end
end
