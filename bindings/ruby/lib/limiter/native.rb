# frozen_string_literal: true

require "ffi"

module Limiter
  # The C functions of limiter.h, and where its structs keep their fields. Nothing else in this gem
  # calls C.
  #
  # The offsets below are those of a 64-bit machine.
  #
  # A function is attached without releasing the GVL unless it can wait: then it is attached once more
  # under its name with `_blocking`, for clients whose backend is a network away.
  # @api private
  module Native
    extend FFI::Library

    raise ::LoadError, "liblimiter for Ruby needs a 64-bit Ruby" unless FFI::Pointer::SIZE == 8

    # The ABI this gem was written for; LIMITER_ABI of limiter.h.
    ABI = 0

    # What limiter.h promises is enough for every message.
    ERRBUF_SIZE = 512

    # `limiter_status` by name.
    OK = 0
    PENDING = 1
    DENIED = 2
    NEVER = 3
    INVALID = -1
    TIMEOUT = -4
    STALE = -8

    DEGRADED = 1
    MAYBE_CHARGED = 2
    NO_INDEX = 0xffff_ffff

    # Offsets within `limiter_limit`.
    module LimitLayout
      SIZE = 56
      KIND = 8
      FLAGS = 12
      CAPACITY = 16
      REFILL = 24
      PERIOD_US = 32
      LEASE_MS = 40
      EARN_PERMILLE = 44
      VERSION = 48
    end

    # Offsets within `limiter_request`.
    module RequestLayout
      SIZE = 72
      KEY = 8
      KEY_LEN = 16
      WEIGHT = 24
      WEIGHTS = 32
      WEIGHTS_LEN = 40
      WAIT_MS = 48
      LEASE_MS = 52
      FLAGS = 56
      USER_DATA = 64
    end

    # Offsets within `limiter_decision`.
    module DecisionLayout
      SIZE = 128
      STATUS = 0
      FLAGS = 4
      PERMIT = 8
      OP = 16
      USER_DATA = 24
      LIMIT = 32
      REMAINING = 40
      RETRY_AFTER_US = 48
      RESET_AFTER_US = 56
      WAITED_US = 64
      FENCE = 72
      INDEX = 80
      QUEUE_POSITION = 84
    end

    # Offsets within `limiter_slot`.
    module SlotLayout
      SIZE = 216
      LIMITER = 8
      DECISION = 16
    end

    # Fields of `limiter_stats` behind its struct_size, in order.
    STATS = %i[
      granted denied never cancelled released settled lost overloaded degraded backend_errors
      backend_calls connects in_flight waiting keys fork_generation
    ].freeze

    # Finds the library: LIMITER_LIB (a file), else the dynamic linker, else pkg-config's libdir.
    # @return [Array<String>] file names, most wanted first
    def self.candidates
      named = ENV["LIMITER_LIB"].to_s
      return [named] unless named.empty?

      libdir = pkg_config_libdir
      ["liblimiter.so.#{ABI}", libdir && File.join(libdir, "liblimiter.so.#{ABI}")].compact
    end

    # @return [String, nil] the directory pkg-config names, if it is there and knows the library
    def self.pkg_config_libdir
      libdir = IO.popen(%w[pkg-config --variable=libdir limiter], err: File::NULL, &:read).strip
      libdir unless libdir.empty?
    rescue SystemCallError
      nil
    end
    private_class_method :candidates, :pkg_config_libdir

    begin
      ffi_lib candidates
    rescue ::LoadError => error
      raise ::LoadError, "liblimiter was not found: install it so that the dynamic linker finds " \
                         "liblimiter.so.#{ABI}, or set LIMITER_LIB to its file (#{error.message})"
    end

    # Attaches one function, without the prefix.
    def self.native(name, args, result, waits: false)
      attach_function name, :"limiter_#{name}", args, result
      attach_function :"#{name}_blocking", :"limiter_#{name}", args, result, blocking: true if waits
    end
    private_class_method :native

    # First of all the version, so that a wrong library is named before a missing function is.
    begin
      native :abi_version, [], :uint32
    rescue FFI::NotFoundError
      raise ::LoadError, "#{ffi_libraries.first.name} is not liblimiter: it has no limiter_abi_version"
    end
    unless abi_version == ABI
      raise ::LoadError, "liblimiter has ABI #{abi_version}, and this gem (liblimiter " \
                         "#{VERSION}) needs ABI #{ABI}: #{ffi_libraries.first.name}"
    end
    native :version, [], :uint32
    native :status_name, [:int32], :string
    native :status_message, [:int32], :string

    native :config_new, [], :pointer
    native :config_set, %i[pointer string string pointer size_t], :int32
    native :config_free, [:pointer], :void
    native :client_open, %i[string pointer pointer pointer size_t], :int32
    native :client_shutdown, %i[pointer int32], :int32, waits: true
    native :client_free, [:pointer], :int32, waits: true
    native :set, %i[pointer string string pointer size_t], :int32
    native :new, %i[pointer string pointer size_t pointer pointer size_t], :int32
    native :free, [:pointer], :void

    native :pace, %i[pointer pointer pointer], :int32, waits: true
    native :peek, %i[pointer pointer pointer], :int32, waits: true
    native :reset, %i[pointer pointer size_t], :int32, waits: true
    native :penalize, %i[pointer pointer size_t uint64], :int32, waits: true
    native :try_many, %i[pointer pointer pointer size_t], :int32, waits: true
    native :release, %i[pointer uint64], :int32
    native :renew, %i[pointer uint64 uint32], :int32, waits: true
    native :settle, %i[pointer uint64 uint64], :int32, waits: true

    native :queue_new, %i[pointer pointer], :int32
    native :queue_fd, [:pointer], :int32
    native :submit, %i[pointer pointer pointer pointer], :int32
    native :queue_poll, %i[pointer pointer size_t int32], :int32
    native :cancel_waits, %i[pointer uint64], :int32
    native :queue_free, [:pointer], :void
    native :after_task, [:pointer], :void

    native :clock_advance_us, %i[pointer uint64], :int32, waits: true
    native :clock_set_us, %i[pointer uint64], :int32, waits: true
    native :clock_now_us, [:pointer], :uint64
    native :stats_get, %i[pointer pointer], :int32
  end
end
