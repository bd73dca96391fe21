# frozen_string_literal: true

# The gem's own name, so that Bundler.require finds it.
require_relative "limiter"
