package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

func TestClient(t *testing.T) {
	var now, most atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		time.Sleep(20 * time.Millisecond)
		w.Write([]byte("hello"))
	}))
	defer server.Close()
	client, err := limiter.Open("memory://")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	urls := make([]string, 10)
	for i := range urls {
		urls[i] = server.URL
	}
	start := time.Now()
	for _, line := range fetch(context.Background(), client, urls) {
		if !strings.HasSuffix(line, "200 OK, 5 bytes") {
			t.Error(line)
		}
	}
	if most.Load() > 4 {
		t.Errorf("%d at once", most.Load())
	}
	if took := time.Since(start); took < 400*time.Millisecond { // 5 at once, then 5 more at 10 a second
		t.Errorf("took only %v", took)
	}
}
