# frozen_string_literal: true

# Calls to a service that counts tokens: estimate, correct, and obey its "too many requests".
#     ruby -Ibindings/ruby/lib examples/ruby/upstream.rb
require "limiter"

# What the service answers: whether it took the call, the tokens used, seconds to stay away.
Answer = Struct.new(:taken, :tokens, :retry_after)
ANSWERS = [Answer.new(true, 700, nil), Answer.new(false, 0, 2.5), Answer.new(true, 300, nil)].freeze

client = Limiter::Client.new(clock: :virtual)
# 500 requests a minute and 90 000 tokens a minute, as one limiter.
limiter = client.limiter("model", Limiter.token_bucket(500, refill: 500, per: 60, per_call: true),
                         Limiter.token_bucket(90_000, refill: 90_000, per: 60))

ANSWERS.each do |answer|
  limiter.acquire("key:1", weight: 1000, wait: 0) do |permit|
    permit.settle(answer.tokens)
    limiter.penalize("key:1", retry_after: answer.retry_after) unless answer.taken
  end
rescue Limiter::Denied => denied
  puts "told to stay away for #{denied.retry_after} s"
  client.advance(denied.retry_after)
  retry
end
puts "#{client.stats[:granted]} calls"
