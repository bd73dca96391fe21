# frozen_string_literal: true

# Limits what programs do: how many things run at once, how fast they start, how much is used per
# window; from memory or from Redis, with the same answers.
#
#   client  = Limiter::Client.new("memory://")
#   limiter = client.limiter("upstream", Limiter.semaphore(4), Limiter.token_bucket(20, refill: 200, per: 1))
#   limiter.acquire("user:7", wait: 5) { |permit| work }
#
# The files: native (the C functions), client, limiter, permit and decision (the handles), waiter (how
# an acquire waits), offload (round trips of fibers), limit, span and request (arguments), errors; rack
# and sidekiq, with the options they share, are required on their own.
module Limiter
end

require_relative "limiter/version"
require_relative "limiter/native"
require_relative "limiter/errors"
require_relative "limiter/span"
require_relative "limiter/limit"
require_relative "limiter/handle"
require_relative "limiter/offload"
require_relative "limiter/decision"
require_relative "limiter/permit"
require_relative "limiter/request"
require_relative "limiter/waiter"
require_relative "limiter/limiter"
require_relative "limiter/client"
require_relative "limiter/limits"
