module github.com/liblimiter/liblimiter/benches/go

go 1.26.0

require (
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/liblimiter/liblimiter/bindings/go v0.0.0
	github.com/redis/go-redis/v9 v9.0.2
	golang.org/x/time v0.16.0
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)

replace github.com/liblimiter/liblimiter/bindings/go => ../../bindings/go
