# frozen_string_literal: true

require "open3"
require "tmpdir"
require_relative "helper"

# The gem as a user gets it, its signatures, and its docs.
class TestPackage < Minitest::Test
  ROOT = File.expand_path("..", __dir__)

  def run_ok(*command, **options)
    output, status = Open3.capture2e(*command, **options)
    assert_predicate status, :success?, output
    output
  end

  def test_built_installed_and_used
    Dir.mktmpdir do |dir|
      output = run_ok("gem", "build", "-o", "#{dir}/liblimiter.gem", "liblimiter.gemspec", chdir: ROOT)
      assert_empty output.scan(/^WARNING: +(.*)$/).flatten.grep_v(/specification-reference/)
      run_ok("gem", "install", "--local", "--no-document", "--ignore-dependencies", "--install-dir", "#{dir}/home",
             "#{dir}/liblimiter.gem")
      env = { "GEM_HOME" => "#{dir}/home", "GEM_PATH" => "#{dir}/home:#{Gem.path.join(':')}", "RUBYLIB" => nil }
      script = <<~'RUBY'
        gem "liblimiter"
        require "limiter"
        raise $LOADED_FEATURES.grep(/limiter/).inspect unless Gem.loaded_specs["liblimiter"].gem_dir.start_with?(ENV["GEM_HOME"])
        limiter = Limiter::Client.new.limiter("gem", Limiter.semaphore(1))
        print limiter.acquire { limiter.try_acquire.inspect }
        require "limiter/rack"
        require "limiter/sidekiq"
        require "liblimiter"
      RUBY
      assert_equal "nil", run_ok(env, RbConfig.ruby, "-e", script, chdir: dir)
    end
  end

  def test_signatures
    run_ok(RbConfig.ruby, Gem.bin_path("rbs", "rbs"), "-I", "sig", "validate", "--silent", chdir: ROOT)
  end

  # Each public method has a signature, and each signature a method of the same parameters.
  def test_signatures_are_those_of_the_code
    require "rbs"
    loader = RBS::EnvironmentLoader.new
    loader.add(path: Pathname("#{ROOT}/sig"))
    builder = RBS::DefinitionBuilder.new(env: RBS::Environment.from_loader(loader).resolve_type_names)
    public_types.each do |type|
      name = RBS::TypeName.new(name: type.name.split("::").last.to_sym,
                               namespace: RBS::Namespace.parse("::#{type.name.split('::')[0..-2].join('::')}"))
      compare(type, :instance, builder.build_instance(name)) if type.is_a?(Class)
      compare(type, :singleton, builder.build_singleton(name))
    end
  end

  # A comment before each public method, which names each parameter and what comes back.
  def test_everything_public_is_documented
    public_types.each do |type|
      own = (type.is_a?(Class) ? type.instance_methods(false) - PRIVATE_API : []).map { |name| type.instance_method(name) }
      own += (type.singleton_methods(false) - PRIVATE_API).map { |name| type.method(name) }
      own.each { |method| assert_documented(method, "#{type}##{method.name}") }
    end
  end

  private

  def public_types
    require_relative "../lib/limiter/rack"
    require_relative "../lib/limiter/sidekiq"
    hidden = %i[Native Handle Offload Options Request Waiter Span]
    types = (Limiter.constants - hidden).map { |name| Limiter.const_get(name) }.grep(Module)
    [Limiter, *types]
  end

  def assert_documented(method, where)
    file, line = method.source_location
    comment = File.readlines(file)[0...line - 1].reverse.take_while { |text| text.match?(/^\s*#/) }.join
    refute_empty comment, where
    named = method.parameters.filter_map { |_, name| name unless name.to_s =~ /\A_?\z|block|run|include_all/ }
    common = method.owner.singleton_class? ? %i[per_call version] : []
    (named - common - [:*, :&]).each { |name| assert_match(/@(param|yieldparam) #{name}\b/, comment, where) }
    assert_match(/@return|@yield|# @param seconds/, comment, where)
  end

  def compare(type, side, definition)
    target = side == :instance ? type : type.singleton_class
    ours = target.public_instance_methods(false) - PRIVATE_API
    theirs = definition.methods.select { |_, method| method.defined_in == definition.type_name && method.public? }.keys
    theirs -= %i[new initialize]
    assert_equal ours.sort, theirs.sort, "#{type} #{side}"
    ours.each { |name| compare_parameters(target.instance_method(name), definition.methods[name]) }
  end

  # What is public for the gem's own use only.
  PRIVATE_API = %i[handle holds? give_back keep pointer round_trip memory checkout checkin marshal_dump marshal_load write flags rate for].freeze

  def compare_parameters(method, signature)
    kinds = method.parameters.group_by(&:first).transform_values { |list| list.map(&:last) }
    function = signature.defs.first.type.type
    where = "#{method.owner}##{method.name}"
    assert_equal kinds.fetch(:req, []).size, function.required_positionals.size, where
    assert_equal kinds.fetch(:opt, []).size, function.optional_positionals.size, where
    assert_equal kinds.fetch(:keyreq, []).sort, function.required_keywords.keys.sort, where
    assert_equal kinds.fetch(:key, []).sort, function.optional_keywords.keys.sort, where
  end
end
