# frozen_string_literal: true

# A limited web app: ten requests a second for each address, and four at once for each worker.
#     RUBYLIB=bindings/ruby/lib puma --preload -w 2 examples/ruby/config.ru
#     curl -i http://127.0.0.1:9292/
require "limiter/rack"

client = Limiter::Client.new(ENV.fetch("LIMITER_URL", "memory://"))

use Limiter::Rack, client.limiter("at-once", Limiter.semaphore(4)), key: "all", wait: 1
use Limiter::Rack, client.limiter("address", Limiter.token_bucket(10, refill: 10, per: 1))

run ->(_env) { [200, { "content-type" => "text/plain" }, ["Hello\n"]] }
