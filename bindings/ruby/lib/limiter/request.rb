# frozen_string_literal: true

module Limiter
  # Memory for one or more `limiter_request`s, which keeps alive the keys and weights they point to.
  # @api private
  class Request < FFI::MemoryPointer
    At = Native::RequestLayout
    NO_RENEW = 16
    MAX_UNITS = 0xffff_ffff_ffff_ffff
    private_constant :At, :NO_RENEW, :MAX_UNITS

    # @param count [Integer] how many
    def initialize(count = 1)
      super(At::SIZE, [count, 1].max)
      @keys = Array.new(count)
      @weights = Array.new(count)
      count.times { |at| put_uint64(at * At::SIZE, At::SIZE) }
    end

    # Fills in one of them.
    # @return [self]
    def write(key, weight, at: 0, wait_ms: 0, lease_ms: 0, renew: true, tag: 0)
      memory = at.zero? ? self : self + (at * At::SIZE)
      write_key(memory, key, at)
      write_weight(memory, weight, at)
      memory.put_int32(At::WAIT_MS, wait_ms)
      memory.put_uint32(At::LEASE_MS, lease_ms)
      memory.put_uint32(At::FLAGS, renew ? 0 : NO_RENEW)
      memory.put_uint64(At::USER_DATA, Request.unsigned(tag, "tag"))
      self
    end

    # @return [String] the bytes of a key
    # @raise [TypeError] for nil, which is a key forgotten rather than an empty one
    def self.key(key)
      raise TypeError, "a key is nil" if key.nil?

      key.to_s
    end

    # @return [Integer] what C takes as a weight
    # @raise [TypeError, RangeError] for what would be cut or wrapped
    def self.units(weight) = unsigned(weight, "weight")

    # @return [Integer] what C takes as an unsigned number
    # @raise [TypeError, RangeError] for what would be cut or wrapped
    def self.unsigned(number, name)
      raise TypeError, "a #{name} is an Integer, not #{number.inspect}" unless number.is_a?(Integer)
      raise RangeError, "#{name} #{number} is out of range" unless number.between?(0, MAX_UNITS)

      number
    end

    private

    def write_key(memory, key, at)
      key = Request.key(key)
      bytes = @keys[at]
      if bytes.nil? || bytes.size < key.bytesize
        bytes = @keys[at] = FFI::MemoryPointer.new(:char, [key.bytesize, 64].max)
      end
      bytes.put_bytes(0, key)
      memory.put_pointer(At::KEY, bytes)
      memory.put_uint64(At::KEY_LEN, key.bytesize)
    end

    def write_weight(memory, weight, at)
      if weight.is_a?(Array)
        weights = @weights[at] = FFI::MemoryPointer.new(:uint64, [weight.size, 1].max)
        weights.put_array_of_uint64(0, weight.map { |units| Request.units(units) })
        memory.put_pointer(At::WEIGHTS, weights)
        memory.put_uint64(At::WEIGHTS_LEN, weight.size)
      else
        memory.put_uint64(At::WEIGHT, Request.units(weight))
        memory.put_pointer(At::WEIGHTS, nil)
        memory.put_uint64(At::WEIGHTS_LEN, 0)
      end
    end
  end
end
