# frozen_string_literal: true

require_relative "lib/limiter/version"

Gem::Specification.new do |spec|
  spec.name = "liblimiter"
  spec.version = Limiter::VERSION
  spec.authors = ["The liblimiter authors"]
  spec.summary = "Semaphores, rates and quotas from memory or Redis, for threads, fibers and forks"
  spec.description = <<~TEXT
    Limits what programs do across machines: how many things run at once, how fast they start, how
    much is used per window. One acquire and one release for every kind of limit. On liblimiter's C
    interface; comes with Rack and Sidekiq middleware.
  TEXT
  spec.homepage = "https://github.com/liblimiter/liblimiter"
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.1"
  spec.requirements = ["liblimiter.so.0"]
  spec.files = Dir.chdir(__dir__) { Dir["lib/**/*.rb", "sig/**/*.rbs", "README.md", "LICENSE-*"] }
  spec.require_paths = ["lib"]
  spec.metadata = {
    "source_code_uri" => "#{spec.homepage}/tree/main/bindings/ruby",
    "documentation_uri" => "#{spec.homepage}/blob/main/bindings/ruby/README.md",
    "changelog_uri" => "#{spec.homepage}/blob/main/CHANGELOG.md",
    "bug_tracker_uri" => "#{spec.homepage}/issues",
    "rubygems_mfa_required" => "true"
  }
  spec.add_dependency "ffi", "~> 1.15"
end
