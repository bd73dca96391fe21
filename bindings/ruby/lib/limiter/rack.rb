# frozen_string_literal: true

require "ipaddr"
require "json"
require_relative "../limiter"
require_relative "options"
require_relative "rack/body"
require_relative "rack/headers"
require_relative "rack/retry_after"

module Limiter
  # Rack middleware: admits a request, holds its permit until the response's body is closed, and
  # answers 429 with Retry-After where it is denied.
  #
  #   use Limiter::Rack, limiter, key: ->(env) { env["HTTP_X_API_KEY"] || Limiter::Rack.client_ip(env) }
  #
  # Every response tells the client where it stands: `RateLimit-Policy` and `RateLimit` as in
  # draft-ietf-httpapi-ratelimit-headers-11. Works with Rack 2 and 3, and needs neither at run time.
  #
  # A limiter that cannot be asked (Redis does not answer, the client is closed) is neither admission nor
  # denial. By default requests pass then: an outage of the limiter should not become one of what it
  # protects. Where too many requests are worse than none, say `on_failure: :closed`; or let the client
  # decide, with its own `on_failure: :local`, which keeps to this process's share of the limits. Nothing
  # that a request can bring about lets it pass: a key that is too long is answered 400, and 503 where
  # too many wait.
  class Rack
    # Where the app finds the permit.
    ENV_PERMIT = "limiter.permit"
    # Set to the error where the limiter could not be asked and `on_failure` is `:open`.
    ENV_ERROR = "limiter.error"

    # The address a request came from: for IPv6 its /64, which is what one customer has. Empty where the
    # server tells none. Behind a proxy it is the proxy's: a key of your own then reads what that sets.
    #
    # @param env [Hash] the Rack environment
    # @return [String]
    def self.client_ip(env)
      address = env["REMOTE_ADDR"].to_s
      return address unless address.include?(":")

      ip = IPAddr.new(address[/\A[^%]*/])
      ip.ipv4_mapped? ? ip.native.to_s : "#{ip.mask(64)}/64"
    rescue IPAddr::Error
      address
    end

    # @param app [#call] the next app
    # @param limiter [Limiter] asked once for each request
    # @param key [#call, String] from the env to whose share it is, by default {client_ip}; nil from it lets
    #   a request pass unlimited. A String is one share for all
    # @param weight [Integer, Array<Integer>, #call] units, or from the env to units
    # @param wait [Numeric] seconds a request may wait for its turn before it is denied
    # @param names [Array<String>, nil] the names that clients see, one for each limit; by default the
    #   limiter's, numbered after the first
    # @param units [Array<String, nil>, nil] the limits' quota units, such as "content-bytes"; by default
    #   requests, and "concurrent-requests" for a semaphore
    # @param retry_when_full [Numeric] seconds to ask for where a semaphore is full: when a place comes
    #   free, nobody knows
    # @param on_failure [Symbol] `:open` lets requests pass while the limiter cannot be asked, `:closed`
    #   answers 503, `:raise` raises
    # @param on_error [#call, nil] told, as `env, error`, of every request that was neither admitted nor
    #   denied, and of leases that were lost while a request was served ({Stale})
    # @param denied [#call, nil] makes the response to a denial from `env, decision`; its headers get
    #   those of this class
    def initialize(app, limiter, key: Rack.method(:client_ip), weight: 1, wait: 0, names: nil,
                   units: nil, retry_when_full: 1, on_failure: :open, on_error: nil, denied: nil)
      unless %i[open closed raise].include?(on_failure)
        raise ArgumentError, "on_failure is :open, :closed or :raise"
      end

      @app = app
      @limiter = Options.limiter(limiter)
      @key = Options.key(key)
      @weight = Options.weight(weight)
      @wait = Options.wait(wait)
      @headers = Headers.new(limiter, names, units)
      @retry_after = RetryAfter.new(limiter, Span.microseconds_up(retry_when_full))
      @on_failure = on_failure
      @on_error = Options.callable(:on_error, on_error)
      @denied = Options.callable(:denied, denied)
    end

    # @param env [Hash] the Rack environment
    # @return [Array(Integer, Hash, #each)] the response
    def call(env)
      key = @key.call(env)
      return @app.call(env) if key.nil?

      weight = @weight.call(env)
      begin
        permit = @limiter.acquire(key, weight: weight, wait: @wait)
      rescue Refused => refusal
        return refuse(env, key, weight, refusal.decision)
      rescue RangeError => error # a weight that no limit has a number for
        return fail_over(env, InvalidError.new(Native::INVALID, error.message))
      rescue Error => error
        return fail_over(env, error)
      end
      pass(env, permit)
    end

    private

    # The permit leaves with the body; on every other way out it is given back here, and by its
    # finalizer where an interrupt comes before this method is entered.
    def pass(env, permit)
      kept = true
      env[ENV_PERMIT] = permit
      taken = watch_hijack(env)
      status, headers, body = @app.call(env)
      # A connection that was taken over has no body that anybody would close.
      return [status, headers, body] if taken.call || status == -1

      headers = @headers.add(headers, permit.decision)
      body = Body.new(body, -> { give_back(env, permit) })
      kept = false
      [status, headers, body]
    ensure
      permit.release if kept
    end

    # Notes that the app takes the connection: since Rack 3 a server need not leave it in the env.
    # @return [Proc] whether it did
    def watch_hijack(env)
      taken = false
      if (hijack = env["rack.hijack"])
        env["rack.hijack"] = lambda do
          taken = true
          hijack.call
        end
      end
      -> { taken || env["rack.hijack_io"] }
    end

    def give_back(env, permit)
      permit.release!
    rescue Stale => lost
      @on_error&.call(env, lost)
    end

    def refuse(env, key, weight, decision)
      status, headers, body = @denied&.call(env, decision)
      status ||= ours?(decision) ? 503 : 429
      headers ||= { "content-type" => "application/problem+json" }
      body ||= [problem(decision)]
      [status, @headers.add(headers, decision, @retry_after.microseconds(key, weight, decision)), body]
    end

    # Whether the failure policy refuses, whoever asks: no limit was looked at, and the client did nothing wrong.
    def ours?(decision) = decision.degraded? && decision.index.nil?

    # The draft's problem types (RFC 9457).
    def problem(decision)
      type = "quota-exceeded"
      title = "Request cannot be satisfied as assigned quota has been exceeded"
      title = "Request is larger than the quota can ever be" if decision.never?
      if ours?(decision)
        type = "temporary-reduced-capacity"
        title = "Request cannot be satisfied due to temporary server capacity constraints"
      end
      document = { type: "https://iana.org/assignments/http-problem-types##{type}", title: title }
      document[:"violated-policies"] = [@headers.names[decision.index]] if decision.index
      "#{JSON.generate(document)}\n"
    end

    def fail_over(env, error)
      @on_error&.call(env, error)
      case error
      when *UNANSWERED then unanswered(env, error)
      when Overloaded, ResourceError then try_later
      when InvalidError then [400, { "content-type" => "text/plain" }, ["Bad request\n"]]
      else raise error
      end
    end

    def unanswered(env, error)
      case @on_failure
      when :raise then raise error
      when :closed then try_later
      else
        env[ENV_ERROR] = error
        @app.call(env)
      end
    end

    def try_later
      [503, { "content-type" => "text/plain", "retry-after" => "1" }, ["Try again later\n"]]
    end
  end
end
