# frozen_string_literal: true

require_relative "../limiter"
require_relative "rack/body"
require_relative "rack/headers"

module Limiter
  # Rack middleware: admits a request, holds its permit until the response's body is closed, and
  # answers 429 with Retry-After where it is denied.
  #
  #   use Limiter::Rack, limiter, key: ->(env) { env["REMOTE_ADDR"] }
  #
  # Every response tells the client where it stands: `RateLimit-Policy` and `RateLimit` as in
  # draft-ietf-httpapi-ratelimit-headers-10. Works with Rack 2 and 3, and needs neither at run time.
  class Rack
    # Where the app finds the permit.
    ENV_PERMIT = "limiter.permit"
    # Set to the error where the backend could not answer and `on_failure` is `:open`.
    ENV_ERROR = "limiter.error"

    # @param app [#call] the next app
    # @param limiter [Limiter] asked once for each request
    # @param key [#call] from the env to whose share it is; nil lets a request pass unlimited
    # @param weight [Integer, Array<Integer>, #call] units, or from the env to units
    # @param wait [Numeric] seconds a request may wait for its turn before it is denied
    # @param policy [String] the name clients see; the limiter's by default
    # @param on_failure [Symbol] `:open` lets requests pass while the backend cannot answer, `:closed`
    #   answers 503, `:raise` raises
    # @param denied [#call, nil] makes the response to a denial from `env, decision`; its headers get
    #   those of this class where it sets none itself
    def initialize(app, limiter, key: ->(env) { env["REMOTE_ADDR"] }, weight: 1, wait: 0,
                   policy: limiter.name, on_failure: :open, denied: nil)
      unless %i[open closed raise].include?(on_failure)
        raise ArgumentError, "on_failure is :open, :closed or :raise"
      end

      @app = app
      @limiter = limiter
      @key = key
      @weight = weight
      @wait = wait
      @headers = Headers.new(limiter.limits, policy)
      @on_failure = on_failure
      @denied = denied
    end

    # @param env [Hash] the Rack environment
    # @return [Array(Integer, Hash, #each)] the response
    def call(env)
      key = @key.call(env)
      return @app.call(env) if key.nil?

      weight = @weight.respond_to?(:call) ? @weight.call(env) : @weight
      begin
        permit = @limiter.acquire(key, weight: weight, wait: @wait)
      rescue Refused => refusal
        return refuse(env, refusal.decision)
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
      status, headers, body = @app.call(env)
      # A connection that was taken over has no body that anybody would close.
      return [status, headers, body] if env["rack.hijack_io"] || status == -1

      headers = @headers.add(headers, permit.decision)
      body = Body.new(body, permit)
      kept = false
      [status, headers, body]
    ensure
      permit.release if kept
    end

    def refuse(env, decision)
      status, headers, body = @denied&.call(env, decision)
      status ||= 429
      headers ||= { "content-type" => "text/plain" }
      body ||= [decision.never? ? "This request can never be admitted\n" : "Too many requests\n"]
      [status, @headers.add(headers, decision), body]
    end

    def fail_over(env, error)
      case @on_failure
      when :raise then raise error
      when :closed
        [503, { "content-type" => "text/plain", "retry-after" => "1" }, ["Try again later\n"]]
      else
        env[ENV_ERROR] = error
        @app.call(env)
      end
    end
  end
end
