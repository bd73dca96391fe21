# frozen_string_literal: true

require "open3"
require "tmpdir"
require "rbconfig"
require_relative "helper"

# What is taken from limiter.h still stands there, and a wrong library is told.
class TestNative < Minitest::Test
  HEADER = File.read(ENV.fetch("LIMITER_HEADER", "#{Helper::ROOT}/include/limiter.h"))
  SIZES = { "size_t" => 8, "uint64_t" => 8, "uint32_t" => 4, "int32_t" => 4, "limiter_status" => 4,
            "limiter_permit" => 8, "limiter_op" => 8, "limiter_decision" => 128, "limiter_request" => 72 }.freeze

  # Offsets of a struct's fields, and its size, from the header's text.
  def layout(struct)
    body = HEADER[/typedef struct #{struct} \{(.*?)\n\} #{struct};/m, 1].gsub(%r{/\*.*?\*/}m, "")
    at = 0
    fields = body.scan(/^\s*(?:const )?(?:struct )?(\w+) (\*?)(\w+)(?:\[(\d+)\])?;/).to_h do |type, star, name, count|
      size = star.empty? ? SIZES.fetch(type) : 8
      align = [size, 8].min
      at += -at % align
      offset = at
      at += size * (count || 1).to_i
      [name, offset]
    end
    fields.merge("size" => at + (-at % 8))
  end

  def test_layouts
    { "limiter_limit" => Limiter::Native::LimitLayout, "limiter_request" => Limiter::Native::RequestLayout,
      "limiter_decision" => Limiter::Native::DecisionLayout, "limiter_slot" => Limiter::Native::SlotLayout }.each do |struct, ours|
      theirs = layout(struct)
      ours.constants.each do |name|
        field = { EARN_PERMILLE: "burst_earn_permille" }.fetch(name, name.to_s.downcase)
        assert_equal theirs.fetch(field), ours.const_get(name), "#{struct}.#{field}"
      end
    end
    assert_equal ["struct_size", *Limiter::Native::STATS.map(&:to_s), "size"], layout("limiter_stats").keys
  end

  def test_numbers
    names = Limiter::Limit::KINDS.transform_keys { |kind| { never: "NEVER_ADMIT" }.fetch(kind, kind.to_s.upcase) }
    names.each { |name, number| assert_match(/^#define LIMITER_#{name} #{number}$/, HEADER) }
    assert_match(/^#define LIMITER_ABI #{Limiter::Native::ABI}$/, HEADER)
    assert_match(/^#define LIMITER_ERRBUF_SIZE #{Limiter::Native::ERRBUF_SIZE}$/, HEADER)
    %w[OK PENDING DENIED NEVER TIMEOUT STALE DEGRADED MAYBE_CHARGED].each do |name|
      assert_match(/^#define LIMITER_#{name} #{Limiter::Native.const_get(name)}$/, HEADER)
    end
  end

  # What the header says may wait is called without the GVL: acquire and before_task are not called at all, and
  # a poll has no timeout.
  def test_what_may_wait_is_attached_without_the_gvl
    waits = HEADER[/Blocking: .*?limiter_release never\W+waits/m].scan(/limiter_(\w+)/).flatten.uniq
    waits -= %w[acquire before_task queue_poll release]
    assert_operator waits.size, :>=, 9
    (waits + %w[clock_advance_us clock_set_us]).each do |name|
      assert_respond_to Limiter::Native, "#{name}_blocking"
    end
  end

  def test_the_version_is_the_gems
    assert_equal Limiter::VERSION, Limiter.library_version
  end

  def test_every_status_of_the_header_is_an_error_or_an_answer
    HEADER[/STATUS ---.*?KINDS OF LIMIT/m].scan(/^#define LIMITER_(\w+) (-\d+)$/) do |name, number|
      next if %w[PACE_NEVER WOULD_DEADLOCK].include?(name)

      refute_instance_of Limiter::Error, Limiter::Error.for(number.to_i), name
    end
  end

  def ruby(env)
    Open3.capture2e(env, RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", "require 'limiter'; puts :in")
  end

  def test_a_machine_of_other_words_is_told
    script = "require 'ffi'; FFI::Pointer.send(:remove_const, :SIZE); FFI::Pointer::SIZE = 4; require 'limiter'"
    output, status = Open3.capture2e(RbConfig.ruby, "-I", File.expand_path("../lib", __dir__), "-e", script)
    refute_predicate status, :success?
    assert_match(/needs a 64-bit Ruby/, output)
  end

  def test_a_missing_library_is_told
    output, status = ruby("LIMITER_LIB" => "/nonexistent/liblimiter.so.0")
    refute_predicate status, :success?
    assert_match(/liblimiter was not found.*LIMITER_LIB/, output)
  end

  def test_another_library_is_told
    output, status = ruby("LIMITER_LIB" => "libm.so.6")
    refute_predicate status, :success?
    assert_match(/libm.so.6 is not liblimiter/, output)
  end

  def test_a_wrong_abi_is_told
    Dir.mktmpdir do |dir|
      File.write("#{dir}/wrong.c", "unsigned limiter_abi_version(void) { return 7; }\n")
      assert system(ENV.fetch("CC", "cc"), "-shared", "-fPIC", "-o", "#{dir}/wrong.so", "#{dir}/wrong.c")
      output, status = ruby("LIMITER_LIB" => "#{dir}/wrong.so")
      refute_predicate status, :success?
      assert_match(/has ABI 7, and this gem .* needs ABI 0: .*wrong\.so/, output)
    end
  end
end
