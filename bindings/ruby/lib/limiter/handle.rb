# frozen_string_literal: true

module Limiter
  # Owns one C handle and frees it once: when its owner is collected, or at exit. From then on the
  # pointer is NULL, which every C function answers with a status: at exit Ruby finalizes in any
  # order, so a permit may outlive its limiter's handle.
  #
  # What may wait, as a client's end may for Redis, is freed on a thread of its own: a finalizer runs on
  # whichever thread the collector found, and this one has work to do.
  # @api private
  class Handle
    # @return [FFI::Pointer] the handle, NULL once it was freed
    attr_reader :pointer

    # @param owner [Object] whose end frees the handle
    # @param pointer [FFI::Pointer] what to own
    # @param free [Symbol] the function of {Native} that frees it
    # @return [Handle]
    def self.own(owner, pointer, free)
      handle = new(pointer, free)
      ObjectSpace.define_finalizer(owner, handle)
      handle
    end

    # @param pointer [FFI::Pointer] what to own
    # @param free [Symbol] the function of {Native} that frees it
    def initialize(pointer, free)
      @pointer = pointer
      @free = free
    end

    # Frees the handle, now. Called from ensure clauses: see {Waiter} before changing it.
    # @return [void]
    def free
      pointer = @pointer
      @pointer = FFI::Pointer::NULL
      Native.public_send(@free, pointer)
    end

    # Frees the handle as a finalizer.
    # @return [void]
    def call(_object_id)
      return free unless @free.end_with?("_blocking")

      begin
        Thread.new { free }
      rescue ThreadError # the process ends
        free
      end
    end

    # As the UTF-8 that C takes. Bytes without an encoding stay as they are, for the library to judge.
    # @return [String]
    # @raise [InvalidError] for what has no UTF-8
    def self.text(string)
      string = string.to_s
      string.encoding == Encoding::BINARY ? string : string.encode(Encoding::UTF_8)
    rescue EncodingError => error
      raise Error.for(Native::INVALID, "#{string.inspect} is not UTF-8: #{error.message}")
    end

    # Calls a function that takes `handle, key, value, errbuf, errcap`.
    # @raise [Error] with the library's message
    def self.set(function, pointer, name, value)
      value = value.to_s
      raise ArgumentError, "#{name} holds a NUL" if value.include?("\0")

      errbuf = FFI::MemoryPointer.new(:char, Native::ERRBUF_SIZE)
      status = Native.public_send(function, pointer, text(name), text(value), errbuf, errbuf.size)
      return if status == Native::OK

      raise Error.for(status, errbuf.read_string.force_encoding("UTF-8"))
    end

    # Calls a set-up function that takes `out, errbuf, errcap` last.
    # @return [FFI::Pointer] what it made
    # @raise [Error] with the library's message
    def self.make(function, *args)
      out = FFI::MemoryPointer.new(:pointer)
      errbuf = FFI::MemoryPointer.new(:char, Native::ERRBUF_SIZE)
      status = Native.public_send(function, *args, out, errbuf, errbuf.size)
      raise Error.for(status, errbuf.read_string.force_encoding("UTF-8")) unless status == Native::OK

      out.read_pointer
    end
  end
end
