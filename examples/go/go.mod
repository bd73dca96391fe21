module github.com/liblimiter/liblimiter/examples/go

go 1.24

require github.com/liblimiter/liblimiter/bindings/go v0.0.0

replace github.com/liblimiter/liblimiter/bindings/go => ../../bindings/go
