module github.com/liblimiter/liblimiter/tests/nemesis/client

go 1.24

require github.com/liblimiter/liblimiter/bindings/go v0.0.0

replace github.com/liblimiter/liblimiter/bindings/go => ../../../bindings/go
