package limiter

import (
	"context"
	"strconv"
	"testing"
	"time"
)

func benchmarkLimiter(b *testing.B, limits ...Limit) *Limiter {
	b.ReportAllocs()
	return newLimiter(b, open(b), limits...)
}

func BenchmarkTryAcquireGranted(b *testing.B) {
	l := benchmarkLimiter(b, TokenBucket(1e9, 1e9, time.Second))
	for b.Loop() {
		if _, err := l.TryAcquire("k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllow(b *testing.B) {
	l := benchmarkLimiter(b, TokenBucket(1e9, 1e9, time.Second))
	for b.Loop() {
		l.Allow("k")
	}
}

func BenchmarkAllowParallel(b *testing.B) {
	l := benchmarkLimiter(b, TokenBucket(1e9, 1e9, time.Second))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Allow("k")
		}
	})
}

func BenchmarkTryAcquireDenied(b *testing.B) {
	l := benchmarkLimiter(b, TokenBucket(1, 1, time.Hour))
	l.TryAcquire("k")
	for b.Loop() {
		if _, err := l.TryAcquire("k"); err == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkTryAcquireParallel(b *testing.B) {
	l := benchmarkLimiter(b, TokenBucket(1e9, 1e9, time.Second))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.TryAcquire("k")
		}
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	l := benchmarkLimiter(b, Semaphore(1))
	ctx := context.Background()
	for b.Loop() {
		p, err := l.Acquire(ctx, "k")
		if err != nil {
			b.Fatal(err)
		}
		p.Release()
	}
}

func BenchmarkDo(b *testing.B) {
	l := benchmarkLimiter(b, Semaphore(1))
	ctx := context.Background()
	for b.Loop() {
		if err := l.Do(ctx, "k", func(context.Context) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandOver passes one permit between goroutines that wait for it.
func BenchmarkHandOver(b *testing.B) {
	l := benchmarkLimiter(b, Semaphore(1))
	ctx := context.Background()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := l.Acquire(ctx, "k")
			if err != nil {
				b.Fatal(err)
			}
			p.Release()
		}
	})
}

func BenchmarkTryMany64(b *testing.B) {
	l := benchmarkLimiter(b, TokenBucket(1e9, 1e9, time.Second))
	requests := make([]Request, 64)
	for i := range requests {
		requests[i].Key = strconv.Itoa(i)
	}
	for b.Loop() {
		if _, err := l.TryMany(bg, requests...); err != nil {
			b.Fatal(err)
		}
	}
}
