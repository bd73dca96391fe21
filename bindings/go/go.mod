module github.com/liblimiter/liblimiter/bindings/go

go 1.24
