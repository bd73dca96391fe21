# frozen_string_literal: true

module Limiter
  # What the middlewares take as options. Refused where the middleware is made, and not in each request.
  # @api private
  module Options
    module_function

    # @return [Object] what was given, if it is a limiter
    def limiter(value)
      return value if value.respond_to?(:acquire)

      raise TypeError, "#{value.inspect} is not a limiter"
    end

    # @return [#call] whose share it is; a String or Symbol is the same for all
    def key(value)
      return value if value.respond_to?(:call)
      return ->(_) { value } if value.is_a?(String) || value.is_a?(Symbol)

      raise TypeError, "key is a proc or a String, not #{value.inspect}"
    end

    # @return [#call] units; a constant is the same for all
    def weight(value)
      return value if value.respond_to?(:call)

      (value.is_a?(Array) ? value : [value]).each { |units| Request.units(units) }
      ->(_) { value }
    end

    # @return [Numeric, nil] what was given, if it is a wait
    def wait(value)
      Span.wait_ms(value)
      value
    end

    # @return [#call, nil] what was given, if it can be called
    def callable(name, value)
      return value if value.nil? || value.respond_to?(:call)

      raise TypeError, "#{name} is a proc, not #{value.inspect}"
    end
  end
end
