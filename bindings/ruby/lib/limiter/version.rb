# frozen_string_literal: true

module Limiter
  # Version of this gem: the liblimiter release it was written for.
  VERSION = "0.1.0"
end
